-- Bulk enqueue (spec P3): rows of a DataFrame, each once by its rid, however often it is sent.
-- Tables: element, registrant, queue (written), history, spent, repository (read). Locks: the registrant's anchor and
-- the queue (advisory, shared), then elements by rid: two that enqueue the same rows wait for each
-- other, and never in a cycle.

-- Enqueues the rows that are nowhere yet and have not ended: requests of a registrant, known by their
-- rid; or datagrams, if p_registrant is null, by an eid made of queue and rid. One row that
-- cannot be enqueued, or was enqueued with other content, refuses them all. Times are microseconds since
-- 1970. Arrays that are null, or end early, mean null for the rest. The send numbers are p_send_no plus the
-- rows' seqs: several transactions may enqueue at once.
create or replace function onceq.enqueue_each_row(
    p_registrant integer, p_epoch bigint, p_queue text, p_send_no bigint, p_rids text[],
    p_bodies bytea[], p_priorities smallint[], p_not_before bigint[], p_expires_at bigint[],
    p_correlation_ids text[], p_content_types text[], p_properties text[], p_content_type text,
    out added bigint
)
language plpgsql volatile
set enable_seqscan = off set enable_hashjoin = off set plan_cache_mode = force_generic_plan as $$
declare
    q onceq.queue := onceq.open_for_rows(p_registrant, p_epoch, p_queue, p_expires_at);
    reply_queue integer := (select reply_queue_id from onceq.registrant where registrant_id = p_registrant);
    ids uuid[] := onceq.row_eids(p_registrant, p_queue, p_rids);
    of_life bigint := case when not q.durable then onceq.current_life() end;
    moment timestamptz := onceq.now();
begin
    perform onceq.check_rows(q, p_rids, p_bodies, p_priorities);
    perform onceq.check_moments(onceq.moment_of(min(x)), onceq.moment_of(max(x)))
        from unnest(p_not_before || p_expires_at) x;
    perform onceq.refuse_in_order(q.queue_id, 'delays nothing') from unnest(p_not_before) x where x is not null limit 1;
    perform onceq.need_room_for_rows(q.queue_id, p_registrant, p_rids, ids, p_bodies) where q.limited;
    insert into onceq.element (seq, turn, queue_id, reply_queue_id, lane, priority, role, registrant_id,
            send_no, rid, eid, correlation_id, enqueued_at, not_before, expires_at, content_type,
            properties, life, sha256, body)
        overriding system value
        select s.no, coalesce(onceq.turn_at(s.due), s.no), q.queue_id, reply_queue,
            case when s.due is null then 9 /* fresh */ - s.urgency else 10 /* due */ end, s.urgency,
            case when p_registrant is null then 'datagram' else 'request' end::onceq.role, p_registrant,
            case when p_registrant is not null then p_send_no + s.no end, s.rid, s.id, s.correlation_id,
            moment, s.due, onceq.moment_of(s.expires), coalesce(s.content_type, p_content_type),
            s.properties::jsonb, of_life, sha256(s.body), s.body
        from (select nextval('onceq.element_seq_seq') as no, x.*, onceq.moment_of(x.not_before) as due,
                coalesce(x.priority, 4::smallint) as urgency
            from unnest(p_rids, ids, p_bodies, p_priorities, p_not_before, p_expires_at, p_correlation_ids,
                p_content_types, p_properties) x (rid, id, body, priority, not_before, expires,
                correlation_id, content_type, properties)
            where not exists (select from onceq.history h
                    where h.rid = x.rid collate "C" and h.registrant_id = p_registrant offset 0)
              and not exists (select from onceq.history h where h.eid = x.id and p_registrant is null offset 0)
              and x.rid not in (select * from onceq.spent_of(p_registrant, p_rids))
            order by x.rid) s
        on conflict do nothing;
    get diagnostics added = row_count;
    perform onceq.check_enqueued(p_registrant, p_rids, ids, p_bodies);
    if of_life is not null then
        perform set_config('synchronous_commit', 'off', true);
    end if;
    perform onceq.queue_bell(q.queue_id, false);  -- Spark's processes have nothing to ring with
end $$;

-- The queue of rows that are to be enqueued, with the locks that they need.
create or replace function onceq.open_for_rows(
    p_registrant integer, p_epoch bigint, p_queue text, p_expires_at bigint[]
) returns onceq.queue
language plpgsql volatile as $$
declare q onceq.queue;
begin
    perform onceq.need_read_committed('rows are enqueued in READ COMMITTED transactions');
    perform onceq.be_durable();
    if p_registrant is not null then
        perform onceq.check_epoch(p_registrant, p_epoch);
    end if;
    q := onceq.open_queue(p_queue, null);
    if q.kind <> 'request' then
        raise exception 'queue "%" takes no requests: it is of kind %', p_queue, q.kind using errcode = 'OQ007';
    end if;
    update onceq.registrant set expires = true where registrant_id = p_registrant and not expires
        and exists (select from unnest(p_expires_at) x where x is not null);
    return q;
end $$;

-- The exact point in time of microseconds since 1970.
create or replace function onceq.moment_of(p_micros bigint) returns timestamptz
language sql immutable parallel safe as $$
    select timestamptz '1970-01-01 00:00:00+00' + p_micros * interval '1 microsecond'
$$;

-- The eids of rows. Those of datagrams make them recognisable later.
create or replace function onceq.row_eids(p_registrant integer, p_queue text, p_rids text[]) returns uuid[]
language sql volatile as $$
    select case when p_registrant is not null then array(select onceq.new_eid() from generate_subscripts(p_rids, 1))
        else array(select md5(concat_ws(chr(31), r.repository_id, p_queue, x.rid))::uuid
            from onceq.repository r, unnest(p_rids) with ordinality x (rid, n) order by x.n) end
$$;

-- Refuses rows that the queue does not accept, and opens the lanes of the others.
create or replace function onceq.check_rows(
    q onceq.queue, p_rids text[], p_bodies bytea[], p_priorities smallint[]
) returns void
language plpgsql volatile as $$
declare large record;
begin
    select x.rid, octet_length(x.body) as bytes into large from unnest(p_rids, p_bodies) x (rid, body)
        where octet_length(x.body) > q.body_bytes_max limit 1;
    if large.rid is not null then
        raise exception 'the body of rid "%" has % bytes; queue "%" takes at most %',
            large.rid, large.bytes, q.name, q.body_bytes_max using errcode = 'OQ005';
    end if;
    perform onceq.check_priority(x.p), onceq.open_lane(q.queue_id, 9 /* fresh */ - x.p)
        from (select distinct coalesce(p, 4) as p from unnest(p_priorities || null::smallint) p) x;
end $$;

-- Looks at rows that were enqueued now, or were known, by a later statement than the insert, so that
-- what ended until just now is seen. Refuses those whose rid had other content; and all, if one that
-- was enqueued has ended meanwhile, or is nowhere any more: then they are sent again.
create or replace function onceq.check_enqueued(
    p_registrant integer, p_rids text[], p_ids uuid[], p_bodies bytea[]
) returns void
language plpgsql volatile
set enable_seqscan = off set enable_hashjoin = off set plan_cache_mode = force_generic_plan as $$
declare
    mine xid := pg_current_xact_id()::xid;
    may_be_spent boolean := (select has_spent from onceq.registrant where registrant_id = p_registrant);
    found_one record;
begin
    select min(x.rid) filter (where content <> sha256(x.body)) as other,
           min(x.rid) filter (where case when coalesce(h.sha256, d.sha256, t.sha256) is null then e.role is null
               else e.xmin = mine end) as racing
        into found_one
        from unnest(p_rids, p_ids, p_bodies) x (rid, id, body)
        left join lateral (select y.xmin, y.role, y.sha256 from onceq.element y
            where y.registrant_id = p_registrant and y.rid = x.rid collate "C"
            union all
            select y.xmin, y.role, y.sha256 from onceq.element y where y.eid = x.id and p_registrant is null) e on true
        left join lateral (select y.sha256 from onceq.history y
            where y.rid = x.rid collate "C" and y.registrant_id = p_registrant
            order by y.finished_at limit 1) h on true
        left join lateral (select y.sha256 from onceq.history y where y.eid = x.id and p_registrant is null
            order by y.finished_at limit 1) d on true
        left join lateral (select y.sha256 from onceq.spent y where may_be_spent
            and y.registrant_id = p_registrant and y.rid_sha256 = onceq.rid_sha256(x.rid)) t on true
        cross join lateral (select coalesce(h.sha256, d.sha256, t.sha256,
            case when e.role <> 'reply' then e.sha256 end)) c (content);
    if found_one.other is not null then
        raise exception 'rid "%" was sent before with other content', found_one.other using errcode = 'OQ006';
    elsif found_one.racing is not null then
        raise exception 'rid "%" is being sent by others too', found_one.racing using errcode = '40001';
    end if;
end $$;
