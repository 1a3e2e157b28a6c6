-- What a queue holds itself for an operator, instead of failing it (spec G3, Q4; ADR 41).
-- Tables: element (written), queue (read). Locks: elements by seq.
--
-- It has not failed: it owes its reply still, has its rid, and is a request or a datagram, in lane 12 of its own queue,
-- where no claim looks. An operator has it run again, as itself, or gives it up: then it fails. A kill and its expiry
-- end it as they end what waits. `turn` is when it expires, so that those that have are the first of their lane.

-- Holds a claimed element, whose abort was counted, in its queue. The caller holds the row's lock.
create or replace function onceq.hold_element(e onceq.element, p_code text, p_error text) returns void
language plpgsql volatile as $$
begin
    update onceq.element set
        claimed_by = null, aborts = e.aborts, faults = e.faults, lane = 12 /* held */, together = null, not_before = null,
        turn = coalesce(onceq.turn_at(e.expires_at), 9223372036854775807), code = p_code, error = p_error
        where seq = e.seq;
    perform onceq.ring_suspects() where e.lane = 11 /* suspect */;
end $$;

-- Locks an element that its queue holds; all null if there is none of this eid. One whose time is over expires here,
-- and what: 'expired'; else 'held', or 'not_held'.
create or replace function onceq.lock_held(p_eid uuid, out e onceq.element, out what text)
language plpgsql volatile as $$
begin
    perform onceq.be_durable();
    select x.* into e from onceq.element x
        where x.eid = p_eid and x.lane = 12 /* held */ and x.role in ('request', 'datagram') for update;
    what := case when e.seq is null then 'not_held' when e.expires_at <= onceq.now() then 'expired' else 'held' end;
    perform onceq.expire_element(e) where what = 'expired';
end $$;

-- Has what is held run again, as itself: its aborts are counted anew. Returns 'retried', 'expired' or 'not_held'.
create or replace function onceq.retry_held(p_eid uuid) returns text
language plpgsql volatile as $$
declare found record;
begin
    select * into found from onceq.lock_held(p_eid);
    if found.what <> 'held' then
        return found.what;
    end if;
    update onceq.element set lane = 10 /* due */, aborts = 0, faults = 0, not_before = onceq.now(), turn = onceq.turn_at(onceq.now())
        where seq = (found.e).seq;
    perform onceq.queue_bell((found.e).queue_id, false);
    return 'retried';
end $$;

-- Gives up what is held: it fails for good, to its queue's error queue, with its failure reply. Returns 'given_up', 'expired'
-- or 'not_held'.
create or replace function onceq.give_up_held(p_eid uuid) returns text
language plpgsql volatile as $$
declare
    found record;
    error_id integer;
begin
    select * into found from onceq.lock_held(p_eid);
    if found.what <> 'held' then
        return found.what;
    end if;
    select error_queue_id into error_id from onceq.queue where queue_id = (found.e).queue_id;
    perform onceq.fail_element(found.e, (found.e).code, (found.e).error, null, error_id);
    return 'given_up';
end $$;

-- Expires what a queue holds whose time is over, up to 100 at a time: no claim will ever look at it.
create or replace function onceq.expire_held(p_queue_id integer) returns void
language plpgsql volatile
set enable_seqscan = off set enable_bitmapscan = off set enable_sort = off as $$
declare e onceq.element;
begin
    for e in select x.* from onceq.element x where x.queue_id = p_queue_id and x.lane = 12 /* held */
            and x.turn <= onceq.turn_at(onceq.now()) and x.role in ('request', 'datagram') and x.expires_at <= onceq.now()
            order by x.turn limit 100 for update skip locked loop
        perform onceq.expire_element(e);
    end loop;
end $$;
