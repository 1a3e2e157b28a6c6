-- The end of an element: its reply, its history row, or its return to a lane.
-- Tables: element, history (written), queue (read). Locks: the element's row, held by the caller.

-- Concludes claimed elements: removes those that p_incarnation still claims (null: whoever does), and
-- writes their replies, where one is owed, and their history rows: one statement for one or many.
-- p_replies: one a seq, or null. Answers how many there were, and the bells to ring after the commit:
-- the caller's to ring if p_rings, else their channels are notified.
create or replace function onceq.conclude(
    p_seqs bigint[], p_incarnation bigint, p_outcome onceq.outcome, p_replies bytea[], p_content_type text,
    p_code text default null, p_error text default null, p_aborts smallint default null,
    p_server bigint default null, p_rings boolean default true,
    out concluded bigint, out bells text[], out is_volatile boolean
)
language plpgsql volatile
set enable_seqscan = off set enable_hashjoin = off set enable_mergejoin = off
set plan_cache_mode = force_generic_plan as $$
declare moment timestamptz := onceq.now();
begin
    with gone as (
        delete from onceq.element e using unnest(p_seqs, p_replies) as x (seq, reply), onceq.queue q
            where e.seq = x.seq and (e.claimed_by = p_incarnation or p_incarnation is null)
              and q.queue_id = e.queue_id
            returning e.queue_id, e.reply_queue_id, e.registrant_id, e.send_no, e.rid, e.ack_rid, e.eid,
                e.correlation_id, e.role, e.priority, coalesce(p_aborts, e.aborts) as aborts, e.life,
                e.enqueued_at, e.sha256, case when q.keep_body then e.body end as body, q.keep_body,
                x.reply, case when e.reply_queue_id is not null then onceq.new_eid() end as reply_eid
    ), replied as (
        insert into onceq.element (queue_id, lane, priority, role, outcome, registrant_id, send_no, rid,
                ack_rid, eid, correlation_id, enqueued_at, aborts, life, code, error, content_type,
                sha256, body)
            select reply_queue_id, 0, priority, 'reply', p_outcome, registrant_id, send_no, rid, ack_rid,
                reply_eid, eid::text, moment, aborts, life, p_code, p_error, p_content_type,
                sha256(coalesce(reply, '')), coalesce(reply, '')
            from gone where reply_queue_id is not null
    ), recorded as (
        insert into onceq.history (finished_at, enqueued_at, send_no, server, queue_id, registrant_id,
                aborts, role, outcome, eid, reply_eid, rid, correlation_id, code, error, sha256, body, reply)
            select moment, enqueued_at, send_no, coalesce(p_incarnation, p_server), queue_id, registrant_id,
                aborts, role, p_outcome, eid, reply_eid, rid, correlation_id, p_code, p_error, sha256, body,
                case when keep_body then reply end
            from gone
    )
    select count(*), array_remove(array_agg(distinct onceq.clerk_bell(r.registrant_id, r.bell, p_rings))
            filter (where r.bell is not null and g.reply_queue_id is not null), null),
        bool_and(g.life is not null)
        into concluded, bells, is_volatile
        from gone g left join onceq.registrant r on r.registrant_id = g.registrant_id;
end $$;

-- Concludes an element whose row the caller has locked, whoever claims it, with no body to reply.
create or replace function onceq.conclude_one(
    e onceq.element, p_outcome onceq.outcome, p_code text, p_error text, p_server bigint
) returns void
language plpgsql volatile as $$
begin
    perform onceq.conclude(array[e.seq], null, p_outcome, array[null::bytea], null, p_code, p_error,
        e.aborts, p_server, false);
end $$;

-- Fails an element for good: to its error queue, with its one failure reply, in one transaction.
create or replace function onceq.fail_element(
    e onceq.element, p_code text, p_error text, p_server bigint
) returns void
language plpgsql volatile as $$
begin
    perform onceq.conclude_one(e, 'failed', p_code, p_error, p_server);
    e.role := 'failed'; e.lane := 12; e.claimed_by := null; e.not_before := null;
    e.failed_of := e.registrant_id; e.registrant_id := null;
    e.code := p_code; e.error := p_error;
    e.queue_id := (select coalesce(error_queue_id, queue_id) from onceq.queue where queue_id = e.queue_id);
    insert into onceq.element overriding system value values (e.*);
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
    due timestamptz;
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
    due := onceq.now() + delay_ms * interval '1 millisecond';
    update onceq.element set
        claimed_by = null, aborts = e.aborts, faults = e.faults,
        lane = case when is_suspect or p_charge = 'suspect' then 11 else 10 end,
        not_before = due, turn = onceq.turn_at(due),
        code = coalesce(p_code, code), error = coalesce(p_error, error)
        where seq = e.seq;
    return 'returned';
end $$;

-- Expires an unclaimed element whose time has come: one expired reply, in this transaction.
create or replace function onceq.expire_element(e onceq.element) returns void
language plpgsql volatile as $$
begin
    perform onceq.be_durable();
    perform onceq.conclude_one(e, 'expired', 'expired',
        format('expired at %s before it took effect', e.expires_at), null);
end $$;
