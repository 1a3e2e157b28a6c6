-- What people and programs read: queues, requests wherever they are, servers. Read only.
-- Tables: all (read). Locks: none.

-- How many elements of a queue are where. Kept replies are not counted, unless their processing was once begun
-- (claimed); oldest_at may be of one. It uses the index of that queue alone: if one queue holds most of the
-- table, the planner prefers the whole table, and would then read it once for each queue.
create or replace function onceq.count_queue(
    p_queue_id integer, out ready bigint, out claimed bigint, out waiting bigint,
    out suspect bigint, out held bigint, out oldest_at timestamptz
)
language sql stable
set enable_seqscan = off as $$
    select count(*) filter (where claimed_by is null and lane <= 9 /* fresh */),
           count(*) filter (where claimed_by is not null),
           count(*) filter (where claimed_by is null and lane = 10 /* due */),
           count(*) filter (where claimed_by is null and lane = 11 /* suspect */),
           count(*) filter (where lane = 12 /* held */),
           min(enqueued_at)
    from onceq.element where queue_id = p_queue_id
$$;

-- How many requests a minute were done in each queue during the last p_over_s, and the present
-- time. Each queue is counted by its index: a join might read all of history.
create or replace function onceq.rates(p_over_s double precision)
returns table (at timestamptz, queue text, per_minute double precision)
language sql stable
set enable_seqscan = off as $$
    with moment as materialized (select onceq.now() as at)
    select m.at, q.name, 60 / p_over_s * (select count(*) from onceq.history h where h.queue_id = q.queue_id
        and h.outcome = 'done' and h.finished_at > m.at - make_interval(secs => p_over_s))
    from moment m left join onceq.queue q on q.kind = 'request' and q.destroyed_at is null
$$;

create or replace view onceq.queues as
select q.queue_id, q.name, q.kind, q.enqueue_started, q.dequeue_started, q.durable, q.abort_limit,
       q.backoff_ms, q.backoff_max_ms, q.execution_limit_s, q.body_bytes_max, q.tag_bytes_max,
       q.keep_body, eq.name as error_queue, q.created_at,
       coalesce(d.ready, 0) as ready, coalesce(d.claimed, 0) as claimed,
       coalesce(d.waiting, 0) as waiting, coalesce(d.suspect, 0) as suspect,
       coalesce(d.held, 0) as held, d.oldest_at, q.retry_limit,
       case when q.ordered then 'strict' end as in_order, l.depth as depth_max, l.bytes as bytes_max,
       case when q.holds then 'hold' else 'fail' end as on_failure,
       k.history_days,
       case when q.paused_until > onceq.now() then q.paused_until end as paused_until
from onceq.queue q
left join onceq.queue eq on eq.queue_id = q.error_queue_id
left join onceq.limits l on l.queue_id = q.queue_id
left join onceq.retention k on k.queue_id = q.queue_id
left join lateral onceq.count_queue(q.queue_id) d on true
where q.destroyed_at is null;

-- In which state an element is, by its role, its lane, who has claimed it and for when it waits.
create or replace function onceq.state_of(onceq.role, smallint, bigint, timestamptz) returns text
language sql volatile as $$
    select case when $1 = 'reply' then case $2 when 13 /* kept */ then 'kept' else 'replied' end
        when $2 = 12 /* held */ then 'held'
        when $3 is not null then 'executing'
        when $2 = 10 /* due */ and $4 > onceq.now() then 'waiting'
        when $2 = 11 /* suspect */ then 'suspect'
        else 'queued' end
$$;

-- A row for every place where a rid is (G4): queued, waiting, suspect, executing, replied, kept after
-- its acknowledgement, held in an error queue or in its own, or finished. A request that has ended may have several: its
-- history, its reply, and what an error queue holds of it.
-- attempts: executions that ended and counted, the charged ones (aborts) and the one that finished it.
create or replace view onceq.requests as
select e.rid, r.name as registrant, r.thread, e.eid,
       onceq.state_of(e.role, e.lane, e.claimed_by, e.not_before) as state,
       e.role::text as role, e.outcome::text as outcome, q.name as queue, e.aborts as aborts,
       e.code, e.error, e.enqueued_at, e.not_before, e.expires_at,
       null::timestamptz as finished_at, s.host as server_host, s.pid as server_pid,
       e.correlation_id, octet_length(e.body) as body_bytes,
       e.aborts + (e.outcome is not distinct from 'done')::integer as attempts
from onceq.element e
join onceq.queue q on q.queue_id = e.queue_id
left join onceq.registrant r on r.registrant_id = coalesce(e.registrant_id, e.failed_of)
left join onceq.server s on s.incarnation = e.claimed_by
union all
select h.rid, r.name, r.thread, h.eid, 'finished', h.role::text, h.outcome::text, q.name, h.aborts,
       h.code, h.error, h.enqueued_at, null, null, h.finished_at, null, null,
       h.correlation_id, octet_length(h.body), h.aborts + (h.outcome = 'done')::integer
from onceq.history h
join onceq.queue q on q.queue_id = h.queue_id
left join onceq.registrant r on r.registrant_id = h.registrant_id;

create or replace view onceq.servers as
select s.slot, s.incarnation, s.process, s.host, s.pid, s.backend_pid, s.started_at,
       exists (select from pg_locks l where l.locktype = 'advisory'
               and l.database = (select oid from pg_database where datname = current_database())
               and l.classid = 'onceq.server'::regclass::oid and l.objid = s.slot) as alive,
       (select count(*) from onceq.element e where e.claimed_by = s.incarnation) as claims
from onceq.server s;

-- The places where a rid, or an eid, is or was, the latest first; null matches everything.
create or replace function onceq.look_up(
    p_rid text, p_eid uuid, p_registrant text, p_state text, p_queue text, p_limit integer
) returns setof onceq.requests
language plpgsql stable as $$
begin
    return query execute format('select * from onceq.requests where true %s %s %s %s %s
            order by coalesce(finished_at, enqueued_at) desc, state limit %s',
        'and rid = ' || quote_literal(p_rid) || ' collate "C"', 'and eid = ' || quote_literal(p_eid),
        'and registrant = ' || quote_literal(p_registrant), 'and state = ' || quote_literal(p_state),
        'and queue = ' || quote_literal(p_queue), coalesce(p_limit::text, 'all'));
end $$;
