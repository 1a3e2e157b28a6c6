-- The plain case of what is done for each request, flat: scalars in and out, and one statement for each
-- thing that is done (ADR 24). Nothing rare is decided here: it is left to the general functions, which
-- look at everything anew, in the same transaction.
-- Tables: registrant, queue (read), element, history (written). Locks: as in request.sql and server.sql.

-- Sends a request, as `send` does; returns eid, state and bell, with a blank between them. Only in a
-- session of a clerk's own, which has the settings that `send` makes for itself. p_sha256: of the body.
create or replace function onceq.send_one(
    p_registrant integer, p_epoch bigint, p_queue text, p_rid text, p_body bytea, p_send_no bigint,
    p_ack text[], p_priority smallint, p_not_before timestamptz, p_expires_at timestamptz,
    p_content_type text, p_properties jsonb, p_own_transaction boolean, p_sleep boolean,
    p_keep integer, p_sha256 bytea
) returns text
language plpgsql volatile as $$
declare
    at_lane smallint := 9 /* fresh */ - p_priority;
    home integer; replies integer; id uuid;
    done text;  -- assigned, not performed: an expression needs no statement
begin
    if p_own_transaction and coalesce(p_not_before, p_expires_at) is null
            and current_setting('onceq_setting.lean', true) = 'on'
            and current_setting('transaction_isolation') = 'read committed'
            and current_setting('synchronous_commit') <> 'off' then
        done := concat(
            pg_advisory_xact_lock_shared('onceq.registrant'::regclass::oid::integer, p_registrant),
            pg_advisory_xact_lock_shared('onceq.queue'::regclass::oid::integer, hashtext(p_queue)));
        select r.reply_queue_id into replies from onceq.registrant r
            where r.registrant_id = p_registrant and r.epoch = p_epoch;
        if replies is not null then
            select q.queue_id into home from onceq.queue q
                where q.name = p_queue collate "C" and q.destroyed_at is null and q.enqueue_started
                  and q.kind <> 'reply' and q.durable and octet_length(p_body) <= q.body_bytes_max
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
            if not found then
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
