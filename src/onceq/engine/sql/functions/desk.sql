-- The Ops of many clerks of one process, in one transaction: the desk (ADR 28).
-- A group never waits for a lock, and decides nothing rare: whoever has no row in an answer has had nothing
-- done, and goes alone. A row's place is that of its Op in the group, from 1.
-- Tables: registrant, queue (read), element (written), history, spent (read); as in request.sql for acknowledge. Locks:
-- the registrants' anchors (advisory, shared, tried), the queue's (advisory, shared, tried), elements by seq.

-- Whose anchors this transaction has now, of these; statements that begin later see what their holders left.
create or replace function onceq.try_anchors(p_registrants integer[]) returns bigint[]
language sql volatile as $$
    select array(select x.place from unnest(p_registrants) with ordinality x (id, place)
        where pg_try_advisory_xact_lock_shared('onceq.registrant'::regclass::oid::integer, x.id))
$$;

-- Sends a request of each clerk, as `send_one` does for one: to one queue, in one lane. An empty text is a null: no
-- reply that it acknowledges, no properties. The first row has the bell to ring.
create or replace function onceq.send_each(
    p_queue text, p_priority smallint, p_content_type text, p_registrants integer[], p_epochs bigint[],
    p_send_nos bigint[], p_rids text[], p_acks text[], p_keeps integer[], p_properties text[], p_sha256s bytea[], p_bodies bytea[]
) returns table (place bigint, eid uuid, bell text)
language plpgsql volatile
set enable_seqscan = off set enable_hashjoin = off set enable_mergejoin = off
set plan_cache_mode = force_generic_plan as $$
declare
    at_lane smallint := 9 /* fresh */ - p_priority;
    held bigint[]; home record; sent uuid[]; rung text;
    ids uuid[] := array(select onceq.new_eid() from generate_subscripts(p_rids, 1));
begin
    if current_setting('synchronous_commit') = 'off' then
        perform onceq.be_durable();
    end if;
    held := onceq.try_anchors(p_registrants);
    if not pg_try_advisory_xact_lock_shared('onceq.queue'::regclass::oid::integer, hashtext(p_queue)) then
        return;
    end if;
    select q.queue_id, q.body_bytes_max into home from onceq.queue q
        where q.name = p_queue collate "C" and q.destroyed_at is null and q.enqueue_started
          and q.kind <> 'reply' and q.durable and not q.limited and at_lane = any (q.lanes);
    if not found then
        return;
    end if;
    with inserted as (
        insert into onceq.element (queue_id, reply_queue_id, lane, priority, role, registrant_id, send_no,
                rid, ack_rid, eid, enqueued_at, content_type, properties, sha256, body)
            select home.queue_id, r.reply_queue_id, at_lane, p_priority, 'request', r.registrant_id, x.send_no,
                x.rid, nullif(x.ack, ''), ids[x.place], onceq.now(), p_content_type,
                nullif(x.properties, '')::jsonb, x.sha256, x.body
            from unnest(p_registrants, p_epochs, p_send_nos, p_rids, p_acks, p_properties, p_sha256s, p_bodies)
                with ordinality x (id, epoch, send_no, rid, ack, properties, sha256, body, place)
            join onceq.registrant r on r.registrant_id = x.id and r.epoch = x.epoch
            where x.place = any (held) and r.reply_queue_id is not null and octet_length(x.body) <= home.body_bytes_max
              and (not r.has_spent or onceq.note_spent()) and x.properties not like '%"onceq_reports"%' order by x.place
            on conflict (registrant_id, rid) do nothing returning element.eid
    ) select array_agg(i.eid) into sent from inserted i;
    -- Was any of these done before? Later than the insert, as in send: what had the rid until now has ended.
    if exists (select from unnest(p_registrants, p_rids) x (id, rid), lateral (select from onceq.history h
                   where h.rid = x.rid collate "C" and h.registrant_id = x.id offset 0) done)
            or current_setting('onceq_setting.may_be_spent', true) = 'on' then
        with gone as (
            delete from onceq.element e where e.eid = any (sent) and (onceq.is_spent(e.registrant_id, e.rid) or exists (
                select from onceq.history h where h.rid = e.rid and h.registrant_id = e.registrant_id)) returning e.eid
        ) select array(select unnest(sent) except select g.eid from gone g) into sent;
    end if;
    perform onceq.free_replies(x.id, array[x.ack], x.keep)
        from unnest(p_registrants, p_acks, p_keeps) with ordinality x (id, ack, keep, place)
        where x.ack <> '' and x.keep > 0 and ids[x.place] = any (sent);
    delete from onceq.element e
        using unnest(p_registrants, p_acks, p_keeps) with ordinality x (id, ack, keep, place)
        where x.ack <> '' and x.keep = 0 and ids[x.place] = any (sent) and e.registrant_id = x.id and e.rid = x.ack collate "C"
          and e.role = 'reply' and e.lane = 0 /* reply */;
    if cardinality(sent) > 0 then
        rung := onceq.queue_bell(home.queue_id, true);
    end if;
    return query select x.place, x.id, case when row_number() over (order by x.place) = 1 then rung end
        from unnest(ids) with ordinality x (id, place) where x.id = any (sent) order by x.place;
end $$;

-- Looks for a reply of each clerk, as `receive` does: the oldest, or the one to a rid that is not empty. Each with its
-- epoch in the same snapshot. A row without a reply: there is none. No row: the epoch is over, or something may expire.
create or replace function onceq.receive_each(p_registrants integer[], p_epochs bigint[], p_rids text[])
returns table (place bigint, reply onceq.element)
language plpgsql volatile
set enable_seqscan = off set enable_bitmapscan = off set enable_sort = off set enable_hashjoin = off
set enable_mergejoin = off set plan_cache_mode = force_generic_plan as $$
begin
    return query select x.place, e.reply from unnest(p_registrants, p_epochs, p_rids) with ordinality
            x (id, epoch, rid, place)
        join onceq.registrant r on r.registrant_id = x.id and r.epoch = x.epoch
        left join lateral (
            (select y as reply from onceq.element y where x.rid = '' and y.queue_id = r.reply_queue_id
                and y.lane = 0 /* reply */ order by y.turn limit 1)
            union all
            select y from onceq.element y where y.registrant_id = r.registrant_id
                and y.rid = nullif(x.rid, '') collate "C" and y.role = 'reply') e on true
        where (e.reply).seq is not null or not r.expires;
end $$;

-- Frees replies of each clerk, as `acknowledge` does for one, without checkpoints: each clerk one reply.
create or replace function onceq.acknowledge_each(
    p_registrants integer[], p_epochs bigint[], p_rids text[], p_s_rids text[], p_s_nos bigint[], p_keeps integer[]
) returns table (place bigint, freed integer)
language plpgsql volatile as $$
declare held bigint[];
begin
    perform onceq.be_durable();
    held := onceq.try_anchors(p_registrants);
    for place in select x.place from unnest(p_registrants, p_epochs) with ordinality x (id, epoch, place)
            join onceq.registrant r on r.registrant_id = x.id and r.epoch = x.epoch
            where x.place = any (held) order by x.place loop
        freed := onceq.acknowledge(p_registrants[place], p_epochs[place], array[p_rids[place]], null,
            nullif(p_s_rids[place], ''), p_s_nos[place], p_keeps[place]);
        return next;
    end loop;
end $$;
