-- Metrics (spec Q14): what has ended in the present day, and how the database fares. Read only.
-- Tables: history, attempt, element, queue, server, archive, archive_file (read). Locks: none.
--
-- A look reads history, by its index for each queue and outcome, and attempts by theirs, from where an earlier look has
-- settled: what is older costs nothing. All of it sees one snapshot.

-- The requests of all queues that ended after p_after, up to p_until: how many, by queue and outcome, by whether they
-- ended by p_soon, and by how long they waited and were served: the number of the first of p_bounds_us that is not
-- less, from 0; null: not known. In microseconds; 0 where a clock was set back meanwhile.
create or replace function onceq.count_finished(
    p_after timestamptz, p_until timestamptz, p_soon timestamptz, p_bounds_us bigint[]
) returns jsonb
language sql stable
set enable_seqscan = off set enable_bitmapscan = off set enable_sort = off as $$
    select coalesce(jsonb_agg(f), '[]') from (
        select q.name as queue, o.outcome, x.*
        from onceq.queue q cross join unnest(enum_range(null::onceq.outcome)) o (outcome)
        cross join lateral (  -- of each, by the index: no join may read more
            select coalesce(h.finished_at <= p_soon, false) as is_settled,
                   width_bucket(h.waited_us - 1, p_bounds_us) as waited,
                   width_bucket(h.served_us - 1, p_bounds_us) as served, count(*) as requests,
                   coalesce(sum(h.waited_us), 0)::bigint as waited_us,
                   coalesce(sum(h.served_us), 0)::bigint as served_us
            from (
                select finished_at, case when started_at < enqueued_at then 0
                           else (date_part('epoch', started_at - enqueued_at) * 1000000)::bigint end as waited_us,
                       case when finished_at < started_at then 0
                           else (date_part('epoch', finished_at - started_at) * 1000000)::bigint end as served_us
                from onceq.history
                where queue_id = q.queue_id and outcome = o.outcome and role in ('request', 'datagram')
                  and finished_at > p_after and finished_at <= p_until) h
            group by 1, 2, 3) x
        where q.kind = 'request') f
$$;

-- The aborts of requests that ended after p_after, up to p_until, by queue and charge, and by whether by p_soon.
create or replace function onceq.count_aborts(p_after timestamptz, p_until timestamptz, p_soon timestamptz)
returns jsonb
language sql stable
set enable_seqscan = off as $$
    select coalesce(jsonb_agg(c), '[]') from (
        select q.name as queue, t.charge, coalesce(t.ended_at <= p_soon, false) as is_settled, count(*) as aborts
        from onceq.attempt t
        cross join lateral (select coalesce(
            (select h.queue_id from onceq.history h where h.eid = t.eid and h.role in ('request', 'datagram') limit 1),
            (select e.queue_id from onceq.element e where e.eid = t.eid)) as queue_id) w
        join onceq.queue q on q.queue_id = w.queue_id
        where q.kind = 'request' and t.ended_at > p_after and t.ended_at <= p_until
        group by 1, 2, 3) c
$$;

-- How long ago the first request ended that is in no file of the archive; 0: none has; null: there is no archive. That
-- is the first to have ended after all that are in files.
create or replace function onceq.archive_lag_s() returns double precision
language sql stable
set enable_seqscan = off set enable_bitmapscan = off as $$
    select greatest(0, coalesce(extract(epoch from onceq.now() - min(x.finished_at)), 0))
    from onceq.archive a
    cross join (select coalesce('epoch'::timestamptz + max(last_us) * interval '1 microsecond', '-infinity') as at
        from onceq.archive_file where kind = 'history') last
    left join onceq.queue q on q.kind = 'request'
    left join unnest(enum_range(null::onceq.outcome)) o (outcome) on true
    left join lateral (select h.finished_at from onceq.history h
        where h.queue_id = q.queue_id and h.outcome = o.outcome and h.finished_at > last.at
        order by h.finished_at limit 1) x on true
    group by a.is_one
$$;

-- The age of the oldest transaction that is open, as far as this role may know, or that is prepared; 0: none.
create or replace function onceq.oldest_transaction_s() returns double precision
language sql stable as $$
    select coalesce(extract(epoch from clock_timestamp() - least(
        (select min(xact_start) from pg_stat_activity
            where pid <> pg_backend_pid() and backend_type = 'client backend'),
        (select min(prepared) from pg_prepared_xacts where database = current_database()))), 0)
$$;

-- A look. What ended in the last 5 s is left to the next one, as its transactions may still be about to commit.
-- p_since, p_soon: what ended by p_since is known, and what ended by p_soon may be settled now: once no transaction is
-- open that was when p_soon was chosen (its xmax is not above xmin), nothing that ended before is still to come. Nothing
-- is known of another day than that of `until`, in UTC. Nulls: nothing is known.
create or replace function onceq.measure(
    p_since timestamptz, p_soon timestamptz, p_bounds_us bigint[], out until timestamptz, out day timestamptz,
    out xmin bigint, out xmax bigint, out servers_alive bigint, out servers_dead bigint,
    out oldest_transaction_s double precision, out archive_lag_s double precision, out dead_rows jsonb,
    out finished jsonb, out aborts jsonb
)
language plpgsql stable as $$
declare
    known timestamptz;
begin
    until := onceq.now() - interval '5 seconds';
    day := date_trunc('day', until, 'UTC');
    known := greatest(p_since, day - interval '1 microsecond');
    xmin := pg_snapshot_xmin(pg_current_snapshot())::text::bigint;
    xmax := pg_snapshot_xmax(pg_current_snapshot())::text::bigint;
    select count(*) filter (where s.alive), count(*) filter (where not s.alive) into servers_alive, servers_dead
        from (select bool_or(x.alive) as alive from onceq.servers x group by x.process) s;
    oldest_transaction_s := onceq.oldest_transaction_s();
    archive_lag_s := onceq.archive_lag_s();
    dead_rows := (select jsonb_object_agg(s.relname, s.n_dead_tup) from pg_stat_user_tables s
        join pg_class c on c.oid = s.relid
        where c.relnamespace = (select relnamespace from pg_class where oid = 'onceq.queue'::regclass));
    finished := onceq.count_finished(known, until, p_soon, p_bounds_us);
    aborts := onceq.count_aborts(known, until, p_soon);
end $$;
