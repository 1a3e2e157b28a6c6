-- The end of an element: its reply, its history row, or its return to a lane. A reply has an empty digest:
-- only requests are ever compared.
-- Tables: element, history, attempt (written), queue, terms, registrant, server, spark_group (read). Locks: the element's
-- row, unless the caller holds it.
--
-- CHARGES. An execution that did not finish is an abort. Aborts are counted, as a request that kills its
-- server each time must not be tried for ever: the n-th moves it to the error queue (Q4). But not each abort
-- is the request's fault, and an innocent one must never end in an error queue (G7). So what an abort costs
-- follows from the evidence of how it came about, and where there is doubt it costs nothing:
--
--   the handler raised, or broke the rules           charge        counted; the n-th fails it
--   the handler gave it up (Reject)                  reject        fails now
--   its process died, and ran nothing else           charge        seen by the supervisor, by a server of the
--                                                                  same machine, or not seen again for 60 s
--   its process died, and ran others too             suspect       not counted; each runs alone from now on,
--                                                                  and then its own death tells; those of one
--                                                                  batch run in halves until they are alone
--   the connection broke, the process lives          environment   not counted; a fault, if this server has
--                                                                  finished others since the last abort
--   the handler says so (Retry)                      retry         the same, always a fault
--   the database went down while it was claimed      fell          a suspect; charged when the database fell
--                                                                  n times in a row while it ran alone
--   claimed, and never begun; stopped in good order  release       nothing at all
--
-- Faults have a bound too, the queue's retry_limit: past it the request runs alone, and is charged from then
-- on. `return_element` is that table; the evidence is gathered in takeover.sql (`started_by`, `broken_by`)
-- and by the server, from the error (`CHARGES`, server/charges.py). ADRs 4 and 18 have the reasons, and
-- what remains possible.

-- Concludes one element: removes it, and writes its reply, if it owes one, and its history row.
-- If p_incarnation is given, only if that still claims it; otherwise the caller has locked its row.
-- Returns how many there were, and the bells to ring after the commit: the caller rings them if
-- p_rings, otherwise their channels are notified.
create or replace function onceq.conclude_one(
    p_seq bigint, p_incarnation bigint, p_outcome onceq.outcome, p_reply bytea default null,
    p_content_type text default null, p_code text default null, p_error text default null,
    p_aborts smallint default null, p_server bigint default null, p_rings boolean default false,
    out concluded bigint, out bells text[], out is_volatile boolean
)
language plpgsql volatile
set enable_seqscan = off set enable_bitmapscan = off set plan_cache_mode = force_generic_plan as $$
declare
    moment timestamptz := onceq.now();
    reply_eid uuid;
    x record;
begin
    delete from onceq.element e using onceq.queue q
        where e.seq = p_seq and (e.claimed_by = p_incarnation or p_incarnation is null)
          and q.queue_id = e.queue_id
        returning e.*, q.keep_body, (select r.bell from onceq.registrant r
            where r.registrant_id = e.registrant_id and e.reply_queue_id is not null) as bell into x;
    get diagnostics concluded = row_count;
    if concluded = 0 then
        return;
    end if;
    perform onceq.ring_suspects() where x.lane = 11 /* suspect */;
    is_volatile := x.life is not null;
    if x.reply_queue_id is not null then
        reply_eid := onceq.new_eid();
        insert into onceq.element (queue_id, lane, priority, role, outcome, registrant_id, send_no, rid,
                ack_rid, eid, correlation_id, enqueued_at, aborts, life, code, error, content_type,
                properties, sha256, body)
            values (x.reply_queue_id, 0 /* reply */, x.priority, 'reply', p_outcome, x.registrant_id, x.send_no, x.rid,
                x.ack_rid, reply_eid, x.eid::text, moment, coalesce(p_aborts, x.aborts), x.life, p_code,
                p_error, p_content_type, case when x.properties is not null then onceq.end_user_of(x.properties) end,
                '', coalesce(p_reply, ''));
        if x.bell is not null then
            bells := array_remove(array[onceq.clerk_bell(x.registrant_id, x.bell, p_rings)], null);
        end if;
    end if;
    insert into onceq.history (finished_at, enqueued_at, send_no, server, queue_id, registrant_id,
            aborts, role, outcome, eid, reply_eid, rid, correlation_id, code, error, sha256, body, reply,
            started_at)
        values (moment, x.enqueued_at, x.send_no, coalesce(p_incarnation, p_server), x.queue_id,
            x.registrant_id, coalesce(p_aborts, x.aborts), x.role, p_outcome, x.eid, reply_eid, x.rid,
            x.correlation_id, p_code, p_error, x.sha256, case when x.keep_body then x.body end,
            case when x.keep_body then p_reply end,
            case when p_incarnation is not null then transaction_timestamp() end);
    if x.properties ? 'onceq_reports' then
        perform onceq.report(p_outcome, x.properties, x.queue_id, x.eid, x.rid, x.registrant_id, p_code, p_error);
    end if;
end $$;

-- The same for all of a batch that p_incarnation still claims, done, with one reply for each seq: as sets.
create or replace function onceq.conclude_batch(
    p_seqs bigint[], p_incarnation bigint, p_replies bytea[], p_content_type text,
    out concluded bigint, out bells text[], out is_volatile boolean
)
language plpgsql volatile
set enable_seqscan = off set enable_hashjoin = off set enable_mergejoin = off
set plan_cache_mode = force_generic_plan as $$
declare
    moment timestamptz := onceq.now();
    any_suspect boolean;
    reported text;
begin
    with gone as (
        delete from onceq.element e using unnest(p_seqs, p_replies) as x (seq, reply), onceq.queue q
            where e.seq = x.seq and e.claimed_by = p_incarnation and q.queue_id = e.queue_id
            returning e.*, q.keep_body, x.reply,
                case when e.reply_queue_id is not null then onceq.new_eid() end as reply_eid
    ), replied as (
        insert into onceq.element (queue_id, lane, priority, role, outcome, registrant_id, send_no, rid,
                ack_rid, eid, correlation_id, enqueued_at, aborts, life, content_type, properties, sha256, body)
            select reply_queue_id, 0 /* reply */, priority, 'reply', 'done', registrant_id, send_no, rid, ack_rid,
                reply_eid, eid::text, moment, aborts, life, p_content_type,
                case when properties is not null then onceq.end_user_of(properties) end, '', reply
            from gone where reply_queue_id is not null
    ), recorded as (
        insert into onceq.history (finished_at, enqueued_at, send_no, server, queue_id, registrant_id,
                aborts, role, outcome, eid, reply_eid, rid, correlation_id, sha256, body, reply, started_at)
            select moment, enqueued_at, send_no, p_incarnation, queue_id, registrant_id, aborts, role,
                'done', eid, reply_eid, rid, correlation_id, sha256, case when keep_body then body end,
                case when keep_body then reply end, transaction_timestamp()
            from gone
    )
    select count(*), array_remove(array_agg(distinct onceq.clerk_bell(r.registrant_id, r.bell, true))
            filter (where r.bell is not null and g.reply_queue_id is not null), null),
        bool_and(g.life is not null), bool_or(g.lane = 11 /* suspect */),
        max(case when g.properties ? 'onceq_reports'
            then onceq.report('done', g.properties, g.queue_id, g.eid, g.rid, g.registrant_id) end)
        into concluded, bells, is_volatile, any_suspect, reported
        from gone g left join onceq.registrant r on r.registrant_id = g.registrant_id;
    perform onceq.ring_suspects() where any_suspect;
end $$;

-- Fails an element for good: to this error queue, with its one failure reply, in one transaction.
create or replace function onceq.fail_element(
    e onceq.element, p_code text, p_error text, p_server bigint, p_error_queue_id integer
) returns void
language plpgsql volatile as $$
begin
    perform onceq.conclude_one(e.seq, null, 'failed', p_code => p_code, p_error => p_error,
        p_aborts => e.aborts, p_server => p_server);
    e.role := 'failed'; e.lane := 12 /* held */; e.claimed_by := null; e.not_before := null; e.together := null;
    e.failed_of := e.registrant_id; e.registrant_id := null;
    e.code := p_code; e.error := p_error;
    e.queue_id := coalesce(p_error_queue_id, e.queue_id);
    insert into onceq.element overriding system value values (e.*);
end $$;

-- Records how an execution was aborted (Q4). p_traceback: where in the handler, if it was there.
create or replace function onceq.record_abort(
    p_eid uuid, p_charge text, p_code text, p_error text, p_server bigint, p_traceback text
) returns void
language sql volatile as $$
    insert into onceq.attempt (ended_at, server, pid, eid, charge, code, error, host, traceback)
        select onceq.now(), p_server, s.pid, p_eid, p_charge, p_code, p_error, s.host, p_traceback
        from (select) one left join onceq.server s on s.incarnation = p_server
$$;

-- Whether a server has finished others of an element's queue since the element's last abort. If so, a
-- fault of the environment that struck it before and after strikes only this element.
create or replace function onceq.others_committed(e onceq.element, p_server bigint) returns boolean
language sql stable as $$
    select exists (select from onceq.history h
        where h.queue_id = e.queue_id and h.outcome = 'done' and h.server = p_server
          and h.finished_at > (select max(a.ended_at) from onceq.attempt a where a.eid = e.eid))
$$;

-- How often in a row an element was held when the database went down, with no other abort in between.
create or replace function onceq.falls_in_a_row(p_eid uuid) returns bigint
language sql stable as $$
    select count(*) from onceq.attempt where eid = p_eid and code = 'database_fell'
        and ended_at > coalesce((select max(ended_at) from onceq.attempt
            where eid = p_eid and code is distinct from 'database_fell'), '-infinity')
$$;

-- Returns a claimed element, charged as the evidence says (G7):
--   charge       an abort of its own; the n-th fails it, or has its queue hold it
--   reject       the handler gave it up; it fails now
--   environment  the environment failed; counted only if this server has finished others since the
--                last abort: uncharged up to its queue's retry limit, then it runs alone and is charged
--   retry        the handler says that the environment failed: the same, and always counted
--   suspect      it may have killed something: uncharged, runs alone from now on, or with p_together at most
--   fell         the database went down while it was claimed: a suspect; one that ran alone is charged
--                if the database went down as often in a row before as its queue's abort limit
--   release      nothing is held against it
-- One that may run with others is no suspect of its own yet, and never charged as one. The abort limit and the error queue
-- are those of its queue, or of the terms on which p_server had claimed it (`queue_for`).
-- p_after_s: how long it then waits; null: its queue's back-off after a charge or a fault, else not at all. The caller
-- holds the row's lock. Returns 'failed', 'held' or 'returned'.
create or replace function onceq.return_element(
    e onceq.element, p_charge text, p_code text, p_error text, p_server bigint, p_traceback text default null,
    p_after_s double precision default null, p_together smallint default null
) returns text
language plpgsql volatile as $$
declare
    q onceq.queue := onceq.queue_for(e, p_server);
    is_suspect boolean := e.lane = 11 /* suspect */;
    ran_alone boolean := is_suspect and e.together is null;
    is_counted boolean;
    is_fault boolean := p_charge in ('environment', 'retry') and coalesce(p_after_s, 0) = 0;
    delay_ms double precision := 0;
    due timestamptz;
begin
    if p_charge = 'fell' then
        p_charge := case when ran_alone and onceq.falls_in_a_row(e.eid) >= q.abort_limit
                         then 'charge' else 'suspect' end;
    end if;
    if p_charge in ('environment', 'retry') then
        is_counted := p_charge = 'retry' or onceq.others_committed(e, p_server);
        p_charge := 'environment';
        e.faults := least(e.faults + is_counted::integer, 1001);
        delay_ms := least(q.backoff_max_ms, q.backoff_ms * power(2, (select count(*) from (
            select from onceq.attempt where eid = e.eid and charge = 'environment' limit 20) former)));
        if is_counted and e.faults > q.retry_limit then
            p_charge := case when ran_alone then 'charge' else 'suspect' end;
        end if;
    end if;
    if p_charge <> 'release' then
        perform onceq.record_abort(e.eid, p_charge, p_code, p_error, p_server, p_traceback);
    end if;
    perform onceq.note_fault(e.queue_id, e.seq) where is_fault;
    if p_charge in ('charge', 'reject') then
        e.aborts := e.aborts + 1;
        if p_charge = 'reject' or e.aborts >= q.abort_limit then
            if p_charge = 'charge' and q.holds then
                perform onceq.hold_element(e, p_code, p_error);
                return 'held';
            end if;
            perform onceq.fail_element(e, p_code, p_error, p_server, q.error_queue_id);
            return 'failed';
        end if;
        delay_ms := least(q.backoff_max_ms, q.backoff_ms * power(2, least(e.aborts - 1, 20)));
    end if;
    due := onceq.now() + coalesce(p_after_s * 1000, delay_ms) * interval '1 millisecond';
    update onceq.element set
        claimed_by = null, aborts = e.aborts, faults = e.faults,
        lane = case when is_suspect or p_charge = 'suspect' then 11 /* suspect */ else 10 /* due */ end,
        not_before = due, turn = onceq.turn_at(due),
        together = case p_charge when 'release' then together when 'suspect' then p_together end,
        code = coalesce(p_code, code), error = coalesce(p_error, error)
        where seq = e.seq;
    perform onceq.queue_bell(e.queue_id, false);
    perform onceq.ring_suspects() where is_suspect;
    return 'returned';
end $$;

-- Gives back, uncharged, what an unknown holder has claimed: neither a session of a server, a
-- group of Spark nor a relay, as after a handler's pg_advisory_unlock_all(). Replies are left alone, for which claimed_by
-- means something else (reply.sql), and so are negative claimants, which only tests have. claimed_by has no
-- index: each call looks at a random 256 pages of the table, and returns how many it gave back.
create or replace function onceq.adopt() returns integer
language plpgsql volatile
set enable_seqscan = off as $$
declare
    slices bigint := ceil(pg_relation_size('onceq.element') / (256.0 * current_setting('block_size')::integer));
    first bigint := floor(random() * slices) * 256;
    e onceq.element;
    adopted integer := 0;
begin
    for e in select x.* from onceq.element x
            where x.ctid >= format('(%s,0)', first)::tid and x.ctid < format('(%s,0)', first + 256)::tid
              and x.claimed_by > 0 and x.role in ('request', 'datagram')
              and not exists (select from onceq.server s where s.incarnation = x.claimed_by)
              and not exists (select from onceq.spark_group g where g.group_no = x.claimed_by)
              and not exists (select from onceq.stream_relay r where r.claim = x.claimed_by)
            for update skip locked loop
        -- In a later statement: a new claimant may have begun after the one above.
        continue when exists (select from onceq.server s where s.incarnation = e.claimed_by)
            or exists (select from onceq.spark_group g where g.group_no = e.claimed_by)
            or exists (select from onceq.stream_relay r where r.claim = e.claimed_by);
        perform onceq.return_element(e, 'release', null, null, null);
        adopted := adopted + 1;
    end loop;
    return adopted;
end $$;

-- Expires an element whose time has run out, unclaimed or claimed just now: one expired reply, in this
-- transaction. The caller holds the row's lock.
create or replace function onceq.expire_element(e onceq.element) returns void
language plpgsql volatile as $$
begin
    perform onceq.be_durable();
    perform onceq.conclude_one(e.seq, null, 'expired', p_code => 'expired',
        p_error => format('expired at %s before it took effect', e.expires_at));
end $$;
