-- What a client has outstanding (spec C6, C7, C9): replies kept after their acknowledgement, the tags
-- of its threads, where a request is, and an alert if it is late.
-- Tables: element, registrant, registration, history, server, queue. Locks: the registrant's anchor
-- (advisory, shared), then the queue's in alert_late (advisory, shared), then elements by seq.

-- Removes replies that a client has recorded; returns how many were waiting. The last p_keep of all ever
-- removed stay in lane 13, in the order in which they were removed: as good as gone, except for
-- rereceive. An older one that is in p_rids again is not touched.
create or replace function onceq.free_replies(p_registrant integer, p_rids text[], p_keep integer)
returns integer
language plpgsql volatile as $$
declare
    freed integer;
    kept integer;
    queue integer;
    latest bigint;
begin
    delete from onceq.element e where e.registrant_id = p_registrant and e.role = 'reply' and e.lane = 0 /* reply */
        and e.rid = any (p_rids[: cardinality(p_rids) - p_keep]);
    get diagnostics freed = row_count;
    if p_keep > 0 then
        select r.reply_queue_id into queue from onceq.registrant r where r.registrant_id = p_registrant;
        select coalesce(max(e.turn), 0) into latest from onceq.element e
            where e.queue_id = queue and e.lane = 13 /* kept */;
        update onceq.element e set lane = 13 /* kept */, turn = latest + x.n
            from unnest(p_rids) with ordinality x (rid, n)
            where e.registrant_id = p_registrant and e.rid = x.rid and e.role = 'reply' and e.lane = 0 /* reply */;
        get diagnostics kept = row_count;
        perform onceq.trim_kept(queue, p_keep);
    end if;
    return freed + coalesce(kept, 0);
end $$;

-- Removes all kept replies but the last p_keep.
create or replace function onceq.trim_kept(p_reply_queue integer, p_keep integer) returns void
language plpgsql volatile
set enable_seqscan = off set enable_sort = off set enable_bitmapscan = off as $$
begin
    delete from onceq.element e where e.queue_id = p_reply_queue and e.lane = 13 /* kept */ and e.turn <= (
        select x.turn from onceq.element x where x.queue_id = p_reply_queue and x.lane = 13 /* kept */
        order by x.turn desc offset p_keep limit 1);
end $$;

-- The tags of every thread of a client (BHM90 5), by thread: what each sent and received last, and how
-- many of its requests have no reply that it has received with a checkpoint or acknowledged. A caller
-- that gives an epoch is refused if that is over.
create or replace function onceq.threads(p_name text, p_registrant integer, p_epoch bigint)
returns table (thread text, registrant_id integer, epoch bigint, state text, s_rid text, s_state text,
    r_rid text, ckpt bytea, outstanding bigint)
language plpgsql volatile as $$
begin
    if p_registrant is not null then
        perform onceq.check_epoch(p_registrant, p_epoch);
    end if;
    return query select r.thread, r.registrant_id, r.epoch, r.state, t.s_rid, t.s_state, t.r_rid, t.ckpt,
            (select count(*) from onceq.element e where e.registrant_id = r.registrant_id
                and e.role in ('request', 'reply') and e.lane <> 13 /* kept */ and e.rid is distinct from t.r_rid)
        from onceq.registrant r, lateral onceq.session_tags(r.registrant_id, r.reply_queue_id) t
        where r.name = p_name collate "C" order by r.thread;
end $$;

-- Where a request of a client is (C9): queued, waiting, suspect, executing, held, replied or finished; no row
-- if it was never sent. The server is the one that has claimed it. begun_at: when its execution began, that is,
-- when the transaction began whose started marker names it; null if it has not begun, or if this
-- role may not see that server's session.
create or replace function onceq.where_is(p_registrant integer, p_epoch bigint, p_rid text)
returns table (rid text, state text, eid uuid, queue text, aborts smallint, sent_at timestamptz,
    not_before timestamptz, server_host text, server_pid integer, begun_at timestamptz,
    finished_at timestamptz, outcome text, code text, error text)
language plpgsql volatile as $$
begin
    perform onceq.check_epoch(p_registrant, p_epoch);
    return query select e.rid, case when e.claimed_by is not null then 'executing'
                when e.lane = 10 /* due */ and e.not_before > onceq.now() then 'waiting'
                when e.lane = 11 /* suspect */ then 'suspect' when e.lane = 12 /* held */ then 'held' else 'queued' end,
            e.eid, q.name, e.aborts, e.enqueued_at, e.not_before, s.host, s.pid, a.xact_start,
            null::timestamptz, null, e.code, e.error
        from onceq.element e join onceq.queue q on q.queue_id = e.queue_id
        left join onceq.server s on s.incarnation = e.claimed_by
        left join pg_stat_activity a on a.pid = s.backend_pid
            and pg_sequence_last_value(to_regclass('onceq.started_' || s.slot)) = e.seq
        where e.registrant_id = p_registrant and e.rid = p_rid collate "C" and e.role = 'request';
    if not found then
        return query select h.rid, case when exists (select from onceq.element e where e.role = 'reply'
                    and e.registrant_id = p_registrant and e.rid = h.rid and e.lane <> 13 /* kept */)
                    then 'replied' else 'finished' end,
                h.eid, q.name, h.aborts, h.enqueued_at, null::timestamptz, null, null::integer,
                null::timestamptz, h.finished_at, h.outcome::text, h.code, h.error
            from onceq.history h join onceq.queue q on q.queue_id = h.queue_id
            where h.rid = p_rid collate "C" and h.registrant_id = p_registrant
            order by h.finished_at desc limit 1;
    end if;
end $$;

-- Enqueues an alert for each request of a client without a reply after p_late_s; only for p_rid, if
-- given. Exactly once for each request, as long as history is kept: the alert's eid is made from
-- the request's, and is looked for in history by a later statement than the insert, so that one that
-- was dequeued until just now is seen there. Returns the rids alerted now, and then, if there are any, a
-- row with the bell to ring after the commit.
create or replace function onceq.alert_late(
    p_registrant integer, p_epoch bigint, p_rid text, p_late_s double precision, p_queue text
) returns table (rid text, bell text)
language plpgsql volatile as $$
declare
    q onceq.queue;
    x record;
    content bytea;
    id uuid;
begin
    perform onceq.be_durable();
    perform onceq.check_epoch(p_registrant, p_epoch);
    q := onceq.open_queue(p_queue, null);
    for x in select e.rid, e.eid, e.enqueued_at, r.name, r.thread, f.name as queue from onceq.element e
            join onceq.registrant r on r.registrant_id = e.registrant_id
            join onceq.queue f on f.queue_id = e.queue_id
            where e.registrant_id = p_registrant and e.role = 'request' and (p_rid is null or e.rid = p_rid)
              and e.enqueued_at <= onceq.now() - make_interval(secs => p_late_s) order by e.send_no loop
        id := md5('late ' || x.eid)::uuid;
        content := convert_to(jsonb_build_object('client', x.name, 'thread', x.thread, 'rid', x.rid,
            'eid', x.eid, 'queue', x.queue, 'sent_at', x.enqueued_at)::text, 'UTF8');
        perform onceq.need_room(q.queue_id, 1, octet_length(content)) where q.limited
            and not exists (select from onceq.element e where e.eid = id)
            and not exists (select from onceq.history h where h.eid = id);
        insert into onceq.element (queue_id, lane, role, rid, eid, correlation_id, enqueued_at,
                content_type, life, sha256, body)
            values (q.queue_id, 5 /* usual */, 'datagram', id::text, id, x.eid::text, onceq.now(), 'application/json',
                case when not q.durable then onceq.current_life() end, sha256(content), content)
            on conflict (eid) do nothing;
        continue when not found;
        perform from onceq.history h where h.eid = id;
        if found then
            delete from onceq.element e where e.eid = id;
        else
            rid := x.rid;
            return next;
        end if;
    end loop;
    if rid is not null then
        rid := null;
        bell := onceq.queue_bell(q.queue_id, true);
        return next;
    end if;
end $$;
