-- How much waits, how much is done, and what servers do now, for those who watch (spec Q14).
-- Tables: all (read). Locks: none; locks of others are read in pg_locks.

-- Who holds this advisory lock: a backend's pid; null if nobody does.
create or replace function onceq.who_holds(p_class regclass, p_id bigint) returns integer
language sql stable as $$
    select l.pid from pg_locks l where l.locktype = 'advisory' and l.granted and l.objsubid = 2
        and l.database = (select oid from pg_database where datname = current_database())
        and l.classid = p_class and l.objid = p_id::oid limit 1
$$;

-- The sessions of servers: where each is, and what it does now. queues: by name, what it serves; none: it dequeues for a
-- queue manager's callers. doing: the eid of what it runs, of a batch the first; since, for_s: when that began, and how long
-- ago; null if this role may not see it. state: 'runs', 'sleeps', 'looks' (for work), 'gone' (its lock is free: it is to be taken over), 'missing'
-- (it waits for a verdict).
create or replace view onceq.server_load as
select s.slot, s.incarnation, s.process, s.host, s.pid, s.started_at,
    array(select q.name::text from onceq.queue q where q.queue_id = any (s.queue_ids) order by q.name) as queues,
    l.holder is not null and s.missed_at is null as is_alive,
    case when s.missed_at is not null then 'missing' when l.holder is null then 'gone' when e.seq is not null then 'runs'
        when onceq.who_holds('onceq.server_pkey', s.slot) is not null then 'sleeps' else 'looks' end as state,
    e.eid as doing, e.rid, q.name as queue, a.xact_start as since,
    date_part('epoch', clock_timestamp() - a.xact_start) as for_s
from onceq.server s
cross join lateral onceq.who_holds('onceq.server', s.slot) l (holder)
left join onceq.element e on e.claimed_by = s.incarnation
    and e.seq = abs(nullif(pg_sequence_last_value(to_regclass('onceq.started_' || s.slot)), 0))
left join onceq.queue q on q.queue_id = e.queue_id
left join pg_stat_activity a on a.pid = s.backend_pid and e.seq is not null;

-- How many executions were aborted in the last p_over_s, by queue.
create or replace function onceq.count_aborts(p_over_s double precision) returns table (queue_id integer, aborts bigint)
language sql stable
set enable_seqscan = off as $$
    select coalesce(e.queue_id, h.queue_id), count(*) from onceq.attempt a
        left join onceq.element e on e.eid = a.eid and e.role in ('request', 'datagram')
        left join lateral (select x.queue_id from onceq.history x where x.eid = a.eid and e.seq is null
            order by x.finished_at desc limit 1) h on true
        where a.ended_at > onceq.now() - make_interval(secs => p_over_s) group by 1
$$;

-- The queues of requests. ready: may be claimed; backing_off: wait for their time; held: for an operator; oldest_s: the age of the oldest; servers:
-- processes that serve it and live, and Spark servers. done_per_s, aborted_per_s: in the last minute.
create or replace view onceq.queue_load as
select q.name as queue, q.ready, q.claimed, q.waiting as backing_off, q.suspect,
    date_part('epoch', onceq.now() - q.oldest_at) as oldest_s, coalesce(r.per_minute, 0) / 60 as done_per_s,
    coalesce(a.aborts, 0) / 60.0::double precision as aborted_per_s,
    (select count(distinct s.process) from onceq.server_load s where s.is_alive and q.name = any (s.queues))
        + (select count(*) from onceq.spark_server p where p.queue_id = q.queue_id
            and onceq.who_holds('onceq.spark_group', p.server_id) is not null) as servers,
    q.enqueue_started, q.dequeue_started, q.held, q.paused_until
from onceq.queues q
left join onceq.rates(60) r on r.queue = q.name
left join onceq.count_aborts(60) a on a.queue_id = q.queue_id
where q.kind = 'request';
