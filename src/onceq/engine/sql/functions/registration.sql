-- Registrations and tagged operations (BHM90 4.2, 4.3; spec Q2, Q5).
-- Tables: registrant, registration, element, history, dequeuer (written), queue (read). Locks: the registrant's anchor
-- (advisory; exclusive in register and deregister), then the queue's in enqueue_with_tag (advisory, shared), then
-- elements by seq.

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
    perform onceq.be_durable();
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

-- Records a registrant's operation: kind, eid, tag and a copy of the element's body; nothing if its registration
-- is not stable.
create or replace function onceq.record_operation(
    p_registrant integer, p_queue_id integer, p_kind text, p_eid uuid, p_tag bytea, p_body bytea
) returns void
language plpgsql volatile as $$
declare
    added bigint;
    keeps boolean;
    tag_max integer;
begin
    select tag_bytes_max into tag_max from onceq.queue where queue_id = p_queue_id;
    if octet_length(p_tag) > tag_max then
        raise exception 'the tag has % bytes; at most % are taken', octet_length(p_tag), tag_max
            using errcode = 'OQ005';
    end if;
    select stable into keeps from onceq.registration
        where registrant_id = p_registrant and queue_id = p_queue_id
        order by registration_id desc limit 1;
    if keeps is null then
        raise exception 'registrant % is not registered with this queue', p_registrant
            using errcode = 'OQ011';
    end if;
    if keeps then
        insert into onceq.registration (registrant_id, queue_id, kind, eid, tag, body)
            values (p_registrant, p_queue_id, p_kind, p_eid, p_tag, p_body)
            returning registration_id into added;
        delete from onceq.registration where registrant_id = p_registrant
            and queue_id = p_queue_id and registration_id < added;
    end if;
end $$;

-- Enqueues, tagged: the element and its record are one transaction.
create or replace function onceq.enqueue_with_tag(
    p_registrant integer, p_epoch bigint, p_queue text, p_body bytea, p_tag bytea,
    p_own_transaction boolean, out eid uuid, out bell text
)
language plpgsql volatile as $$
declare q onceq.queue;
begin
    perform onceq.check_epoch(p_registrant, p_epoch);
    select x.eid, x.bell into eid, bell from onceq.enqueue(p_queue, p_body, null, 4::smallint, null, null,
        null, null, null, p_own_transaction) x;
    q := onceq.find_queue(p_queue);
    perform onceq.record_operation(p_registrant, q.queue_id, 'enqueue', eid, p_tag, p_body);
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
        perform onceq.check_epoch(p_registrant, p_epoch);
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

-- The copy of the element of a registrant's last operation on a queue, even if dequeued since.
create or replace function onceq.read_last(p_registrant integer, p_epoch bigint, p_queue text)
returns table (kind text, eid uuid, tag bytea, body bytea)
language plpgsql volatile as $$
declare q onceq.queue := onceq.find_queue(p_queue);
begin
    perform onceq.check_epoch(p_registrant, p_epoch);
    return query select r.kind, r.eid, r.tag, r.body from onceq.registration r
        where r.registrant_id = p_registrant and r.queue_id = q.queue_id
        order by r.registration_id desc limit 1;
end $$;
