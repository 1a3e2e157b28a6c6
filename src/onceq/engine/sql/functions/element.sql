-- Elements outside a session: enqueue, read, peek, take, kill, redrive, settle (spec Q2, Q3, Q6).
-- Tables: element, history, taken, redrive, repository (written), queue, server (read). Locks: the registrant's anchor
-- (advisory; shared in cancel_request, exclusive in redrive, for a reply); the queue's (advisory, shared) in an
-- enqueue, and in redrive, which has locked the element by then; elements by seq.

-- Enqueues an element that owes no reply (C16). In the caller's transaction, or in one of its
-- own: then it is durable when this returns or, on a volatile queue, there until the database crashes.
create or replace function onceq.enqueue(
    p_queue text, p_body bytea, p_rid text, p_priority smallint, p_not_before timestamptz,
    p_expires_at timestamptz, p_correlation_id text, p_content_type text, p_properties jsonb,
    p_own_transaction boolean, out eid uuid, out bell text
)
language plpgsql volatile
set enable_seqscan = off set enable_hashjoin = off set plan_cache_mode = force_generic_plan as $$
declare
    id uuid := onceq.new_eid();
    at_lane smallint := case when p_not_before is null then 9 /* fresh */ - p_priority else 10 /* due */ end;
    is_volatile boolean; home integer; asked boolean;
begin
    perform onceq.be_durable();
    bell := onceq.check_moments(p_not_before, p_expires_at);
    for try in 1 .. 3 loop
        perform pg_advisory_xact_lock_shared('onceq.queue'::regclass::oid::integer, hashtext(p_queue));
        if current_setting('transaction_isolation') <> 'read committed' then
            perform onceq.hold_queue(p_queue);
        end if;
        insert into onceq.element (queue_id, lane, priority, role, rid, eid, correlation_id,
                enqueued_at, not_before, expires_at, content_type, properties, life, sha256, body)
            select q.queue_id, at_lane, p_priority,
                'datagram', coalesce(p_rid, id::text), id, p_correlation_id, onceq.now(), p_not_before,
                p_expires_at, p_content_type, p_properties,
                case when not q.durable then onceq.current_life() end, sha256(p_body), p_body
            from onceq.queue q
            where q.name = p_queue collate "C" and q.destroyed_at is null and q.enqueue_started
              and q.kind <> 'reply'
              and octet_length(p_body) <= q.body_bytes_max
              and (at_lane = any (q.lanes) or p_not_before is not null)
              and (not q.limited or asked)  -- for room
            returning element.eid, life is not null, onceq.queue_bell(queue_id, p_own_transaction)
            into eid, is_volatile, bell;
        exit when eid is not null;
        perform onceq.check_priority(p_priority);
        select o.queue_id, o.limited into home, asked from onceq.open_queue(p_queue, p_body) o;
        perform onceq.open_lane(home, at_lane);
        perform onceq.need_room(home, 1, octet_length(p_body)) where asked;
    end loop;
    if p_not_before is not null then
        perform onceq.check_priority(p_priority), onceq.refuse_delay(id);
        update onceq.element e set turn = onceq.turn_at(p_not_before) where e.eid = id;
    end if;
    if p_properties ? 'onceq_reports' then
        perform onceq.report_asked(id);
    end if;
    if is_volatile and p_own_transaction then
        perform set_config('synchronous_commit', 'off', true);
    end if;
end $$;

-- Enqueues many elements in one transaction, in the order given.
create or replace function onceq.enqueue_many(
    p_queue text, p_bodies bytea[], p_content_type text, p_own_transaction boolean, p_properties jsonb default null
) returns table (eid uuid, bell text)
language plpgsql volatile
set enable_seqscan = off set enable_hashjoin = off set plan_cache_mode = force_generic_plan as $$
declare
    q onceq.queue := onceq.open_queue(p_queue, (select b from unnest(p_bodies) b
        order by octet_length(b) desc limit 1));
begin
    if q.durable then
        perform onceq.be_durable();
    elsif p_own_transaction then
        perform set_config('synchronous_commit', 'off', true);
    end if;
    eid := case when q.limited and onceq.need_room(q.queue_id, p_bodies) then null end;
    return query insert into onceq.element (queue_id, lane, role, rid, eid, enqueued_at,
                content_type, properties, life, sha256, body)
            select q.queue_id, 5 /* usual */, 'datagram', s.id::text, s.id, onceq.now(), p_content_type, p_properties,
                case when not q.durable then onceq.current_life() end, sha256(s.body), s.body
            from (select onceq.new_eid() as id, body from unnest(p_bodies) body) s
            returning element.eid, null::text;
    eid := null;
    bell := onceq.queue_bell(q.queue_id, p_own_transaction);
    if bell is not null then
        return next;
    end if;
end $$;

-- Reads an element wherever it is, without dequeuing it; no row if it is in no queue.
create or replace function onceq.read_element(p_eid uuid) returns setof onceq.element
language sql stable as $$ select * from onceq.element where eid = p_eid $$;

-- The first elements of a queue that wait and are due, left as they are: of each lane the first, so
-- that what is not due, or held, is not read. It begins no life of the database: others would wait for its end.
create or replace function onceq.peek(p_queue text, p_n integer) returns setof onceq.element
language plpgsql stable
set enable_seqscan = off set enable_bitmapscan = off set plan_cache_mode = force_generic_plan as $$
declare
    q onceq.queue := onceq.find_queue(p_queue);
    now timestamptz := onceq.now();
    due bigint := onceq.turn_at(now);
    current bigint := coalesce((select life from onceq.life), 9223372036854775807);  -- after a crash none is left
begin
    return query select e.* from unnest('{0,1,2,3,4,5,6,7,8,9,10,11}'::smallint[] /* fresh, due, suspect */) l, lateral (
            select * from onceq.element x
            where x.queue_id = q.queue_id and x.lane = l and x.claimed_by is null and (l <= 9 /* fresh */ or x.turn <= due)
              and (x.expires_at is null or x.expires_at > now) and (x.life is null or x.life >= current)
            order by x.turn limit p_n) e
        order by e.lane, e.turn, e.seq limit p_n;
end $$;

-- Takes an element that this incarnation has claimed into the caller's transaction: it is
-- concluded if, and only if, that transaction commits. A kill still wins until then, and the
-- transaction then fails at its commit (G8). A rollback counts as an abort of the element.
create or replace function onceq.take(p_seq bigint, p_incarnation bigint) returns bigint
language plpgsql volatile as $$
begin
    perform onceq.need_read_committed('a dequeue inside a transaction needs READ COMMITTED');
    perform onceq.be_durable();
    perform setval(('onceq.started_' || slot)::regclass, p_seq) from onceq.server
        where incarnation = p_incarnation;
    if not exists (select from onceq.element where seq = p_seq and claimed_by = p_incarnation) then
        raise exception 'element % is no longer claimed', p_seq using errcode = 'OQ002';
    end if;
    insert into onceq.taken (seq, incarnation) values (p_seq, p_incarnation);
    return pg_current_xact_id()::text::bigint;
end $$;

-- Charges an abort to an element if the transaction that took it ended without concluding it. If it was
-- concluded, it is gone from the queue ('lost'); if the transaction may yet commit, it is left alone ('running').
create or replace function onceq.abort_taken(p_seq bigint, p_incarnation bigint, p_xid bigint)
returns text
language plpgsql volatile as $$
begin
    if pg_xact_status(p_xid::text::xid8) = 'in progress' then
        return 'running';
    end if;
    return onceq.abort(p_seq, p_incarnation, 'charge', 'rolled_back',
        'the transaction that dequeued it was rolled back');
end $$;

-- Gives the reply to an element taken in this transaction.
create or replace function onceq.reply_taken(
    p_seq bigint, p_incarnation bigint, p_reply bytea, p_content_type text
) returns boolean
language plpgsql volatile as $$
begin
    update onceq.taken set reply = p_reply, content_type = p_content_type, replied = true
        where seq = p_seq and incarnation = p_incarnation;
    if not found then
        raise exception 'element % was not dequeued in this transaction', p_seq using errcode = 'OQ011';
    end if;
    return true;
end $$;

-- The commit of a transaction that took elements: runs deferred, as its last act.
create or replace function onceq.conclude_taken() returns trigger
language plpgsql volatile as $$
declare
    e onceq.element;
    t onceq.taken;
begin
    delete from onceq.taken where seq = new.seq and incarnation = new.incarnation returning * into t;
    select * into e from onceq.element where seq = new.seq and claimed_by = new.incarnation for update;
    if e.seq is null then
        raise exception 'element % is no longer claimed', new.seq using errcode = 'OQ002';
    end if;
    if e.reply_queue_id is not null and not t.replied then
        raise exception 'element % owes a reply', e.eid using errcode = 'OQ011',
            hint = 'reply to it in the transaction that dequeued it';
    end if;
    perform onceq.conclude_one(e.seq, new.incarnation,
        case when t.replied then 'done' else 'dequeued' end::onceq.outcome, t.reply, t.content_type);
    return null;
end $$;
do $$ begin
    if not exists (select from pg_trigger where tgname = 'taken_concludes'
                   and tgrelid = 'onceq.taken'::regclass) then
        create constraint trigger taken_concludes after insert on onceq.taken
            deferrable initially deferred for each row execute function onceq.conclude_taken();
    end if;
end $$;

-- Kills an element (G8). The lock on its row is the decision (finding 8): the kill wins at once
-- against a handler that is running, and waits for a finish that has begun. KILLED leaves the cancelled reply and the history row in this
-- transaction (finding 2). p_timeout_s bounds the wait; past it an error says that nothing happened.
-- An element in the state of a Spark query counts as executed, and so does one that a relay has planned.
create or replace function onceq.kill(p_eid uuid, p_timeout_s double precision) returns text
language plpgsql volatile as $$
declare
    e onceq.element;
    was onceq.outcome;
begin
    perform onceq.be_durable();
    perform onceq.wait_at_most(p_timeout_s);
    select * into e from onceq.element where eid = p_eid and role in ('request', 'datagram') for update;
    if e.claimed_by is not null and onceq.spark_is_in_state(e) then
        return 'TOO_LATE';
    elsif exists (select from onceq.stream_relay r where r.claim = e.claimed_by) then
        return 'TOO_LATE';
    elsif e.seq is not null then
        perform onceq.name_another(e) where e.claimed_by is not null;
        perform onceq.conclude_one(e.seq, null, 'cancelled', p_code => 'killed',
            p_error => 'cancelled before it took effect');
        return 'KILLED';
    end if;
    select outcome into was from onceq.history where eid = p_eid order by finished_at desc limit 1;
    return case when was = 'cancelled' then 'KILLED' when was is not null then 'TOO_LATE'
                else 'NOT_FOUND' end;
end $$;

-- Cancels a request of a registrant by its rid, under the registrant's epoch.
create or replace function onceq.cancel_request(
    p_registrant integer, p_epoch bigint, p_rid text, p_timeout_s double precision
) returns text
language plpgsql volatile as $$
declare id uuid;
begin
    perform onceq.wait_at_most(p_timeout_s);
    perform onceq.check_epoch(p_registrant, p_epoch);
    select eid into id from onceq.element
        where registrant_id = p_registrant and rid = p_rid collate "C" and role = 'request';
    if id is null then
        select eid into id from onceq.history
            where rid = p_rid collate "C" and registrant_id = p_registrant
            order by finished_at desc limit 1;
    end if;
    return onceq.kill(id, p_timeout_s);
end $$;

-- Runs a failed request again (G3): as a new one, with a new rid and eid, correlated and linked with the old
-- one, that owes no reply, as the client has the failure reply. An element that owes no reply goes back as
-- itself, and a held reply goes back to its client. Either kind of element goes to the queue in which it
-- failed; if history no longer tells, to the only queue that has this error queue. Nulls: it is not held.
create or replace function onceq.redrive(p_eid uuid, out eid uuid, out rid text)
language plpgsql volatile as $$
declare
    e onceq.element;
    home integer;
    home_name text;
begin
    perform onceq.be_durable();
    select r.eid, r.rid into eid, rid from onceq.redrive_reply(p_eid) r;
    if eid is not null then
        return;
    end if;
    select x.* into e from onceq.element x where x.eid = p_eid and x.role = 'failed' for update;
    if e.seq is null then
        return;
    end if;
    select h.queue_id into home from onceq.history h
        where h.eid = p_eid and h.outcome = 'failed' order by h.finished_at desc limit 1;
    if home is null then
        select min(queue_id) into home from onceq.queue
            where error_queue_id = e.queue_id and destroyed_at is null having count(*) = 1;
    end if;
    -- The lock by which an enqueue keeps destroy_queue out: on the name, before the look.
    select name into home_name from onceq.queue where queue_id = home;
    perform pg_advisory_xact_lock_shared('onceq.queue'::regclass::oid::integer, hashtext(home_name));
    perform onceq.hold_queue(home_name) where current_setting('transaction_isolation') <> 'read committed';
    if not exists (select from onceq.queue where queue_id = home and destroyed_at is null) then
        raise exception 'the queue in which element % failed does not exist any more', p_eid
            using errcode = 'OQ003', hint = 'enqueue what it holds in another queue, or leave it here';
    end if;
    eid := e.eid;
    rid := e.rid;
    if e.reply_queue_id is not null then
        eid := onceq.new_eid();
        rid := eid::text;
        insert into onceq.redrive (old_eid, new_eid, new_rid) values (e.eid, eid, rid);
    end if;
    delete from onceq.element where seq = e.seq;
    insert into onceq.element (queue_id, lane, turn, priority, role, rid, eid, correlation_id, enqueued_at,
            not_before, content_type, properties, sha256, body)
        values (home, 10 /* due */, onceq.turn_at(onceq.now()), e.priority, 'datagram', rid, eid,
            case when e.reply_queue_id is null then e.correlation_id else e.eid::text end,
            onceq.now(), onceq.now(), e.content_type, e.properties, e.sha256, e.body);
    perform onceq.queue_bell(home, false);
end $$;

-- Gives the answer to a doubt a synchronous commit of its own (finding 9).
create or replace function onceq.settle() returns boolean
language plpgsql volatile as $$
begin
    perform onceq.be_durable();
    update onceq.repository set settled = settled + 1;
    return true;
end $$;
