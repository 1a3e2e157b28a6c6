-- The end of an element: its reply, its history row, or its return to a lane.
-- Tables: element, history (written), queue (read). Locks: the element's row, held by the caller.

-- Writes the reply that an element owes and its history row; the caller has removed it from
-- its queue in this same transaction. Returns the reply's eid, or null where none is owed.
create or replace function onceq.conclude(
    e onceq.element, p_outcome onceq.outcome, p_code text, p_error text,
    p_reply bytea, p_content_type text, p_server bigint
) returns uuid
language plpgsql volatile as $$
declare
    reply_id uuid;
    keep boolean;
begin
    if e.reply_queue_id is not null then
        reply_id := onceq.new_eid();
        insert into onceq.element (queue_id, lane, priority, role, outcome, registrant_id, send_no,
                rid, ack_rid, eid, correlation_id, enqueued_at, aborts, code, error,
                content_type, sha256, body)
            values (e.reply_queue_id, 9 - e.priority, e.priority, 'reply', p_outcome, e.registrant_id,
                e.send_no, e.rid, e.ack_rid, reply_id, e.eid::text, onceq.now(), e.aborts,
                p_code, p_error, p_content_type, sha256(coalesce(p_reply, '')), coalesce(p_reply, ''));
    end if;
    select keep_body into keep from onceq.queue where queue_id = e.queue_id;
    insert into onceq.history (finished_at, enqueued_at, send_no, server, queue_id, registrant_id,
            aborts, role, outcome, eid, reply_eid, rid, correlation_id, code, error, sha256, body, reply)
        values (onceq.now(), e.enqueued_at, e.send_no, p_server, e.queue_id, e.registrant_id,
            e.aborts, e.role, p_outcome, e.eid, reply_id, e.rid, e.correlation_id, p_code, p_error,
            e.sha256, case when keep then e.body end, case when keep then p_reply end);
    return reply_id;
end $$;

-- Fails an element for good: to its error queue, with its one failure reply, in one transaction.
create or replace function onceq.fail_element(
    e onceq.element, p_code text, p_error text, p_server bigint
) returns void
language plpgsql volatile as $$
begin
    update onceq.element set
        role = 'failed', lane = 12, claimed_by = null, not_before = null, aborts = e.aborts,
        code = p_code, error = p_error,
        queue_id = (select coalesce(error_queue_id, queue_id) from onceq.queue where queue_id = e.queue_id)
        where seq = e.seq;
    perform onceq.conclude(e, 'failed', p_code, p_error, null, null, p_server);
end $$;

-- Returns a claimed element, charged as the evidence says (G7):
--   charge       an abort of its own; the n-th fails it
--   reject       the handler gave it up; it fails now
--   environment  the environment failed: uncharged 10 times, then it runs alone and is charged
--   suspect      it may have killed something: uncharged, runs alone from now on
--   release      nothing is held against it
-- The caller holds the row's lock. Returns 'failed' or 'returned'.
create or replace function onceq.return_element(
    e onceq.element, p_charge text, p_code text, p_error text, p_server bigint
) returns text
language plpgsql volatile as $$
declare
    q onceq.queue;
    is_suspect boolean := e.lane = 11;
    delay_ms double precision := 0;
begin
    select * into q from onceq.queue where queue_id = e.queue_id;
    if p_charge = 'environment' then
        e.faults := least(e.faults + 1, 1000);
        delay_ms := least(q.backoff_max_ms, q.backoff_ms * power(2, least(e.faults - 1, 20)));
        if e.faults > 10 then
            p_charge := case when is_suspect then 'charge' else 'suspect' end;
        end if;
    end if;
    if p_charge in ('charge', 'reject') then
        e.aborts := e.aborts + 1;
        if p_charge = 'reject' or e.aborts >= q.abort_limit then
            perform onceq.fail_element(e, p_code, p_error, p_server);
            return 'failed';
        end if;
        delay_ms := least(q.backoff_max_ms, q.backoff_ms * power(2, least(e.aborts - 1, 20)));
    end if;
    update onceq.element set
        claimed_by = null, aborts = e.aborts, faults = e.faults,
        lane = case when is_suspect or p_charge = 'suspect' then 11 else 10 end,
        not_before = onceq.now() + delay_ms * interval '1 millisecond',
        code = coalesce(p_code, code), error = coalesce(p_error, error)
        where seq = e.seq;
    return 'returned';
end $$;

-- Expires an unclaimed element whose time has come: one expired reply, in this transaction.
create or replace function onceq.expire_element(e onceq.element) returns void
language plpgsql volatile as $$
begin
    delete from onceq.element where seq = e.seq;
    perform onceq.conclude(e, 'expired', 'expired',
        format('expired at %s before it took effect', e.expires_at), null, null, null);
end $$;
