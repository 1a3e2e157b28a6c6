-- What one session of a process sees for all that sleep there (ADR 19): the dead, what can be claimed,
-- and when the next element is due.
-- Tables: queue, element, periodic (read), and those of takeover.sql and cursor.sql. Locks: theirs.

-- Takes over from the missing, moves the low-water marks (p_value, p_holders, value, holders: see sweep), and
-- looks into the process's queues. missing: as take_over returns it; numbers: of these names, 0 if there is no
-- such queue; ready: whether a claim would find something now; stopped: whether the queue is stopped for
-- dequeue; due_s: in how many seconds the next element is due; ticks: whether a periodic request is. p_everything: also below the marks. p_tidy:
-- ends what a handler has left in this session.
create or replace function onceq.survey(
    p_process uuid, p_queues text[], p_everything boolean, p_tidy boolean, p_value bigint, p_holders text[],
    out missing integer, out numbers integer[], out ready boolean[], out stopped boolean[],
    out due_s double precision, out value bigint, out holders text[], out ticks boolean
)
language plpgsql volatile
set enable_seqscan = off set enable_bitmapscan = off set enable_sort = off
set plan_cache_mode = force_generic_plan as $$
begin
    numbers := onceq.numbers_of(p_queues);
    if p_value = pg_sequence_last_value('onceq.element_seq_seq') and p_holders = '{}' then  -- nothing new
        perform onceq.advance(id, p_value), onceq.expire_held(id), onceq.end_pause(id) from unnest(numbers) id;
        value := p_value;
        holders := '{}';
    else
        select s.value, s.holders into value, holders from onceq.sweep(numbers, p_value, p_holders) s;
        perform onceq.be_durable();
    end if;
    missing := onceq.take_over(p_process);
    perform onceq.adopt() where random() < 0.5;  -- a process is here once a second
    perform onceq.tidy_session() where p_tidy;
    ticks := onceq.is_tick_due() or exists (select from onceq.due_retention());
    select array_agg(onceq.is_ready(x.id, p_everything) order by x.n), min(onceq.due_in(x.id)),
            array_agg(exists (select from onceq.queue q where q.queue_id = x.id and not q.dequeue_started) order by x.n)
        into ready, due_s, stopped from unnest(numbers) with ordinality x (id, n);
end $$;

-- The numbers of queues by name, in that order; 0 for one that does not exist.
create or replace function onceq.numbers_of(p_queues text[]) returns integer[]
language plpgsql stable as $$
begin
    return array(select coalesce((select q.queue_id from onceq.queue q
        where q.name = x.name collate "C" and q.destroyed_at is null), 0)
        from unnest(p_queues) with ordinality x (name, n) order by x.n);
end $$;

-- Whether a claim from this queue would find something now, as a plain read shows it: what another
-- transaction is just claiming still counts. For suspects, whether one may run.
create or replace function onceq.is_ready(p_queue_id integer, p_everything boolean default false) returns boolean
language plpgsql volatile as $$
declare
    q onceq.queue;
    at_lane smallint;
    low bigint; latest bigint;
begin
    select * into q from onceq.queue where queue_id = p_queue_id and dequeue_started and kind <> 'reply'
        and (paused_until is null or paused_until <= onceq.now());
    if q.ordered and onceq.is_held_up(p_queue_id) then
        return false;
    end if;
    foreach at_lane in array coalesce(q.lanes, '{}') || '{10,11}'::smallint[] /* due, suspect */ loop
        low := case when not p_everything and at_lane < 10 /* due */ then pg_sequence_last_value(q.low[at_lane + 1]) end;
        latest := case when at_lane >= 10 /* due */ then onceq.turn_at(onceq.now()) else 9223372036854775807 end;
        if exists (select from onceq.element e where e.queue_id = q.queue_id and e.lane = at_lane
                and e.turn >= coalesce(low, 0) and e.turn <= latest and e.claimed_by is null) then
            return at_lane <> 11 /* suspect */ or onceq.may_claim_suspect(0, p_queue_id);
        end if;
    end loop;
    return false;
end $$;

-- In how many seconds the next element of a queue is due, or its pause is over; null if none waits for its time.
create or replace function onceq.due_in(p_queue_id integer) returns double precision
language plpgsql volatile as $$
declare
    now bigint := onceq.turn_at(onceq.now());
    next bigint;
begin
    select onceq.turn_at(q.paused_until) into next from onceq.queue q
        where q.queue_id = p_queue_id and q.dequeue_started and onceq.turn_at(q.paused_until) > now;
    if next is not null then
        return (next - now) / 1000000.0;
    end if;
    select min(x.turn) into next from onceq.queue q, unnest('{10,11}'::smallint[] /* due, suspect */) l, lateral (
            select e.turn from onceq.element e where e.queue_id = q.queue_id and e.lane = l and e.turn > now
              and e.claimed_by is null order by e.turn limit 1) x
        where q.queue_id = p_queue_id and q.dequeue_started and q.kind <> 'reply';
    return (next - now) / 1000000.0;
end $$;

-- The same, for a queue by its name; an error if there is none.
create or replace function onceq.next_due(p_queue text) returns double precision
language sql volatile as $$ select onceq.due_in((onceq.find_queue(p_queue)).queue_id) $$;

-- Wakes a session that has got something from this queue. Whoever wakes rings the next one if there is
-- more, so that a burst that rang one wakes as many as it needs: its bell, as a row without a seq.
create or replace function onceq.wake_up_for(p_slot integer, p_asleep integer[], p_queue_id integer)
returns setof onceq.element
language plpgsql volatile as $$
declare
    e onceq.element;
    asleep integer[] := onceq.wake_up(p_slot, p_asleep);  -- assigned, not performed: no statement
begin
    if pg_try_advisory_lock('onceq.element_ready'::regclass::oid::integer, p_queue_id) then
        if pg_advisory_unlock('onceq.element_ready'::regclass::oid::integer, p_queue_id) then
            return;
        end if;
    elsif onceq.is_ready(p_queue_id) then
        e.rid := onceq.server_bell(p_queue_id, true);
        if e.rid is not null then
            return next e;
        end if;
    end if;
end $$;
