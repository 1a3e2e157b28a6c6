-- Limits of a queue in depth and bytes, at which it takes no more (spec Q13, ADR 35).
-- Tables: limits, queue (written), element (read). Locks: none.
--
-- What is in a queue is measured, not counted: a counter would be a row that all senders and servers lock. A measurement
-- is good for 20 times as long as it took, so that measuring takes at most about a twentieth of the time; what comes
-- meanwhile may go over the limit. One that counted few is not kept at all: there the limit is kept to what is committed.
-- Whoever reads `queue.limited` looks here only where it is true.
--
-- A measurement is kept in three UNLOGGED sequences, fill_QUEUE_0 to _2: until when it is good, in microseconds since
-- 1970; how many elements; how many bytes. They are changed in place: what a sender has measured stays, even if it
-- is refused, and nobody waits for its transaction. If a crash takes them, it is measured at each send.

-- Sets the limits of a queue; null: none. A measurement that is kept stays: it says nothing of limits.
create or replace function onceq.limit_queue(p_queue_id integer, p_depth bigint, p_bytes bigint) returns void
language plpgsql volatile as $$
begin
    update onceq.queue set limited = coalesce(p_depth, p_bytes) is not null where queue_id = p_queue_id;  -- one at a time
    delete from onceq.limits where queue_id = p_queue_id;
    insert into onceq.limits (queue_id, depth, bytes)
        select p_queue_id, p_depth, p_bytes where coalesce(p_depth, p_bytes) is not null;
    perform onceq.make_fill_marks(p_queue_id) where coalesce(p_depth, p_bytes) is not null;
end $$;

-- The sequences of a queue's measurement, in their order; nulls where there are none.
create or replace function onceq.fill_marks(p_queue_id integer) returns regclass[]
language sql stable as $$
    select array(select to_regclass(format('onceq.fill_%s_%s', p_queue_id, place))
        from generate_series(0, 2) place order by place)
$$;

-- Makes those that there are not.
create or replace function onceq.make_fill_marks(p_queue_id integer) returns void
language sql volatile as $$
    select onceq.make_sequence('fill_' || p_queue_id || '_' || (place - 1), 0)
    from unnest(onceq.fill_marks(p_queue_id)) with ordinality x (mark, place) where mark is null
$$;

-- How many elements are in a queue, with how many bytes, by a measurement that is good; good_s: for how long still,
-- 0 if each look measures. While one measures, others use the one before, unless that is long past.
create or replace function onceq.measure_queue(
    p_queue_id integer, out depth bigint, out bytes bigint, out good_s double precision
)
language plpgsql volatile
set enable_seqscan = off set plan_cache_mode = force_generic_plan as $$
declare
    marks regclass[] := onceq.fill_marks(p_queue_id);
    longest_us constant bigint := 10000000;
    began bigint := onceq.turn_at(clock_timestamp());
    ended bigint;
    left_us bigint;
begin
    if onceq.is_readable(marks) then
        left_us := pg_sequence_last_value(marks[1]) - began;
        depth := pg_sequence_last_value(marks[2]);
        bytes := pg_sequence_last_value(marks[3]);
    else
        marks := '{}';
    end if;
    if left_us between 1 and longest_us and depth is not null and bytes is not null then  -- no longer: a clock was set back
        good_s := left_us / 1000000.0;
        return;
    elsif left_us between -longest_us and 0 then
        perform setval(marks[1], began + 1000000);
    end if;
    select count(*), coalesce(sum(octet_length(e.body)), 0) into depth, bytes
        from onceq.element e where e.queue_id = p_queue_id;
    ended := onceq.turn_at(clock_timestamp());
    good_s := 0;
    -- an older snapshot's is not for others
    if depth > 100 and marks[3] is not null and current_setting('transaction_isolation') = 'read committed' then
        good_s := least(20 * (ended - began), longest_us) / 1000000.0;
        perform setval(marks[2], depth), setval(marks[3], bytes);
    end if;
    perform setval(marks[1], case when good_s > 0 then ended + (good_s * 1000000)::bigint else 0 end)
        where good_s > 0 or left_us between -longest_us and 0;
end $$;

-- Why a queue with limits does not take so many elements more, of so many bytes together: null if it does.
-- fits: false if one element would not even if it were empty. good_s: for how long the answer stays like this: for ever
-- if so many do not fit together.
create or replace function onceq.why_full(
    p_queue_id integer, p_n bigint, p_bytes bigint, out why text, out fits boolean, out good_s double precision
)
language plpgsql volatile as $$
declare
    most record;
    there record;
begin
    select r.depth, r.bytes into most from onceq.limits r where r.queue_id = p_queue_id;
    fits := p_n > 1 or coalesce(p_bytes <= most.bytes, true);
    if p_n > 1 and (p_n > most.depth or p_bytes > most.bytes) then
        good_s := 'infinity';
        why := format('%s elements of %s bytes never fit together', p_n, p_bytes);
    elsif p_n > 0 and fits then
        select * into there from onceq.measure_queue(p_queue_id);
        good_s := there.good_s;
        why := case when there.depth + p_n > most.depth
                then format('it has %s element(s), with %s more, and takes at most %s', there.depth, p_n, most.depth)
            when there.bytes + p_bytes > most.bytes
                then format('it has %s bytes, with %s more, and takes at most %s', there.bytes, p_bytes, most.bytes) end;
    elsif p_n > 0 then
        why := format('a body of %s bytes never fits: it takes at most %s altogether', p_bytes, most.bytes);
    end if;
end $$;

-- Whether a queue with limits takes so many elements more, of so many bytes together.
create or replace function onceq.has_room(p_queue_id integer, p_n bigint, p_bytes bigint) returns boolean
language sql volatile as $$ select w.why is null from onceq.why_full(p_queue_id, p_n, p_bytes) w $$;

-- The same for these bodies.
create or replace function onceq.has_room(p_queue_id integer, p_bodies bytea[]) returns boolean
language sql volatile as $$
    select onceq.has_room(p_queue_id, count(*), coalesce(sum(octet_length(b)), 0)::bigint) from unnest(p_bodies) b
$$;

-- Refuses so many elements, of so many bytes together, if the queue has limits and does not take them now. Else true.
create or replace function onceq.need_room(p_queue_id integer, p_n bigint, p_bytes bigint) returns boolean
language plpgsql volatile as $$
declare x record;
begin
    select q.name, w.why, w.fits, w.good_s into x from onceq.queue q
        cross join lateral onceq.why_full(q.queue_id, p_n, p_bytes) w where q.queue_id = p_queue_id and q.limited;
    if not x.fits then
        raise exception 'queue "%": %', x.name, x.why using errcode = 'OQ005',
            hint = 'raise the limit of the queue, or send less';
    elsif x.why is not null then
        raise exception 'queue "%" is full: %', x.name, x.why using errcode = 'OQ017',
            detail = greatest(x.good_s, 0.05)::text,
            hint = case when x.good_s = 'infinity' then 'nothing happened: send fewer at once'
                else 'nothing happened: send again when something has left the queue' end;
    end if;
    return true;
end $$;

-- The same for these bodies.
create or replace function onceq.need_room(p_queue_id integer, p_bodies bytea[]) returns boolean
language sql volatile as $$
    select onceq.need_room(p_queue_id, count(*), coalesce(sum(octet_length(b)), 0)::bigint) from unnest(p_bodies) b
$$;

-- Refuses requests of a registrant whose rids are not known yet, as `need_room` does: all, if they do not fit together.
create or replace function onceq.need_room_for_new(
    p_queue_id integer, p_registrant integer, p_rids text[], p_bodies bytea[]
) returns boolean
language plpgsql volatile as $$
begin
    return onceq.need_room(p_queue_id, array(select x.body from unnest(p_rids, p_bodies) x (rid, body)
        where (select b.state from onceq.sent_before(p_registrant, x.rid, sha256(x.body)) b) is null));
end $$;

-- The same for rows that are enqueued in bulk; without a registrant, they are known by their eids.
create or replace function onceq.need_room_for_rows(
    p_queue_id integer, p_registrant integer, p_rids text[], p_ids uuid[], p_bodies bytea[]
) returns boolean
language sql volatile
set enable_seqscan = off set enable_hashjoin = off as $$
    select onceq.need_room(p_queue_id, array(select x.body from unnest(p_rids, p_ids, p_bodies) x (rid, id, body)
        where not exists (select from onceq.element e where e.registrant_id = p_registrant and e.rid = x.rid collate "C")
          and not exists (select from onceq.history h where h.registrant_id = p_registrant and h.rid = x.rid collate "C")
          and not exists (select from onceq.element e where e.eid = x.id and p_registrant is null)
          and not exists (select from onceq.history h where h.eid = x.id and p_registrant is null)
          and x.rid not in (select * from onceq.spent_of(p_registrant, p_rids))))
$$;
