-- Replies received in the client's own transaction (spec C15): begun, taken, counted, held.
-- Tables: element, registration, queue; registrant in redrive_reply. Locks: the registrant's anchor
-- (advisory, shared; exclusive in redrive_reply), then the reply's row.
-- For a reply, claimed_by is the run of the database in which its processing was begun, and faults
-- counts how often it was begun without committing.

-- The run of the database: a different number after each start, and after each crash.
create or replace function onceq.database_run() returns bigint
language sql volatile as $$
    select (extract(epoch from pg_postmaster_start_time()) * 1000000)::bigint + onceq.current_life()
$$;

-- The reply to a rid, locked; null if there is none, or if it was acknowledged and is only kept.
create or replace function onceq.lock_reply(p_registrant integer, p_rid text) returns onceq.element
language plpgsql volatile as $$
declare e onceq.element;
begin
    select * into e from onceq.element
        where registrant_id = p_registrant and rid = p_rid collate "C" and role = 'reply' and lane <> 13 /* kept */
        for update;
    return e;
end $$;

-- Notes that the processing of a reply begins, before a transaction of the client takes it. An attempt
-- that was begun and has not ended in any other way died with its client, and is charged; one that a crash
-- or stop of the database has cut short is not (G7). False: that was one too many, and it is held.
-- A crash may undo the note: then nobody is to be charged either.
create or replace function onceq.begin_reply(
    p_registrant integer, p_epoch bigint, p_rid text, p_s_rid text, p_s_no bigint
) returns boolean
language plpgsql volatile as $$
declare
    e onceq.element;
    run bigint;
begin
    perform onceq.need_not_last();
    run := onceq.database_run();
    perform onceq.check_epoch(p_registrant, p_epoch);
    e := onceq.lock_reply(p_registrant, p_rid);
    if e.seq is null then
        raise exception 'there is no reply to "%"', p_rid using errcode = 'OQ011';
    end if;
    if e.claimed_by = run then
        if onceq.abort_reply(e, p_s_rid, p_s_no) = 'failed' then
            return false;
        end if;
    end if;
    update onceq.element set claimed_by = run where seq = e.seq;
    return true;
end $$;

-- Takes a reply into the caller's transaction: it is received, with this checkpoint, if, and only
-- if, that commits. The anchor's lock keeps a later life from connecting before it has ended.
create or replace function onceq.take_reply(
    p_registrant integer, p_epoch bigint, p_rid text, p_ckpt bytea, p_s_rid text, p_s_no bigint
) returns bigint
language plpgsql volatile as $$
declare e onceq.element;
begin
    perform onceq.be_durable();
    perform onceq.check_epoch(p_registrant, p_epoch);
    e := onceq.lock_reply(p_registrant, p_rid);
    if e.claimed_by is null then
        raise exception 'nobody has begun to process a reply to "%"', p_rid using errcode = 'OQ011';
    end if;
    perform onceq.record_receive(p_registrant, p_rid, e.send_no, e.eid, p_ckpt, p_s_rid, p_s_no);
    delete from onceq.element where seq = e.seq;
    return pg_current_xact_id()::text::bigint;
end $$;

-- What became of the transaction that took a reply: 'running'; 'lost' (it committed, the reply is
-- gone); otherwise it is an abort: 'returned', or 'failed' if it was one too many. Without
-- p_counts nobody is charged: the reply was begun, and never taken.
create or replace function onceq.settle_reply(
    p_registrant integer, p_epoch bigint, p_rid text, p_xid bigint, p_counts boolean,
    p_s_rid text, p_s_no bigint
) returns text
language plpgsql volatile as $$
declare e onceq.element;
begin
    if pg_xact_status(p_xid::text::xid8) = 'in progress' then
        return 'running';
    end if;
    perform onceq.check_epoch(p_registrant, p_epoch);
    e := onceq.lock_reply(p_registrant, p_rid);
    if e.seq is null then
        return 'lost';
    elsif p_counts then
        return onceq.abort_reply(e, p_s_rid, p_s_no);
    end if;
    update onceq.element set claimed_by = null where seq = e.seq;
    return 'returned';
end $$;

-- Counts an abort of a reply's processing. The n-th, n being the abort limit of its queue, moves it
-- to that queue's error queue: the client no longer has it, and goes on as if it had received it.
create or replace function onceq.abort_reply(e onceq.element, p_s_rid text, p_s_no bigint) returns text
language plpgsql volatile as $$
declare q onceq.queue;
begin
    perform onceq.be_durable();
    select * into q from onceq.queue where queue_id = e.queue_id;
    e.faults := e.faults + 1;
    if e.faults < q.abort_limit then
        update onceq.element set faults = e.faults, claimed_by = null where seq = e.seq;
        return 'returned';
    end if;
    if q.error_queue_id is null then
        insert into onceq.queue (name, kind) values (q.name || '.error', 'error')
            returning queue_id into q.error_queue_id;
        update onceq.queue set error_queue_id = q.error_queue_id where queue_id = q.queue_id;
    end if;
    perform onceq.record_receive(e.registrant_id, e.rid, e.send_no, e.eid, null, p_s_rid, p_s_no);
    delete from onceq.element where seq = e.seq;
    e.role := 'failed'; e.lane := 12 /* held */; e.claimed_by := null; e.queue_id := q.error_queue_id;
    e.failed_of := e.registrant_id; e.registrant_id := null;
    insert into onceq.element overriding system value values (e.*);
    return 'failed';
end $$;

-- Gives a held reply back to its client, as itself: a reply owes no reply. The client's present life is fenced,
-- and the next one finds the reply outstanding. Nulls: no reply with this eid is held.
create or replace function onceq.redrive_reply(p_eid uuid, out eid uuid, out rid text)
language plpgsql volatile as $$
declare
    e onceq.element;
    who integer;
begin
    select x.failed_of into who from onceq.element x
        where x.eid = p_eid and x.role = 'failed' and x.outcome is not null;
    if who is null then
        return;
    end if;
    perform pg_advisory_xact_lock('onceq.registrant'::regclass::oid::integer, who);
    delete from onceq.element x where x.eid = p_eid and x.role = 'failed' returning x.* into e;
    if e.seq is null then
        return;
    end if;
    update onceq.registrant r set epoch = r.epoch + 1 where r.registrant_id = who
        returning r.reply_queue_id into e.queue_id;
    update onceq.registration r set rid = null, tag = null
        where r.registrant_id = who and r.queue_id = e.queue_id and r.rid = e.rid;
    e.role := 'reply'; e.lane := 0 /* reply */; e.faults := 0; e.failed_of := null; e.registrant_id := who;
    insert into onceq.element overriding system value values (e.*);
    perform onceq.ring_clerk(who);
    eid := e.eid;
    rid := e.rid;
end $$;
