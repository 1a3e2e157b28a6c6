-- The circuit breaker of a queue: when the environment fails again and again, nothing is dequeued for a while (spec Q4, ADR 41).
-- Tables: breaker, queue (written), history (read). Locks: the breaker's (advisory, oid of breaker and the queue) and the
-- queue's row, both tried and never waited for.
--
-- Only faults pay for it: whether something was done between two of them is looked up in history when there is a fault.
-- A claim tests `paused_until`, which is null in a queue that is well. It is never the operator's stop (dequeue_started).

-- Counts a fault of the environment that undid an execution of this element. After 10, with nothing done between, its queue
-- is paused for a second; after that each fault, with nothing done between, pauses it for twice as long, up to a minute. What began before
-- a pause and fails during it does not count. Faults that are found in one transaction, or at the same moment, count as one.
create or replace function onceq.note_fault(p_queue_id integer, p_seq bigint) returns void
language plpgsql volatile
set enable_seqscan = off set enable_bitmapscan = off as $$
declare
    b onceq.breaker;
    moment timestamptz := onceq.now();
    this bigint := pg_current_xact_id()::text::bigint;
begin
    if current_setting('transaction_isolation') <> 'read committed'
            or not pg_try_advisory_xact_lock('onceq.breaker'::regclass::oid::integer, p_queue_id) then
        return;
    end if;
    select * into b from onceq.breaker where queue_id = p_queue_id;
    if b.queue_id is null or exists (select from onceq.history h where h.queue_id = p_queue_id
            and h.outcome in ('done', 'dequeued') and h.finished_at > b.since) then
        b.since := moment; b.faults := 0; b.pause_s := 0; b.tripped_on := null;
    elsif b.counted_in = this or exists (select from onceq.queue q where q.queue_id = p_queue_id and q.paused_until > moment) then
        return;
    end if;
    b.faults := least(b.faults, 1000000) + 1;
    if b.pause_s > 0 or b.faults >= 10 then
        perform from onceq.queue q where q.queue_id = p_queue_id for no key update skip locked;
        if found then
            b.pause_s := least(greatest(2 * b.pause_s, 1), 60);
            b.tripped_on := p_seq;
            update onceq.queue set paused_until = moment + make_interval(secs => b.pause_s) where queue_id = p_queue_id;
        end if;
    end if;
    insert into onceq.breaker values (p_queue_id, b.since, b.faults, b.pause_s, b.tripped_on, this)
        on conflict (queue_id) do update set since = b.since, faults = b.faults, pause_s = b.pause_s,
            tripped_on = b.tripped_on, counted_in = this;
end $$;

-- The pause of a queue that the last abort of this element began, while it lasts.
create or replace function onceq.find_pause(p_queue_id integer, p_seq bigint) returns table (faults integer, pause_s integer)
language sql volatile as $$
    select b.faults, b.pause_s from onceq.breaker b join onceq.queue q on q.queue_id = b.queue_id
        where b.queue_id = p_queue_id and b.tripped_on = p_seq and q.paused_until > onceq.now()
$$;

-- Forgets a pause that is over: claims are plain again.
create or replace function onceq.end_pause(p_queue_id integer) returns void
language sql volatile as $$
    update onceq.queue set paused_until = null where queue_id in (select q.queue_id from onceq.queue q
        where q.queue_id = p_queue_id and q.paused_until <= onceq.now() for no key update skip locked)
$$;

-- Ends a pause, and what was counted: an operator has started the queue.
create or replace function onceq.reset_breaker(p_queue_id integer) returns void
language plpgsql volatile as $$
begin
    update onceq.queue set paused_until = null where queue_id = p_queue_id and paused_until is not null;
    delete from onceq.breaker where queue_id = p_queue_id;
end $$;
