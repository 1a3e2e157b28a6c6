-- The plain case of what is done for each request, flat: scalars in and out, and one statement for each
-- thing that is done (ADR 26). Nothing rare is decided here: it is left to the general functions, which
-- look at everything anew, in the same transaction.
-- Tables: registrant, queue, spent (read), element, history (written). Locks: as in request.sql and server.sql.

-- Sends a request, as `send` does; returns eid, state and bell, with a blank between them. The plain case is
-- one of a clerk's own session, which has the settings that `send` makes for itself. p_sha256: of the body.
create or replace function onceq.send_one(
    p_registrant integer, p_epoch bigint, p_queue text, p_rid text, p_body bytea, p_send_no bigint,
    p_ack text[], p_priority smallint, p_not_before timestamptz, p_expires_at timestamptz,
    p_content_type text, p_properties jsonb, p_own_transaction boolean, p_sleep boolean,
    p_keep integer, p_sha256 bytea
) returns text
language plpgsql volatile as $$
declare
    at_lane smallint := 9 /* fresh */ - p_priority;
    home integer; replies integer; may_be_spent boolean; id uuid;
    done text;  -- assigned, not performed: an expression needs no statement
begin
    if p_own_transaction and coalesce(p_not_before, p_expires_at) is null and (p_properties ? 'onceq_reports') is not true
            and current_setting('onceq_setting.lean', true) = 'on'
            and current_setting('transaction_isolation') = 'read committed'
            and current_setting('synchronous_commit') <> 'off' then
        done := concat(
            pg_advisory_xact_lock_shared('onceq.registrant'::regclass::oid::integer, p_registrant),
            pg_advisory_xact_lock_shared('onceq.queue'::regclass::oid::integer, hashtext(p_queue)));
        select r.reply_queue_id, r.has_spent into replies, may_be_spent from onceq.registrant r
            where r.registrant_id = p_registrant and r.epoch = p_epoch;
        if replies is not null then
            select q.queue_id into home from onceq.queue q
                where q.name = p_queue collate "C" and q.destroyed_at is null and q.enqueue_started
                  and q.kind <> 'reply' and q.durable and not q.limited and octet_length(p_body) <= q.body_bytes_max
                  and at_lane = any (q.lanes);
        end if;
    end if;
    if home is not null then
        id := onceq.new_eid();
        insert into onceq.element (queue_id, reply_queue_id, lane, priority, role, registrant_id, send_no,
                rid, ack_rid, eid, enqueued_at, content_type, properties, sha256, body)
            values (home, replies, at_lane, p_priority, 'request', p_registrant, p_send_no,
                p_rid, p_ack[cardinality(p_ack)], id, onceq.now(), p_content_type, p_properties, p_sha256, p_body)
            on conflict (registrant_id, rid) do nothing;
        if found then
            perform from onceq.history h where h.rid = p_rid collate "C" and h.registrant_id = p_registrant;
            if not found and not (may_be_spent and onceq.is_spent(p_registrant, p_rid)) then
                done := case when p_sleep then onceq.clerk_falls_asleep(p_registrant) end;
                done := case when cardinality(p_ack) > 0 then onceq.free_replies(p_registrant, p_ack, p_keep) end;
                return concat(id, ' new ', onceq.queue_bell(home, true));
            end if;
            delete from onceq.element e where e.eid = id;
        end if;
    end if;
    return (select concat(s.eid, ' ', s.state, ' ', s.bell) from onceq.send(p_registrant, p_epoch, p_queue,
        p_rid, p_body, p_send_no, p_ack, p_priority, p_not_before, p_expires_at, p_content_type,
        p_properties, p_own_transaction, p_sleep, p_keep) s);
end $$;

-- Concludes one request whose handler has succeeded, as `conclude_one` does, if p_incarnation still claims
-- it: that is the fence. Returns the bell to ring after the commit, or null.
create or replace function onceq.conclude_done(
    p_seq bigint, p_incarnation bigint, p_reply bytea, p_content_type text, p_token text, p_effects boolean,
    p_keeps_body boolean
) returns text
language plpgsql volatile as $$
declare
    moment timestamptz := onceq.now();
    x record; reply_id uuid; bell text;
begin
    if current_setting('onceq_setting.token', true) is distinct from p_token then
        raise exception 'the handler ended the transaction that it was given' using errcode = 'OQ012';
    end if;
    delete from onceq.element d where d.seq = p_seq and d.claimed_by = p_incarnation
        returning d.queue_id, d.reply_queue_id, d.registrant_id, d.lane, d.priority, d.role, d.aborts, d.life,
            d.send_no, d.rid, d.ack_rid, d.eid, d.correlation_id, d.enqueued_at, d.properties, d.sha256, d.body
        into x;
    if not found then
        raise exception 'element % is no longer claimed by incarnation %', p_seq, p_incarnation
            using errcode = 'OQ002';
    elsif x.lane = 11 /* suspect */ then
        perform onceq.ring_suspects();
    end if;
    if x.reply_queue_id is not null then
        reply_id := onceq.new_eid();
        insert into onceq.element (queue_id, lane, priority, role, outcome, registrant_id, send_no, rid,
                ack_rid, eid, correlation_id, enqueued_at, aborts, life, content_type, properties, sha256, body)
            values (x.reply_queue_id, 0 /* reply */, x.priority, 'reply', 'done', x.registrant_id, x.send_no, x.rid,
                x.ack_rid, reply_id, x.eid::text, moment, x.aborts, x.life, p_content_type,
                case when x.properties is not null then onceq.end_user_of(x.properties) end, '', coalesce(p_reply, ''));
        if not (pg_try_advisory_lock('onceq.registrant_pkey'::regclass::oid::integer, x.registrant_id)
                and pg_advisory_unlock('onceq.registrant_pkey'::regclass::oid::integer, x.registrant_id)
                -- 0: a desk's (`keep_desk`)
                and pg_try_advisory_lock('onceq.registrant_pkey'::regclass::oid::integer, 0)
                and pg_advisory_unlock('onceq.registrant_pkey'::regclass::oid::integer, 0)) then
            select onceq.clerk_bell(r.registrant_id, r.bell, true) into bell from onceq.registrant r
                where r.registrant_id = x.registrant_id and r.bell is not null;
        end if;
    end if;
    insert into onceq.history (finished_at, enqueued_at, send_no, server, queue_id, registrant_id, aborts,
            role, outcome, eid, reply_eid, rid, correlation_id, sha256, body, reply, started_at)
        values (moment, x.enqueued_at, x.send_no, p_incarnation, x.queue_id, x.registrant_id, x.aborts, x.role,
            'done', x.eid, reply_id, x.rid, x.correlation_id, x.sha256, case when p_keeps_body then x.body end,
            case when p_keeps_body then p_reply end, transaction_timestamp());
    if x.properties ? 'onceq_reports' then
        perform onceq.report('done', x.properties, x.queue_id, x.eid, x.rid, x.registrant_id);
    end if;
    if current_setting('synchronous_commit') in ('off', 'local') and (p_effects or x.life is null) then
        perform set_config('synchronous_commit', 'on', true);  -- the handler had changed it
    end if;
    return bell;
end $$;

-- Claims the next request of a queue, as `claim` does for one; before that, unless p_seq is null, finishes one that
-- must still be claimed, as `finish` does. Its columns are those in which elements are read, and the bells to ring
-- after the commit. `claim` decides whatever is not fresh, and falls asleep when nothing is found.
create or replace function onceq.claim_one(
    p_incarnation bigint, p_queue_id integer, p_n integer, p_turn integer, p_alone boolean, p_may_lose boolean,
    p_slot integer, p_asleep integer[], p_sleep integer[], p_drowsy boolean,
    p_seq bigint, p_reply bytea, p_content_type text, p_token text, p_effects boolean,
    out seq bigint, out eid uuid, out rid text, out body bytea, out role text, out queue_id integer, out lane smallint,
    out priority smallint, out aborts smallint, out enqueued_at timestamptz, out owes_reply boolean, out outcome text,
    out registrant_id integer, out send_no bigint, out correlation_id text, out content_type text, out properties jsonb,
    out not_before timestamptz, out expires_at timestamptz, out code text, out error text, out bells text[]
)
language plpgsql volatile
set enable_seqscan = off set enable_bitmapscan = off set enable_sort = off
set plan_cache_mode = force_generic_plan as $$
declare
    q record; e onceq.element; at_lane smallint; low bigint; of_life bigint; looks_again boolean;
    asleep integer[] := case when p_drowsy and p_n > 0 and p_sleep is not null
        then onceq.fall_asleep(p_slot, p_sleep) else p_asleep end;  -- before it looks: what comes now rings
begin
    if p_may_lose and pg_current_xact_id_if_assigned() is null then
        perform set_config('synchronous_commit', 'off', true);
    end if;
    select s.keep_body, s.lanes, s.low, s.dequeue_started and s.kind <> 'reply' and not s.ordered and s.paused_until is null and not (exists (select from onceq.element y
            where y.queue_id = s.queue_id and y.lane between 10 /* due */ and 11 /* suspect */) and onceq.is_due(s.queue_id)) as is_plain
        into q from onceq.queue s where s.queue_id = p_queue_id;
    if p_seq is not null then
        bells[1] := onceq.conclude_done(p_seq, p_incarnation, p_reply, p_content_type, p_token, p_effects, q.keep_body);
    end if;
    looks_again := q.is_plain is not true;
    foreach at_lane in array case when p_n > 0 and not looks_again then q.lanes else '{}' end loop
        low := pg_sequence_last_value(q.low[at_lane + 1]);
        update onceq.element u set claimed_by = p_incarnation where u.seq = (
                select s.seq from onceq.element s where s.queue_id = p_queue_id and s.lane = at_lane
                  and s.turn >= coalesce(low, 0) and s.claimed_by is null
                order by s.turn limit 1 for update skip locked)
            returning u.seq, u.eid, u.rid, u.body, u.role::text, u.queue_id, u.lane, u.priority, u.aborts,
                u.enqueued_at, u.reply_queue_id is not null, u.registrant_id, u.send_no, u.correlation_id,
                u.content_type, u.properties, u.not_before, u.expires_at, u.life
            into seq, eid, rid, body, role, queue_id, lane, priority, aborts, enqueued_at, owes_reply,
                registrant_id, send_no, correlation_id, content_type, properties, not_before, expires_at, of_life;
        exit when seq is not null;
    end loop;
    if of_life is not null or expires_at is not null then
        select u.* into e from onceq.element u where u.seq = claim_one.seq;
        looks_again := onceq.dismiss(e);
    end if;
    if p_n > 0 and (looks_again or (seq is null and asleep is null and p_sleep is not null)) then
        seq := null;
        for e in select * from onceq.claim(p_incarnation, p_queue_id, 1, p_turn, p_alone, false, p_may_lose, p_slot,
                asleep, case when asleep is null then p_sleep end, not looks_again) loop
            bells := case when e.seq is null then bells || e.rid else bells end;
            continue when e.seq is null;
            select e.seq, e.eid, e.rid, e.body, e.role::text, e.queue_id, e.lane, e.priority, e.aborts, e.enqueued_at,
                    e.reply_queue_id is not null, e.registrant_id, e.send_no, e.correlation_id, e.content_type,
                    e.properties, e.not_before, e.expires_at, e.code, e.error
                into seq, eid, rid, body, role, queue_id, lane, priority, aborts, enqueued_at, owes_reply,
                    registrant_id, send_no, correlation_id, content_type, properties, not_before, expires_at, code, error;
        end loop;
    elsif seq is not null and asleep is not null then
        bells := bells || array(select w.rid from onceq.wake_up_for(p_slot, asleep, p_queue_id) w);
    end if;
end $$;
