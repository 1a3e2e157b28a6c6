-- Registrations and tagged operations (BHM90 4.2, 4.3; spec Q2, Q5).
-- Tables: registrant, registration, element, history, taken, dequeuer (written), queue (read). Locks: the registrant's
-- anchor (advisory; exclusive in register, deregister and begin_tagged), then the queue's in
-- enqueue_with_tag (advisory, shared), then elements by seq.

-- Registers a registrant with a queue, durably, and returns what it did last there, one row for each
-- thread, its own first. p_epoch joins a life that already began (a second queue); null begins a new one, which
-- fences the former one.
create or replace function onceq.register(
    p_queue text, p_name text, p_thread text, p_stable boolean, p_epoch bigint
) returns table (registrant_id integer, epoch bigint, thread text, kind text, eid uuid, tag bytea)
language plpgsql volatile as $$
declare
    q onceq.queue := onceq.find_queue(p_queue);
    id integer;
begin
    perform onceq.refuse_reply_queue(q.queue_id), onceq.be_durable();
    id := onceq.anchor(p_name, p_thread);
    perform pg_advisory_xact_lock('onceq.registrant'::regclass::oid::integer, id);
    if p_epoch is null then
        update onceq.registrant r set epoch = r.epoch + 1, state = 'connected', connected_at = onceq.now()
            where r.registrant_id = id;
    else
        perform onceq.check_epoch(id, p_epoch);
    end if;
    insert into onceq.registration (registrant_id, queue_id, stable)
        select id, q.queue_id, p_stable where not exists (select from onceq.registration x
            where x.registrant_id = id and x.queue_id = q.queue_id);
    return query select r.registrant_id, r.epoch, r.thread, x.kind, x.eid, x.tag
        from onceq.registrant r
        join lateral (select * from onceq.registration x where x.registrant_id = r.registrant_id
                      and x.queue_id = q.queue_id order by x.registration_id desc limit 1) x on true
        where r.name = p_name collate "C" order by (r.registrant_id = id) desc, r.thread;
end $$;

-- Destroys the registration of a registrant with a queue; returns whether there was one.
create or replace function onceq.deregister(p_registrant integer, p_epoch bigint, p_queue text)
returns boolean
language plpgsql volatile as $$
declare q onceq.queue := onceq.find_queue(p_queue);
begin
    perform onceq.be_durable();
    perform pg_advisory_xact_lock('onceq.registrant'::regclass::oid::integer, p_registrant);
    perform onceq.check_epoch(p_registrant, p_epoch);
    delete from onceq.registration where registrant_id = p_registrant and queue_id = q.queue_id;
    return found;
end $$;

-- How long an operation that was asked to wait so long may wait for a lock: half a second if its transaction has done
-- something before. Then it may hold what the other waits for. Of two that wait here in a circle one is refused before
-- PostgreSQL looks for a deadlock (`deadlock_timeout`, a second).
create or replace function onceq.patience(p_timeout_s double precision) returns double precision
language sql volatile as $$
    select case when pg_current_xact_id_if_assigned() is null then p_timeout_s else least(p_timeout_s, 0.5) end
$$;

-- Begins a tagged operation: takes the registrant's anchor, alone, so that the operations of a registrant come one after
-- the other, and the one recorded last is the one that committed last. Refuses an epoch that is over, and what could
-- not be recorded, before anything is done. From here on the transaction has done something (`patience`).
create or replace function onceq.begin_tagged(
    p_registrant integer, p_epoch bigint, p_queue text, p_tag bytea, p_timeout_s double precision default 10
) returns integer
language plpgsql volatile set lock_timeout = 0 as $$
declare q onceq.queue := onceq.find_queue(p_queue);
begin
    perform onceq.need_read_committed('tagged operations need a READ COMMITTED transaction');
    perform onceq.be_durable();
    perform onceq.wait_at_most(onceq.patience(p_timeout_s));
    begin
        perform pg_advisory_xact_lock('onceq.registrant'::regclass::oid::integer, p_registrant);
    exception when lock_not_available then
        raise exception 'another transaction of client "%" has not ended: nothing happened',
            (select name from onceq.registrant where registrant_id = p_registrant) using errcode = '55P03',
            hint = 'end that one, or roll back and try again; one user at a time works with a registration';
    end;
    perform pg_current_xact_id(), onceq.check_epoch(p_registrant, p_epoch);
    perform onceq.refuse_reply_queue(q.queue_id);
    if octet_length(p_tag) > q.tag_bytes_max then
        raise exception 'the tag has % bytes; at most % are taken', octet_length(p_tag), q.tag_bytes_max
            using errcode = 'OQ005';
    elsif not exists (select from onceq.registration where registrant_id = p_registrant and queue_id = q.queue_id) then
        raise exception 'registrant % is not registered with this queue', p_registrant using errcode = 'OQ011';
    end if;
    return q.queue_id;
end $$;

-- Records an operation that was begun by `begin_tagged`: kind, eid, tag and a copy of the element's body; nothing if
-- the registration is not stable.
create or replace function onceq.record_operation(
    p_registrant integer, p_queue_id integer, p_kind text, p_eid uuid, p_tag bytea, p_body bytea
) returns void
language plpgsql volatile as $$
declare added bigint;
begin
    insert into onceq.registration (registrant_id, queue_id, kind, eid, tag, body)
        select p_registrant, p_queue_id, p_kind, p_eid, p_tag, p_body from (select stable from onceq.registration
            where registrant_id = p_registrant and queue_id = p_queue_id
            order by registration_id desc limit 1) x where x.stable
        returning registration_id into added;
    delete from onceq.registration where registrant_id = p_registrant
        and queue_id = p_queue_id and registration_id < added;
end $$;

-- Enqueues, tagged: the element and its record are one transaction.
create or replace function onceq.enqueue_with_tag(
    p_registrant integer, p_epoch bigint, p_queue text, p_body bytea, p_tag bytea,
    p_own_transaction boolean, out eid uuid, out bell text
)
language plpgsql volatile as $$
declare q integer := onceq.begin_tagged(p_registrant, p_epoch, p_queue, p_tag);
begin
    select x.eid, x.bell into eid, bell from onceq.enqueue(p_queue, p_body, null, 4::smallint, null, null,
        null, null, null, p_own_transaction) x;
    perform onceq.record_operation(p_registrant, q, 'enqueue', eid, p_tag, p_body);
end $$;

-- Reads an element wherever it is, tagged with the registration of a queue; no row, and no record, if it is in none.
create or replace function onceq.read_tagged(
    p_registrant integer, p_epoch bigint, p_queue text, p_eid uuid, p_tag bytea
) returns setof onceq.element
language plpgsql volatile as $$
declare
    q integer := onceq.begin_tagged(p_registrant, p_epoch, p_queue, p_tag);
    e onceq.element;
begin
    select * into e from onceq.read_element(p_eid);
    if e.seq is not null then
        perform onceq.record_operation(p_registrant, q, 'read', e.eid, p_tag, e.body);
        return next e;
    end if;
end $$;

-- Kills an element, tagged with the registration of a queue: what is KILLED is recorded, with a copy if it was there.
-- p_timeout_s bounds the wait for the registrant, and that for the element.
create or replace function onceq.kill_tagged(
    p_registrant integer, p_epoch bigint, p_queue text, p_eid uuid, p_tag bytea, p_timeout_s double precision
) returns text
language plpgsql volatile set lock_timeout = 0 as $$
declare
    wait_s double precision := onceq.patience(p_timeout_s);
    q integer := onceq.begin_tagged(p_registrant, p_epoch, p_queue, p_tag, wait_s);
    copy bytea := (select body from onceq.element where eid = p_eid);
    answer text := onceq.kill(p_eid, wait_s);
begin
    perform onceq.record_operation(p_registrant, q, 'kill', p_eid, p_tag, copy) where answer = 'KILLED';
    return answer;
end $$;

-- Takes a claimed element into the caller's transaction, tagged: see `take`. The record is part of that transaction.
create or replace function onceq.take_tagged(
    p_registrant integer, p_epoch bigint, p_queue text, p_tag bytea, p_seq bigint, p_incarnation bigint
) returns bigint
language plpgsql volatile as $$
declare
    q integer := onceq.begin_tagged(p_registrant, p_epoch, p_queue, p_tag);
    taken bigint := onceq.take(p_seq, p_incarnation);
begin
    perform onceq.record_operation(p_registrant, q, 'dequeue', e.eid, p_tag, e.body)
        from onceq.element e where e.seq = p_seq;
    return taken;
end $$;

-- Dequeues an element that owes no reply, outside any transaction: it is gone when this returns. The next of
-- the queue, or by eid; tagged if a registrant is given; no row if there is none. p_sleep: it falls
-- asleep, or stays so, and then looks; it wakes when it gets something.
create or replace function onceq.dequeue(
    p_queue text, p_eid uuid, p_registrant integer, p_epoch bigint, p_tag bytea,
    p_sleep boolean default false
) returns setof onceq.element
language plpgsql volatile as $$
declare
    q onceq.queue := onceq.find_queue(p_queue);
    e onceq.element;
    mine bigint := nextval('onceq.incarnation_seq');
begin
    perform onceq.be_durable();
    if p_registrant is not null then
        perform onceq.begin_tagged(p_registrant, p_epoch, p_queue, p_tag);
    end if;
    if current_setting('onceq_setting.readable', true) is distinct from 'on' then  -- once a session
        perform onceq.drop_unreadable();
        perform set_config('onceq_setting.readable', 'on', false);
    end if;
    perform onceq.dequeuer_falls_asleep(q.queue_id) where p_sleep;
    if p_eid is null then
        select * into e from onceq.claim(mine, q.queue_id, 1, (mine % 2)::integer, true);
    else
        select * into e from onceq.claim_eid(mine, q.queue_id, p_eid);
    end if;
    if e.seq is null then
        return;
    elsif e.reply_queue_id is not null then
        raise exception 'element % owes a reply: dequeue it inside a transaction and reply, or serve it',
            e.eid using errcode = 'OQ011';
    end if;
    perform onceq.dequeuer_wakes() where p_sleep;
    perform onceq.conclude_one(e.seq, null, 'dequeued');
    if p_registrant is not null then
        perform onceq.record_operation(p_registrant, q.queue_id, 'dequeue', e.eid, p_tag, e.body);
    end if;
    return next e;
end $$;

-- The copy of the element of a registrant's last operation on a queue, even if dequeued since. The epoch is of the
-- same snapshot, so it waits for no operation that is under way: what has committed last is the last.
create or replace function onceq.read_last(p_registrant integer, p_epoch bigint, p_queue text)
returns table (kind text, eid uuid, tag bytea, body bytea)
language plpgsql volatile as $$
declare q onceq.queue := onceq.find_queue(p_queue);
begin
    return query select r.kind, r.eid, r.tag, r.body from onceq.registration r
        join onceq.registrant w on w.registrant_id = r.registrant_id and w.epoch = p_epoch
        where r.registrant_id = p_registrant and r.queue_id = q.queue_id
        order by r.registration_id desc limit 1;
    if not found then
        perform onceq.check_epoch(p_registrant, p_epoch);
    end if;
end $$;
