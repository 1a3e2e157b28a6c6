-- Requests that have ended, from history (spec C10): found by registrant, queue, outcome and time,
-- in pages by key. Those that only an archive holds are found elsewhere, in its files.
-- Tables: history, registrant, queue, redrive, attempt (read). Locks: none.

-- The latest first, by (finished_at, eid); a page begins after the key p_after_at, p_after_eid.
-- p_since is included, p_until is not; null matches anything. Each way in walks an index: by rid; else by the
-- registrants of a name, or by queues, for each outcome apart and in order, so that it ends after p_limit rows
-- for each. The other conditions only filter.
create or replace function onceq.find_requests(
    p_rid text, p_registrant text, p_queue text, p_outcome text, p_since timestamptz,
    p_until timestamptz, p_after_at timestamptz, p_after_eid uuid, p_limit integer
) returns table (
    rid text, registrant text, thread text, eid uuid, queue text, role text, outcome text, aborts smallint,
    code text, error text, enqueued_at timestamptz, started_at timestamptz, finished_at timestamptz,
    server bigint, correlation_id text, redriven_as text, body bytea, reply bytea
)
language plpgsql stable
set enable_seqscan = off as $$
declare
    ways text := case
        when p_rid is not null then $q$ select * from onceq.history h where h.rid = $1 collate "C" and %1$s $q$
        else $q$ select h.* from %2$s k, unnest(enum_range(null::onceq.outcome)) o (outcome), lateral (
            select * from onceq.history h where h.%3$s = k.id and h.outcome = o.outcome and %1$s
            order by h.finished_at desc, h.eid desc limit $8) h where o.outcome = $3::onceq.outcome or $3 is null $q$
        end;
    conditions text := concat_ws(' and ', '(h.finished_at, h.eid) < ($6, $7)', 'h.finished_at < $5',
        'h.finished_at >= $4', case when p_rid is not null and p_outcome is not null then 'h.outcome = $3::onceq.outcome' end,
        case when p_rid is not null and p_registrant is not null
             then 'h.registrant_id in (select registrant_id from onceq.registrant where name = $9 collate "C")' end,
        case when p_queue is not null and (p_rid is not null or p_registrant is not null)
             then 'h.queue_id in (select queue_id from onceq.queue where name = $2 collate "C")' end);
    keys text := case when p_registrant is not null
        then '(select registrant_id::bigint as id from onceq.registrant where name = $9 collate "C")'
        else '(select queue_id as id from onceq.queue where kind <> ''reply'' and (name = $2 collate "C" or $2 is null))' end;
begin
    return query execute format($q$
        select h.rid, r.name, r.thread, h.eid, q.name, h.role::text, h.outcome::text, h.aborts, h.code, h.error,
            h.enqueued_at, h.started_at, h.finished_at, h.server, h.correlation_id, d.new_rid, h.body, h.reply
        from (select * from (%s) found order by finished_at desc, eid desc limit $8) h
        join onceq.queue q on q.queue_id = h.queue_id
        left join onceq.registrant r on r.registrant_id = h.registrant_id
        left join onceq.redrive d on d.old_eid = h.eid
        order by h.finished_at desc, h.eid desc $q$,
        format(ways, conditions, keys, case when p_registrant is null then 'queue_id' else 'registrant_id::bigint' end))
        using p_rid, p_queue, p_outcome, coalesce(p_since, '-infinity'), coalesce(p_until, 'infinity'),
            coalesce(p_after_at, 'infinity'), coalesce(p_after_eid, 'ffffffff-ffff-ffff-ffff-ffffffffffff'),
            p_limit, p_registrant;
end $$;

-- How each abort of an element came about, the earliest first.
create or replace function onceq.attempts_of(p_eid uuid) returns setof onceq.attempt
language sql stable as $$
    select * from onceq.attempt where eid = p_eid order by ended_at
$$;
