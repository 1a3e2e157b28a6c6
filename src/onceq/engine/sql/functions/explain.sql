-- What an operator asks of one request (spec Q14): the facts by which model/reasons.py says why it does not run. Each
-- condition of a claim (server.sql, order.sql) by which it passes an element over is a fact here. All is read by keys and by
-- indexes, so that it costs the same however much waits.
-- Tables: all (read). Locks: none; locks of others are read in pg_locks.

-- The eids of what a client has under a rid: of the request, wherever it is or was, and of its reply.
create or replace function onceq.eids_of(p_registrant text, p_rid text) returns setof uuid
language sql stable
set enable_seqscan = off as $$
    with own as materialized (select registrant_id from onceq.registrant where name = p_registrant collate "C")
    select e.eid from own join onceq.element e on e.registrant_id = own.registrant_id and e.rid = p_rid collate "C"
    union
    select h.eid from own join onceq.history h on h.rid = p_rid collate "C" and h.registrant_id = own.registrant_id
$$;

-- Who has claimed an element; no row if nobody has. kind: 'server', 'dequeuer' (a queue manager, for a caller's
-- transaction), 'spark', 'relay', or 'nobody' that is known. began_at: null if it has not begun, or is not shown to this role.
create or replace function onceq.holder_of(e onceq.element) returns table (
    kind text, name text, host text, pid integer, is_alive boolean, began_at timestamptz, missed_at timestamptz
)
language sql stable
set enable_seqscan = off as $$
    select case when s.queue_ids = '{}' then 'dequeuer' when s.slot is not null then 'server'
            when g.group_no is not null then 'spark' when r.name is not null then 'relay' else 'nobody' end,
        coalesce(p.name, r.name), s.host, s.pid,
        case when s.slot is not null then onceq.who_holds('onceq.server', s.slot) is not null
            when p.server_id is not null then onceq.who_holds('onceq.spark_group', p.server_id) is not null end,
        coalesce(a.xact_start, g.begun_at), s.missed_at
    from (select e.claimed_by as by where e.claimed_by is not null) one
    left join onceq.server s on s.incarnation = one.by
    left join pg_stat_activity a on a.pid = s.backend_pid
        and pg_sequence_last_value(to_regclass('onceq.started_' || s.slot)) in (e.seq, -e.seq)
    left join onceq.spark_group g on g.group_no = one.by
    left join onceq.spark_server p on p.server_id = g.server_id
    left join onceq.stream_relay r on r.claim = one.by
$$;

-- The element of a strict queue that is to run next, as claim_in_order finds it, and by which rule: one that began and
-- has not ended, one that was redriven, or the first that was sent.
create or replace function onceq.head_of(p_queue_id integer, out seq bigint, out rule text)
language plpgsql stable
set enable_seqscan = off set enable_bitmapscan = off set enable_sort = off as $$
begin
    rule := 'begun';
    select min(d.seq) into seq from onceq.begun d where d.queue_id = p_queue_id and exists (select from onceq.element x
        where x.seq = d.seq and x.queue_id = p_queue_id and x.role in ('request', 'datagram'));
    if seq is null then
        rule := 'redriven';
        select x.seq into seq from onceq.element x where x.queue_id = p_queue_id and x.lane = 10 /* due */
            order by x.turn limit 1;
    end if;
    if seq is null then
        rule := 'sent';
        select x.seq into seq from onceq.element x where x.queue_id = p_queue_id and x.lane = 5 /* usual */
            and x.turn >= coalesce((select pg_sequence_last_value(q.low[6]) from onceq.queue q where q.queue_id = p_queue_id), 0)
            order by x.turn limit 1;
    end if;
end $$;

-- How many unclaimed elements a claim would find before this one: in lanes before its own, if it is fresh, and in its own.
-- It stops at p_n.
create or replace function onceq.count_before(e onceq.element, p_n integer) returns bigint
language plpgsql stable
set enable_seqscan = off set enable_bitmapscan = off set enable_sort = off as $$
begin
    return (select count(*) from (select from onceq.queue q,
            unnest(case when e.lane <= 9 /* fresh */ then q.lanes else array[e.lane] end) l,
            lateral (select from onceq.element x where x.queue_id = e.queue_id and x.lane = l and x.claimed_by is null
                and x.turn >= coalesce(case when l <= 9 /* fresh */ then pg_sequence_last_value(q.low[l + 1]) end, 0)
                and x.turn < case when l = e.lane then e.turn else 9223372036854775807 end
                order by x.turn limit p_n) x
        where q.queue_id = e.queue_id and l <= e.lane limit p_n) x);
end $$;

-- Who may claim from a queue. sessions: of servers, that live; busy: how many of them run something; gone: sessions that
-- have ended and are to be taken over; others: sleeping dequeuers, and Spark servers that live.
create or replace function onceq.servers_of(
    p_queue_id integer, out sessions bigint, out busy bigint, out gone bigint, out others bigint
)
language plpgsql stable
set enable_seqscan = off as $$
begin
    select count(*) filter (where x.is_alive), count(*) filter (where x.state = 'runs'), count(*) filter (where not x.is_alive)
        into sessions, busy, gone from onceq.server_load x join onceq.server s on s.slot = x.slot
        where p_queue_id = any (s.queue_ids);
    others := (select count(*) from onceq.dequeuer d where d.queue_id = p_queue_id
            and onceq.who_holds('onceq.dequeuer_pkey', d.backend_pid) is not null)
        + (select count(*) from onceq.spark_server p where p.queue_id = p_queue_id
            and onceq.who_holds('onceq.spark_group', p.server_id) is not null);
end $$;

-- A suspect that runs, besides this element: no other suspect of the repository runs meanwhile (may_claim_suspect).
create or replace function onceq.rival_of(e onceq.element) returns uuid
language sql stable
set enable_seqscan = off as $$
    select x.eid from onceq.queue q join onceq.element x on x.queue_id = q.queue_id and x.lane = 11 /* suspect */
        where q.kind <> 'reply' and x.seq <> e.seq and e.lane = 11 /* suspect */
          and exists (select from onceq.server s where s.incarnation = x.claimed_by and s.charges is null) limit 1
$$;

-- The facts about an element that is in a queue; no row if none has this eid, or if it is a reply. lost: it is of an
-- earlier life of the database. hidden: no claim looks where it stands, as a mark is above it. locked_by, line_by: the
-- backend that holds its row, or the lock without which nothing of its kind is claimed. head: what a strict queue runs
-- before it. returned: how often executions of it were aborted. before: see count_before; it stops at 1000. code: of the
-- last execution that was undone.
create or replace function onceq.examine(p_eid uuid) returns table (
    now timestamptz, eid uuid, rid text, registrant text, thread text, queue text, lane smallint, aborts smallint,
    returned bigint, enqueued_at timestamptz, not_before timestamptz, expires_at timestamptz, is_started boolean,
    is_strict boolean, is_lost boolean, is_hidden boolean, locked_by integer, line_by integer, head uuid, head_rid text,
    head_rule text, rival uuid, holder text, holder_name text, holder_host text, holder_pid integer, is_alive boolean,
    began_at timestamptz, missed_at timestamptz, sessions bigint, busy bigint, gone bigint, others bigint, before bigint, code text,
    role text, paused_until timestamptz
)
language sql stable
set enable_seqscan = off as $$
    select onceq.now(), x.eid, x.rid, r.name, r.thread, q.name, x.lane, x.aborts,
        (select count(*) from onceq.attempt a where a.eid = x.eid), x.enqueued_at, x.not_before, x.expires_at,
        q.dequeue_started, q.ordered, coalesce(x.life < coalesce((select l.life from onceq.life l), x.life + 1), false),
        x.lane <= 9 /* fresh */ and (x.lane <> all (q.lanes) or x.turn < coalesce(pg_sequence_last_value(q.low[x.lane + 1]), 0)),
        (select l.pid from pg_locks l where l.locktype = 'transactionid' and l.granted and l.transactionid = x.xmax limit 1),
        case when q.ordered then onceq.who_holds('onceq.begun', x.queue_id)
            when x.lane = 11 /* suspect */ then onceq.who_holds('onceq.element', 11 /* suspect */) end,
        h.eid, h.rid, case when h.seq is not null then first.rule end, onceq.rival_of(y.e),
        c.kind, c.name, c.host, c.pid, c.is_alive, c.began_at, c.missed_at, s.sessions, s.busy, s.gone, s.others,
        onceq.count_before(y.e, 1000), x.code, x.role::text,
        case when q.paused_until > onceq.now() then q.paused_until end
    from onceq.element x
    cross join lateral (select x as e) y
    join onceq.queue q on q.queue_id = x.queue_id
    left join onceq.registrant r on r.registrant_id = coalesce(x.registrant_id, x.failed_of)
    left join lateral onceq.head_of(x.queue_id) first on q.ordered
    left join onceq.element h on h.seq = first.seq and h.seq <> x.seq
    left join lateral onceq.holder_of(y.e) c on true
    left join lateral onceq.servers_of(x.queue_id) s on true
    where x.eid = p_eid and x.role <> 'reply'
$$;

-- What is known of a rid that is nowhere. open_by: the backend of a transaction in which this client does something, as a
-- send that has not committed; outcome, eid: of a request whose history was trimmed; namesakes: other clients that have this
-- rid; similar: clients with nearly this name. Up to 5 of each.
create or replace function onceq.unknown_rid(p_registrant text, p_rid text) returns table (
    is_known boolean, open_by integer, open_since timestamptz, outcome text, eid uuid, namesakes text[], similar_names text[]
)
language sql stable
set enable_seqscan = off as $$
    with own as materialized (select registrant_id from onceq.registrant where name = p_registrant collate "C")
    select exists (select from own), o.pid, o.xact_start, t.outcome::text, t.eid,
        array(select distinct r.name::text from onceq.registrant r where r.name <> p_registrant collate "C" and (
                exists (select from onceq.element e where e.registrant_id = r.registrant_id and e.rid = p_rid collate "C")
                or exists (select from onceq.history h where h.rid = p_rid collate "C" and h.registrant_id = r.registrant_id))
            order by 1 limit 5),
        array(select distinct r.name::text from onceq.registrant r, lower(regexp_replace(r.name, '[\W_]', '', 'g')) n,
                lower(regexp_replace(p_registrant, '[\W_]', '', 'g')) own_name
            where r.name <> p_registrant collate "C" and n <> '' and own_name <> ''
              and (starts_with(n, own_name) or starts_with(own_name, n)) order by 1 limit 5)
    from (select) one
    left join lateral (select a.pid, a.xact_start from own join pg_stat_activity a
        on a.pid = onceq.who_holds('onceq.registrant', registrant_id) order by a.xact_start limit 1) o on true
    left join lateral (select x.outcome, x.eid from own join onceq.spent x using (registrant_id)
        where x.rid_sha256 = onceq.rid_sha256(p_rid) limit 1) t on true
$$;
