-- The clerk's operations: connect, disconnect, send, receive, acknowledge (spec C1).
-- Tables: registrant, registration, element, queue, history, spent (read). Locks: the client's name (advisory,
-- shared) in connect, the registrant's anchor (advisory; shared, but exclusive in connect and disconnect), then the queue's in a send (advisory,
-- shared), then elements by seq.

-- Returns the anchor of a registrant, made if there is none. It first looks for it: a conflicting insert
-- uses up an id, and ids are 4-byte integers, like the keys of advisory locks. A name that was closed is refused.
create or replace function onceq.anchor(p_name text, p_thread text) returns integer
language plpgsql volatile as $$
declare id integer;
begin
    perform pg_advisory_xact_lock_shared('onceq.registrant_name_thread_key'::regclass::oid::integer, hashtext(p_name));
    if exists (select from onceq.registrant r where r.name = p_name collate "C" and r.closed_at is not null) then
        raise exception 'client "%" was closed: what it has sent is forgotten, and would run twice', p_name
            using errcode = 'OQ011', hint = 'connect by a name that was never used';
    end if;
    for try in 1 .. 2 loop
        select r.registrant_id into id from onceq.registrant r
            where r.name = p_name collate "C" and r.thread = p_thread collate "C";
        exit when id is not null;
        insert into onceq.registrant (name, thread) values (p_name, p_thread)
            on conflict on constraint registrant_name_thread_key do nothing;
    end loop;
    return id;
end $$;

-- Begins a new life of a registrant (finding 1: the exclusive lock waits for ghosts of the
-- former life) and returns where that life had stopped. p_keep: how many of the last kept
-- replies stay; null leaves them. p_bell: of this life; null: that of this session.
create or replace function onceq.connect(
    p_name text, p_thread text, p_keep integer, p_bell text default null,
    out registrant_id integer, out epoch bigint, out reply_queue text, out was text,
    out s_rid text, out s_no bigint, out s_state text, out r_rid text, out ckpt bytea
)
language plpgsql volatile as $$
declare who onceq.registrant;
begin
    perform onceq.be_durable();
    perform onceq.current_life();  -- what a crash has taken is never shown
    registrant_id := onceq.anchor(p_name, p_thread);
    perform pg_advisory_xact_lock('onceq.registrant'::regclass::oid::integer, registrant_id);
    for again in 1 .. 1000 loop  -- what a former life left in this session
        exit when not onceq.holds('onceq.registrant_pkey', registrant_id);
        perform onceq.clerk_wakes(registrant_id);
    end loop;
    select * into who from onceq.registrant r where r.registrant_id = connect.registrant_id;
    was := who.state;
    if who.bell not like '!%' then  -- a desk's looks by itself: a notice would keep others from committing
        perform onceq.ring_clerk(registrant_id);  -- a former life that is waiting elsewhere is over
    end if;
    if who.reply_queue_id is null then
        insert into onceq.queue (name, kind) values ('reply-' || registrant_id, 'reply')
            returning queue_id into who.reply_queue_id;
    end if;
    update onceq.registrant r set epoch = who.epoch + 1, state = 'connected',
        reply_queue_id = who.reply_queue_id, bell = coalesce(p_bell, current_setting('onceq_setting.bell', true)),
        connected_at = onceq.now()
        where r.registrant_id = connect.registrant_id;
    epoch := who.epoch + 1;
    reply_queue := 'reply-' || registrant_id;
    perform onceq.trim_kept(who.reply_queue_id, p_keep) where p_keep is not null;
    select t.s_rid, t.s_no, t.s_state, t.r_rid, t.ckpt into s_rid, s_no, s_state, r_rid, ckpt
        from onceq.session_tags(registrant_id, who.reply_queue_id) t;
end $$;

-- The tags of a client, or of one of its threads (BHM90 3): what it sent last and what it received
-- last. A reply that is kept after its acknowledgement is no longer that of the last send.
create or replace function onceq.session_tags(
    p_registrant integer, p_reply_queue integer,
    out s_rid text, out s_no bigint, out s_state text, out r_rid text, out ckpt bytea
)
language plpgsql stable as $$
declare
    last_sent record;
    last_received onceq.registration;
begin
    select e.rid, e.send_no, e.role::text, e.ack_rid into last_sent from onceq.element e
        where e.registrant_id = p_registrant and e.role in ('request', 'reply')
          and e.send_no is not null and e.lane <> 13 /* kept */ order by e.send_no desc limit 1;
    select * into last_received from onceq.registration r
        where r.registrant_id = p_registrant and r.queue_id = p_reply_queue
        order by r.registration_id desc limit 1;
    if last_sent.rid is not null and last_sent.send_no >= coalesce(last_received.sent_no, 0) then
        s_rid := last_sent.rid; s_no := last_sent.send_no; s_state := last_sent.role;
    else
        s_rid := last_received.sent_rid; s_no := coalesce(last_received.sent_no, 0); s_state := 'done';
    end if;
    r_rid := last_received.rid;
    if last_sent.ack_rid is not null and last_sent.send_no > coalesce(last_received.sent_no, 0) then
        r_rid := last_sent.ack_rid;
    end if;
    ckpt := case when r_rid = last_received.rid then last_received.tag end;
end $$;

-- Everything outstanding of a registrant: its requests and its replies, in order of sending.
create or replace function onceq.outstanding(p_registrant integer, p_epoch bigint)
returns table (rid text, send_no bigint, role text, eid uuid)
language plpgsql volatile as $$
begin
    perform onceq.check_epoch(p_registrant, p_epoch);
    return query select e.rid, e.send_no, e.role::text, e.eid from onceq.element e
        where e.registrant_id = p_registrant and e.role in ('request', 'reply') and e.lane <> 13 /* kept */
        order by e.send_no;
end $$;

-- Returns how many requests and replies are outstanding.
create or replace function onceq.count_outstanding(p_registrant integer, p_epoch bigint) returns bigint
language plpgsql volatile as $$
begin
    perform onceq.check_epoch(p_registrant, p_epoch);
    return (select count(*) from onceq.element e
        where e.registrant_id = p_registrant and e.role in ('request', 'reply') and e.lane <> 13 /* kept */);
end $$;

-- What the end user gave with a request, and its rid, as text in UTF-8: from the request or its reply or,
-- when both are gone, and it was the last, from the record of a receive. One without a rid is of a former
-- version: of what was received. Null if there was no end user.
create or replace function onceq.end_user_text(p_registrant integer, p_rid text, p_queue_id integer)
returns bytea
language plpgsql volatile as $$
declare found_one jsonb;
begin
    select onceq.end_user_of(e.properties) -> 'onceq_end_user' || jsonb_build_object('rid', e.rid)
        into found_one from onceq.element e
        where e.registrant_id = p_registrant and e.rid = p_rid collate "C" and e.lane <> 13 /* kept */;
    if found then
        return convert_to(found_one::text, 'UTF8');
    end if;
    return (select r.body from onceq.registration r where r.registrant_id = p_registrant
        and r.queue_id = p_queue_id
        and coalesce(convert_from(r.body, 'UTF8')::jsonb ->> 'rid', r.rid) = p_rid collate "C"
        order by r.registration_id desc limit 1);
end $$;

-- The end user of a registrant's request, if there was one (C19).
create or replace function onceq.end_user(p_registrant integer, p_epoch bigint, p_rid text)
returns jsonb
language plpgsql volatile as $$
begin
    perform onceq.check_epoch(p_registrant, p_epoch);
    return convert_from(onceq.end_user_text(p_registrant, p_rid,
        (select r.reply_queue_id from onceq.registrant r where r.registrant_id = p_registrant)), 'UTF8')::jsonb;
end $$;

-- Appends what the clerk received last as the registration's tag, and deletes the previous row. Body: who
-- stood behind the request sent last, for connect to show when that is gone.
create or replace function onceq.record_receive(
    p_registrant integer, p_rid text, p_send_no bigint, p_eid uuid, p_ckpt bytea,
    p_sent_rid text, p_sent_no bigint
) returns void
language plpgsql volatile as $$
declare
    queue integer;
    tag_max integer;
    added bigint;
begin
    select q.queue_id, q.tag_bytes_max into queue, tag_max
        from onceq.registrant r join onceq.queue q on q.queue_id = r.reply_queue_id
        where r.registrant_id = p_registrant;
    if octet_length(p_ckpt) > tag_max then
        raise exception 'the checkpoint has % bytes; at most % are taken', octet_length(p_ckpt), tag_max
            using errcode = 'OQ005';
    end if;
    insert into onceq.registration (registrant_id, queue_id, kind, rid, send_no, eid, tag, body,
            sent_rid, sent_no)
        values (p_registrant, queue, 'dequeue', p_rid, p_send_no, p_eid, p_ckpt,
            onceq.end_user_text(p_registrant, p_sent_rid, queue), p_sent_rid, p_sent_no)
        returning registration_id into added;
    delete from onceq.registration
        where registrant_id = p_registrant and queue_id = queue and registration_id < added;
end $$;

-- Ends a session that has nothing outstanding, and leaves a tombstone (finding 3): a later
-- connect says "disconnected" with the rids, so a lost answer to this call is harmless. Kept replies go.
create or replace function onceq.disconnect(
    p_registrant integer, p_epoch bigint, p_received text[], p_r_rid text, p_ckpt bytea,
    p_s_rid text, p_s_no bigint
) returns boolean
language plpgsql volatile as $$
declare open_rid text;
begin
    perform onceq.be_durable();
    perform pg_advisory_xact_lock('onceq.registrant'::regclass::oid::integer, p_registrant);
    perform onceq.check_epoch(p_registrant, p_epoch);
    perform onceq.record_receive(p_registrant, p_r_rid, null, null, p_ckpt, p_s_rid, p_s_no);
    delete from onceq.element where registrant_id = p_registrant and role = 'reply'
        and (rid = any (p_received) or lane = 13 /* kept */);
    select rid into open_rid from onceq.element
        where registrant_id = p_registrant and role in ('request', 'reply') limit 1;
    if open_rid is not null then
        raise exception 'request "%" is still outstanding', open_rid using errcode = 'OQ011';
    end if;
    update onceq.registrant set state = 'disconnected', epoch = epoch + 1
        where registrant_id = p_registrant;
    return true;
end $$;

-- What is known of a rid that was sent before, checked against the content sent now: 'queued',
-- 'replied', or 'done' if its reply was acknowledged, even if that is kept or its history was trimmed; null if
-- the rid is not known. Other content is an error (finding 3).
create or replace function onceq.sent_before(
    p_registrant integer, p_rid text, p_sha256 bytea, out eid uuid, out state text
)
language plpgsql volatile as $$
declare
    known bytea;
    past record;
begin
    select e.eid, case when e.role = 'request' then 'queued' when e.lane <> 13 /* kept */ then 'replied' end,
           case e.role when 'request' then e.sha256 end
        into eid, state, known
        from onceq.element e
        where e.registrant_id = p_registrant and e.rid = p_rid collate "C";
    if state is distinct from 'queued' then
        select h.eid, h.sha256 into past
            from onceq.history h where h.rid = p_rid collate "C" and h.registrant_id = p_registrant
            order by h.finished_at limit 1;
        -- There is its reply, its history, or both; the eid of the request is in the history.
        if found then
            eid := past.eid;
            known := past.sha256;
        end if;
        if eid is null then  -- later than the look into history
            select s.eid, s.sha256 into eid, known from onceq.spent s
                where s.registrant_id = p_registrant and s.rid_sha256 = onceq.rid_sha256(p_rid);
        end if;
        state := case when eid is not null then coalesce(state, 'done') end;
    end if;
    if known is not null and known <> p_sha256 then
        raise exception 'rid "%" was sent before with other content', p_rid using errcode = 'OQ006';
    end if;
end $$;

-- Sends a request: stable when it returns (G6). Removes the replies that it acknowledges (C17).
-- `state` is 'new' or, for a rid sent before, what `sent_before` says. If nothing is in the way, this
-- looks, inserts, and looks into history. Each is a later statement than the locks, and the last
-- is later than the insert: whatever had the rid until just now is seen there, finished. If something
-- is in the way, other functions say what. p_sleep: a new request's clerk falls asleep until its reply.
create or replace function onceq.send(
    p_registrant integer, p_epoch bigint, p_queue text, p_rid text, p_body bytea,
    p_send_no bigint, p_ack text[], p_priority smallint, p_not_before timestamptz,
    p_expires_at timestamptz, p_content_type text, p_properties jsonb, p_own_transaction boolean,
    p_sleep boolean, p_keep integer, out eid uuid, out state text, out bell text
)
language plpgsql volatile
set enable_seqscan = off set enable_hashjoin = off set plan_cache_mode = force_generic_plan as $$
declare
    at_lane smallint := case when p_not_before is null then 9 /* fresh */ - p_priority else 10 /* due */ end;
    x record; asked boolean;
begin
    state := onceq.prepare_tagged(p_registrant, p_queue) || onceq.check_moments(p_not_before, p_expires_at);
    for try in 1 .. 3 loop
        select q.queue_id, r.reply_queue_id, r.has_spent, case when not q.durable then onceq.current_life() end as life
            into x from onceq.registrant r, onceq.queue q
            where r.registrant_id = p_registrant and r.epoch = p_epoch
              and q.name = p_queue collate "C" and q.destroyed_at is null and q.enqueue_started
              and q.kind <> 'reply'
              and octet_length(p_body) <= q.body_bytes_max
              and (at_lane = any (q.lanes) or p_not_before is not null)
              and (r.expires or p_expires_at is null) and (not q.limited or asked);  -- for room
        if found then
            insert into onceq.element (queue_id, reply_queue_id, lane, priority, role, registrant_id,
                    send_no, rid, ack_rid, eid, enqueued_at, not_before, expires_at, content_type,
                    properties, life, sha256, body)
                values (x.queue_id, x.reply_queue_id, at_lane, p_priority, 'request', p_registrant,
                    p_send_no, p_rid, p_ack[cardinality(p_ack)], onceq.new_eid(), onceq.now(),
                    p_not_before, p_expires_at, p_content_type, p_properties, x.life, sha256(p_body), p_body)
                on conflict (registrant_id, rid) do nothing returning element.eid into eid;
            perform from onceq.history h where h.rid = p_rid collate "C" and h.registrant_id = p_registrant;
            exit when eid is not null and not found and not (x.has_spent and onceq.is_spent(p_registrant, p_rid));
            delete from onceq.element e where e.eid = send.eid;
        end if;
        select b.eid, b.state, true into eid, state, asked from onceq.why_not_sent(p_registrant, p_epoch, p_queue,
            p_rid, p_body, at_lane, p_expires_at is not null) b;
        if state is not null then
            return;
        end if;
        perform onceq.check_priority(p_priority);
    end loop;
    if eid is null then
        raise exception 'rid "%" is being sent by others too', p_rid using errcode = '40001';
    end if;
    state := case when p_sleep then onceq.clerk_falls_asleep(p_registrant) end;
    state := case when p_properties ? 'onceq_reports' then onceq.report_asked(eid) end;
    state := 'new';
    bell := onceq.queue_bell(x.queue_id, p_own_transaction);
    if p_not_before is not null then
        perform onceq.check_priority(p_priority), onceq.refuse_delay(eid);
        update onceq.element e set turn = onceq.turn_at(p_not_before) where e.eid = send.eid;
    end if;
    if cardinality(p_ack) > 0 then
        perform onceq.free_replies(p_registrant, p_ack, p_keep);
    end if;
    if x.life is not null and p_own_transaction then
        perform set_config('synchronous_commit', 'off', true);
    end if;
end $$;

-- What every send needs first: READ COMMITTED, a durable commit, and the shared locks of
-- the anchor and of the queue.
create or replace function onceq.prepare_tagged(p_registrant integer, p_queue text) returns text
language plpgsql volatile as $$
begin
    if current_setting('transaction_isolation') <> 'read committed' then
        raise exception 'tagged operations need a READ COMMITTED transaction' using errcode = 'OQ007';
    end if;
    if current_setting('synchronous_commit') = 'off' then
        perform onceq.be_durable();
    end if;
    return concat(
        pg_advisory_xact_lock_shared('onceq.registrant'::regclass::oid::integer, p_registrant),
        pg_advisory_xact_lock_shared('onceq.queue'::regclass::oid::integer, hashtext(p_queue)));
end $$;

-- Returns why a send wrote nothing: an error, or the answer about a rid sent before. Returns nothing
-- if the reason is gone: the lane is in use by now, it is noted that this client sends what expires, or
-- the rid is nowhere any more.
create or replace function onceq.why_not_sent(
    p_registrant integer, p_epoch bigint, p_queue text, p_rid text, p_body bytea, p_lane smallint,
    p_expires boolean, out eid uuid, out state text
)
language plpgsql volatile as $$
declare q onceq.queue;
begin
    perform onceq.check_epoch(p_registrant, p_epoch);
    q := onceq.open_queue(p_queue, p_body);
    perform onceq.open_lane(q.queue_id, p_lane);
    update onceq.registrant set expires = true
        where registrant_id = p_registrant and p_expires and not expires;
    select s.eid, s.state into eid, state from onceq.sent_before(p_registrant, p_rid, sha256(p_body)) s;
    perform onceq.need_room(q.queue_id, 1, octet_length(p_body)) where state is null and q.limited;
end $$;

-- Sends many requests in one transaction, in the order given; the first acknowledges p_ack. p_properties:
-- of each, as JSON; null: none has any.
create or replace function onceq.send_many(
    p_registrant integer, p_epoch bigint, p_queue text, p_rids text[], p_bodies bytea[],
    p_send_no bigint, p_ack text[], p_content_type text, p_own_transaction boolean, p_keep integer,
    p_properties text[] default null
) returns table (eid uuid, state text, bell text)
language plpgsql volatile
set enable_seqscan = off set enable_hashjoin = off set plan_cache_mode = force_generic_plan as $$
declare
    sent integer; gone integer;
    ids uuid[] := array(select onceq.new_eid() from generate_subscripts(p_rids, 1));
    asks boolean := array_to_string(p_properties, '') like '%"onceq_reports"%';  -- for reports: each goes alone
begin
    perform onceq.prepare_tagged(p_registrant, p_queue);
    insert into onceq.element (queue_id, reply_queue_id, lane, role, registrant_id,
            send_no, rid, ack_rid, eid, enqueued_at, content_type, properties, life, sha256, body)
        select s.queue_id, s.reply_queue_id, 5 /* usual */, 'request', p_registrant,
            p_send_no + s.n - 1, s.rid, case when s.n = 1 then p_ack[cardinality(p_ack)] end,
            ids[s.n], onceq.now(), p_content_type, p_properties[s.n]::jsonb,
            case when not s.durable then onceq.current_life() end, sha256(s.body), s.body
        from (select q.queue_id, q.durable, r.reply_queue_id, x.*
            from onceq.registrant r, onceq.queue q,
                unnest(p_rids, p_bodies) with ordinality as x (rid, body, n)
            where r.registrant_id = p_registrant and r.epoch = p_epoch
              and q.name = p_queue collate "C" and q.destroyed_at is null and q.enqueue_started
              and q.kind <> 'reply' and (not r.has_spent or onceq.note_spent()) and asks is not true
              and (not q.limited or onceq.has_room(q.queue_id, p_bodies))
              and octet_length(x.body) <= q.body_bytes_max) s
        on conflict (registrant_id, rid) do nothing;
    get diagnostics sent = row_count;
    -- Were some of these done before? Look for each by the index of rids: a join, planned while
    -- history was short, would read all of history for each batch from then on.
    if exists (select from unnest(p_rids) x (rid), lateral (select from onceq.history h
                   where h.rid = x.rid collate "C" and h.registrant_id = p_registrant offset 0) done)
            or current_setting('onceq_setting.may_be_spent', true) = 'on' then
        delete from onceq.element e where e.eid = any (ids) and e.rid in (select h.rid from onceq.history h
            where h.registrant_id = p_registrant and h.rid = any (p_rids)
            union all select * from onceq.spent_of(p_registrant, p_rids));
        get diagnostics gone = row_count;
        sent := sent - gone;
    end if;
    return query select b.eid, b.state, b.bell from onceq.end_send_many(p_registrant, p_epoch, p_queue,
        p_rids, p_bodies, p_send_no, p_ack, p_content_type, p_own_transaction, ids, sent, p_keep, p_properties) b;
end $$;

-- Answers send_many. Requests that its one statement did not insert, for whatever reason, are sent alone.
create or replace function onceq.end_send_many(
    p_registrant integer, p_epoch bigint, p_queue text, p_rids text[], p_bodies bytea[],
    p_send_no bigint, p_ack text[], p_content_type text, p_own_transaction boolean,
    p_ids uuid[], p_sent integer, p_keep integer, p_properties text[]
) returns table (eid uuid, state text, bell text)
language plpgsql volatile as $$
declare q onceq.queue;
begin
    if p_sent < cardinality(p_rids) then
        perform onceq.check_epoch(p_registrant, p_epoch);
        q := onceq.open_queue(p_queue, null);
        perform onceq.need_room_for_new(q.queue_id, p_registrant, p_rids, p_bodies) where q.limited;
        for i in 1 .. cardinality(p_rids) loop
            select e.eid, 'new', null into eid, state, bell from onceq.element e where e.eid = p_ids[i];
            if eid is null then
                select x.eid, x.state, x.bell into eid, state, bell from onceq.send(p_registrant,
                    p_epoch, p_queue, p_rids[i], p_bodies[i], p_send_no + i - 1,
                    case when i = 1 then p_ack end, 4::smallint, null, null, p_content_type,
                    p_properties[i]::jsonb, p_own_transaction, false, p_keep) x;
            end if;
            return next;
        end loop;
    else
        q := onceq.find_queue(p_queue);
        if not q.durable and p_own_transaction then
            perform set_config('synchronous_commit', 'off', true);
        end if;
        return query select x, 'new', case when n = 1 then onceq.queue_bell(q.queue_id, p_own_transaction) end
            from unnest(p_ids) with ordinality as y (x, n);
    end if;
    if cardinality(p_ack) > 0 and exists (select from onceq.element e
            where e.registrant_id = p_registrant and e.rid = p_rids[1] and e.eid = p_ids[1]) then
        perform onceq.free_replies(p_registrant, p_ack, p_keep);
    end if;
end $$;

-- Expires the requests of a registrant whose time has run out, even if no server runs.
create or replace function onceq.expire_requests(p_registrant integer) returns void
language plpgsql volatile as $$
declare
    due timestamptz := onceq.now();
    e onceq.element;
begin
    for e in select x.* from onceq.element x where x.registrant_id = p_registrant
            and x.role = 'request' and x.expires_at <= due and x.claimed_by is null
            for update skip locked loop
        perform onceq.expire_element(e);
    end loop;
end $$;

-- In how many seconds a registrant's next unclaimed request expires; null: none does.
create or replace function onceq.next_expiry(p_registrant integer, p_epoch bigint) returns double precision
language plpgsql volatile as $$
begin
    perform onceq.check_epoch(p_registrant, p_epoch);
    return (select (onceq.turn_at(min(e.expires_at)) - onceq.turn_at(onceq.now())) / 1000000.0 from onceq.registrant r
        join onceq.element e on e.registrant_id = r.registrant_id
        where r.registrant_id = p_registrant and r.expires and e.role = 'request' and e.claimed_by is null);
end $$;

-- The replies waiting for a registrant, oldest first, without those in p_skip, and only those whose
-- seq is greater than p_after; only that of p_rid, if given, wherever it is, even if it was acknowledged
-- and is kept. With a checkpoint, the reply's rid and that checkpoint first become stable. A
-- plain read tests the epoch in its own snapshot, so it takes no lock. p_asleep: this session is
-- registered as asleep; p_sleep: it falls asleep now. It wakes when there is a reply.
create or replace function onceq.receive(
    p_registrant integer, p_epoch bigint, p_rid text, p_skip text[], p_limit integer,
    p_ckpt bytea, p_s_rid text, p_s_no bigint, p_asleep boolean, p_sleep boolean, p_after bigint
) returns setof onceq.element
language plpgsql volatile
set enable_seqscan = off set enable_bitmapscan = off set enable_sort = off
set plan_cache_mode = force_generic_plan as $$
declare
    e onceq.element;
    is_found boolean := false;
    may_expire boolean;
    asleep text;  -- assigned, not performed: an expression needs no statement
begin
    if p_ckpt is not null then
        perform onceq.be_durable();
        perform onceq.check_epoch(p_registrant, p_epoch);
        for e in select * from onceq.receive(p_registrant, p_epoch, p_rid, p_skip, p_limit, null, null,
                null, p_asleep, p_sleep, p_after) loop
            perform onceq.record_receive(p_registrant, e.rid, e.send_no, e.eid, p_ckpt, p_s_rid, p_s_no);
            return next e;
        end loop;
        return;
    end if;
    if p_sleep then
        asleep := onceq.clerk_falls_asleep(p_registrant);
    end if;
    for try in 1 .. 2 loop
        if p_rid is null then
            return query select x.* from onceq.element x where x.lane = 0 /* reply */ and x.queue_id = (
                    select r.reply_queue_id from onceq.registrant r
                    where r.registrant_id = p_registrant and r.epoch = p_epoch)
                and x.turn > p_after and x.rid not in (select unnest(p_skip)) order by x.turn limit p_limit;
        else
            return query select x.* from onceq.element x where x.registrant_id = (
                    select r.registrant_id from onceq.registrant r
                    where r.registrant_id = p_registrant and r.epoch = p_epoch)
                and x.rid = p_rid collate "C" and x.role = 'reply' and x.rid not in (select unnest(p_skip));
        end if;
        is_found := found;
        exit when is_found or try = 2;
        select r.expires into may_expire from onceq.registrant r
            where r.registrant_id = p_registrant and r.epoch = p_epoch;
        if not found then
            perform onceq.check_epoch(p_registrant, p_epoch);
        end if;
        exit when not may_expire;
        perform onceq.expire_requests(p_registrant);
    end loop;
    if is_found and (p_asleep or p_sleep) then
        is_found := onceq.clerk_wakes(p_registrant);
    end if;
end $$;

-- Removes the replies that the client has recorded (C6), and keeps the rid of the last as received last.
-- But if no checkpoint is given, a reply that was received with one, and is removed only now or still
-- waits, keeps that place (G6). The last p_keep of all that were ever removed stay, for rereceive.
-- Returns how many were waiting.
create or replace function onceq.acknowledge(
    p_registrant integer, p_epoch bigint, p_rids text[], p_ckpt bytea, p_s_rid text, p_s_no bigint,
    p_keep integer
) returns integer
language plpgsql volatile as $$
declare
    removed integer;
    last onceq.registration;
begin
    perform onceq.be_durable();
    perform onceq.check_epoch(p_registrant, p_epoch);
    select r.* into last from onceq.registration r
        join onceq.registrant a on a.registrant_id = r.registrant_id and a.reply_queue_id = r.queue_id
        where r.registrant_id = p_registrant order by r.registration_id desc limit 1;
    if p_ckpt is not null or last.tag is null or not exists (select from onceq.element e
            where e.registrant_id = p_registrant and e.rid = last.rid and e.role = 'reply' and e.lane <> 13 /* kept */) then
        last.rid := p_rids[cardinality(p_rids)];
        last.tag := p_ckpt;
    end if;
    perform onceq.record_receive(p_registrant, last.rid, null, null, last.tag, p_s_rid, p_s_no);
    removed := onceq.free_replies(p_registrant, p_rids, p_keep);
    return removed;
end $$;
