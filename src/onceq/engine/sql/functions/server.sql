-- The server's operations: claim, finish, abort (spec S1, G7).
-- Tables: element, history (written), server, queue (read). Locks: to claim a suspect, that of their lane (advisory, oid
-- of element and 11), tried and never waited for; then elements by seq. Those of sleepers: bell.sql.

-- Claims up to p_n elements of a queue for an incarnation. p_turn counts: even turns look at due elements
-- first, odd ones at fresh ones. A suspect is claimed without others, but for those of its batch with which it
-- may run, behind all others; once it has waited for a second, before the fresh ones on even turns, and before
-- the due ones on every fourth turn; and first of all on turn -1. None is claimed if p_alone is false, nor
-- while another session holds one. Fresh lanes are read from their low-water marks on; with p_everything, from
-- the beginning. p_may_lose: if this is alone in its transaction, the claim of what never failed need not be
-- durable. p_slot: this session's. p_asleep: the
-- queues on which it is asleep; it wakes when it gets something. p_sleep: those on which it falls asleep when
-- it finds nothing, and then looks once more: what came meanwhile rang nobody. p_drowsy: it expects nothing,
-- and so falls asleep before it looks. A row without a seq has in its rid a bell to ring after the commit: one
-- session woke, and there is more.
create or replace function onceq.claim(
    p_incarnation bigint, p_queue_id integer, p_n integer, p_turn integer, p_alone boolean,
    p_everything boolean default false, p_may_lose boolean default false, p_slot integer default null,
    p_asleep integer[] default null, p_sleep integer[] default null, p_drowsy boolean default false
) returns setof onceq.element
language plpgsql volatile
set enable_seqscan = off set enable_bitmapscan = off set enable_sort = off
set plan_cache_mode = force_generic_plan as $$
declare
    q record; e onceq.element; at_lane smallint; low bigint; due bigint; latest bigint;  -- turns
    asleep integer[] := p_asleep; wanted integer := p_n; got integer;
    looks integer := case when p_sleep is null then 1 else 2 end;
begin
    if p_may_lose and pg_current_xact_id_if_assigned() is null then
        perform set_config('synchronous_commit', 'off', true);
    end if;
    for look in case when p_drowsy then looks else 1 end .. looks loop
        asleep := case when look = 2 then onceq.fall_asleep(p_slot, p_sleep) else asleep end;
        select x.lanes, x.low, x.ordered, exists (select from onceq.element y
                where y.queue_id = x.queue_id and y.lane between 10 /* due */ and 11 /* suspect */) and onceq.is_due(x.queue_id) as any_late
            into q from onceq.queue x
            where x.queue_id = p_queue_id and x.dequeue_started and x.kind <> 'reply'
              and (x.paused_until is null or x.paused_until <= onceq.now());
        due := case when q.any_late then onceq.turn_at(onceq.now()) end;
        foreach at_lane in array case when q.ordered then '{5}' /* usual */
                else onceq.lanes_in_turn(q.lanes, q.any_late, p_turn, p_alone) end loop
            exit when wanted = 0;
            continue when abs(at_lane) = 11 /* suspect */ and (wanted < p_n or not onceq.may_claim_suspect(p_incarnation, p_queue_id));
            low := coalesce(case when not p_everything then pg_sequence_last_value(q.low[at_lane + 1]) end, 0);
            latest := case when at_lane >= 10 /* due */ then due when at_lane < 0 then due - 1000000 else 9223372036854775807 end;
            if q.ordered then
                return query select * from onceq.claim_in_order(p_incarnation, p_queue_id, low, p_alone);
                get diagnostics got = row_count;
            elsif abs(at_lane) = 11 /* suspect */ then
                return query select * from onceq.claim_suspects(p_incarnation, p_queue_id, low, latest, wanted);
                get diagnostics got = row_count;
            elsif wanted = 1 then
                e := onceq.claim_next(p_incarnation, p_queue_id, abs(at_lane)::smallint, low, latest);
                continue when e.seq is null;
                return next e;
                got := 1;
            else
                return query select * from onceq.claim_many(p_incarnation, p_queue_id, at_lane, low, latest, wanted);
                get diagnostics got = row_count;
            end if;
            wanted := wanted - got;
            perform onceq.be_durable() where got > 0 and abs(at_lane) >= 10 /* due */;
            exit when got > 0 and abs(at_lane) = 11 /* suspect */;
        end loop;
        exit when wanted < p_n;
    end loop;
    if wanted < p_n then
        if asleep is not null then
            return query select * from onceq.wake_up_for(p_slot, asleep, p_queue_id);
        end if;
        perform onceq.check_marks(p_queue_id, p_incarnation) where p_everything;
    elsif q.lanes is null then
        perform onceq.refuse_reply_queue(p_queue_id);
    end if;
end $$;

-- Whether this queue has a suspect, or an element whose time has come. Asked of a queue that has something in these
-- lanes, under a claim's settings: what is not due yet, perhaps for years, costs a claim this look and no more.
create or replace function onceq.is_due(p_queue_id integer) returns boolean
language plpgsql volatile as $$
begin
    return exists (select from onceq.element where queue_id = p_queue_id and lane = 11 /* suspect */)
        or coalesce((select turn from onceq.element where queue_id = p_queue_id and lane = 10 /* due */
                     order by turn limit 1) <= onceq.turn_at(onceq.now()), false);
end $$;

-- Whether this queue has a suspect and no other session of the repository runs one: if the database
-- goes down, the one that is held is charged, and must not be beside the culprit. The lock,
-- until the claim commits, keeps two from claiming at once; whoever does not get it looks again later.
create or replace function onceq.may_claim_suspect(p_incarnation bigint, p_queue_id integer) returns boolean
language plpgsql volatile as $$
begin
    if not exists (select from onceq.element where queue_id = p_queue_id and lane = 11 /* suspect */ and claimed_by is null)
            or not pg_try_advisory_xact_lock('onceq.element'::regclass::oid::integer, 11 /* suspect */) then
        return false;
    end if;
    return not exists (select from onceq.queue q
        join onceq.element e on e.queue_id = q.queue_id and e.lane = 11 /* suspect */ and e.claimed_by <> p_incarnation
        where q.kind <> 'reply' and exists (select from onceq.server s
            where s.incarnation = e.claimed_by and s.charges is null));
end $$;

-- The lanes that a claim looks at, in order; minus 11: the suspects that have waited for a second.
-- Fresh ones come first on every second turn; due ones and suspects, in turn, on the others:
-- even if there is always more of one kind, it does not keep another waiting. Turn -1 is for a session that
-- has made room for a suspect, which need not have waited.
create or replace function onceq.lanes_in_turn(
    p_lanes smallint[], p_any_late boolean, p_turn integer, p_alone boolean
) returns smallint[]
language sql immutable as $$
    select case when p_lanes is null then '{}' when not p_any_late then p_lanes
        else (case when p_turn < 0 then '{11,10}' /* suspect, due */
                   when p_turn % 2 = 1 then '{}' when not p_alone then '{10}' /* due */
                   when p_turn % 4 = 0 then '{-11,10}' /* suspect, due */ else '{10,-11}' /* due, suspect */ end::smallint[])
             || p_lanes
             || (case when p_turn % 2 = 1 then '{10}' /* due */ else '{}' end::smallint[])
             || (case when p_alone then '{11}' /* suspect */ else '{}' end::smallint[]) end
$$;

-- Claims the next element of a lane, with p_low <= turn <= p_latest; null if there is none. One that
-- `dismiss` removes is not returned. Called by claim, under its settings.
create or replace function onceq.claim_next(
    p_incarnation bigint, p_queue_id integer, p_lane smallint, p_low bigint, p_latest bigint
) returns onceq.element
language plpgsql volatile as $$
declare e onceq.element;
begin
    for try in 1 .. 1000 loop  -- what has expired must not hide what has not
        update onceq.element x set claimed_by = p_incarnation where x.seq = (
                select s.seq from onceq.element s
                where s.queue_id = p_queue_id and s.lane = p_lane and s.turn >= p_low
                  and s.turn <= p_latest and s.claimed_by is null
                order by s.turn limit 1 for update skip locked)
            returning x.* into e;
        if (e.life is null and e.expires_at is null) or not onceq.dismiss(e) then
            return e;
        end if;
    end loop;
    return null;
end $$;

-- Claims the next suspect of a queue, and of those with which it may run together so many that they are p_n at
-- most: what was in a batch whose server died is halved at each death, until the one is found (ADR 29).
create or replace function onceq.claim_suspects(
    p_incarnation bigint, p_queue_id integer, p_low bigint, p_latest bigint, p_n integer
) returns setof onceq.element
language plpgsql volatile as $$
declare e onceq.element := onceq.claim_next(p_incarnation, p_queue_id, 11::smallint /* suspect */, p_low, p_latest);
begin
    if e.seq is not null then
        return next e;
    end if;
    if p_n > 1 and e.together > 1 then
        return query select * from onceq.claim_many(p_incarnation, p_queue_id, 11::smallint /* suspect */, p_low,
            p_latest, least(p_n, e.together) - 1, e.together);
    end if;
end $$;

-- The same as claim_next for up to p_n elements whose bodies have up to 16 MiB, though the last may go beyond: a
-- process that died of what it had claimed, and not begun, would claim the same again, with nobody charged.
-- p_together: only suspects of which so many may run together.
create or replace function onceq.claim_many(
    p_incarnation bigint, p_queue_id integer, p_lane smallint, p_low bigint, p_latest bigint, p_n integer,
    p_together smallint default null
) returns setof onceq.element
language plpgsql volatile as $$
declare
    wanted integer := p_n;
    removed boolean;
    e onceq.element;
begin
    for try in 1 .. 1000 loop
        removed := false;
        for e in update onceq.element x set claimed_by = p_incarnation where x.seq = any (array(
                select seq from (select s.seq, sum(octet_length(s.body)) over (order by s.turn) as bytes,
                        octet_length(s.body) as own from (
                    select seq, turn, body from onceq.element
                    where queue_id = p_queue_id and lane = p_lane and turn >= p_low
                      and turn <= p_latest and claimed_by is null
                      and (p_together is null or together = p_together)
                    order by turn limit wanted for update skip locked) s) s
                where s.bytes - s.own < 16777216))
                returning x.* loop
            if (e.life is not null or e.expires_at is not null) and onceq.dismiss(e) then
                removed := true;
            else
                wanted := wanted - 1;
                return next e;
            end if;
        end loop;
        exit when not removed or wanted = 0;
    end loop;
end $$;

-- Which of these elements an incarnation still claims.
create or replace function onceq.still_claimed(p_seqs bigint[], p_incarnation bigint) returns setof bigint
language sql stable as $$
    select seq from onceq.element where seq = any (p_seqs) and claimed_by = p_incarnation order by seq
$$;

-- Removes an element just claimed that may not be given out: one of an earlier life of the database, or
-- an expired one, with its expired reply. Returns whether it was such an element.
create or replace function onceq.dismiss(e onceq.element) returns boolean
language plpgsql volatile as $$
begin
    if e.life < onceq.current_life() then
        delete from onceq.element where seq = e.seq;
        return true;
    elsif e.expires_at <= onceq.now() then
        perform onceq.expire_element(e);
        return true;
    end if;
    return false;
end $$;

-- A client's own queue has no servers.
create or replace function onceq.refuse_reply_queue(p_queue_id integer) returns void
language plpgsql stable as $$
declare replies text := (select q.name from onceq.queue q where q.queue_id = p_queue_id and q.kind = 'reply');
begin
    if replies is not null then
        raise exception 'queue "%" is a client''s own: only its clerk receives from it', replies
            using errcode = 'OQ011';
    end if;
end $$;

-- Claims one element of a queue by its eid, if it is due and nobody holds it.
create or replace function onceq.claim_eid(p_incarnation bigint, p_queue_id integer, p_eid uuid)
returns setof onceq.element
language plpgsql volatile as $$
declare e onceq.element;
begin
    perform onceq.refuse_in_order(p_queue_id, 'gives no element out of turn');
    update onceq.element x set claimed_by = p_incarnation
        where x.seq = (select seq from onceq.element where eid = p_eid and claimed_by is null
                       and queue_id = p_queue_id and role in ('request', 'datagram')
                       and (lane <= 9 /* fresh */ or lane <= 11 /* suspect */ and not_before <= onceq.now()) for update skip locked)
          and exists (select from onceq.queue where queue_id = p_queue_id and dequeue_started
                      and (paused_until is null or paused_until <= onceq.now()))
        returning x.* into e;
    if e.seq is not null and not onceq.dismiss(e) then
        return next e;
    end if;
end $$;

-- Finishes claimed elements: removes them, writes their replies and history, and claims the next, in
-- the handler's transaction. The fence: this incarnation must still hold them all. p_token was set at begin;
-- it is gone if the handler ended the transaction and its effects are outside (G2). p_effects: the handler may
-- have written something, so the commit is durable even if all elements are volatile. p_sleep, p_drowsy: as for
-- claim. A row without a seq has in its rid a bell to ring after the commit.
create or replace function onceq.finish(
    p_seqs bigint[], p_incarnation bigint, p_replies bytea[], p_content_type text, p_token text,
    p_effects boolean, p_queue_id integer, p_n integer, p_turn integer, p_alone boolean,
    p_slot integer, p_sleep integer[], p_drowsy boolean
) returns setof onceq.element
language plpgsql volatile as $$
declare
    done record;
    e onceq.element;
begin
    if current_setting('onceq_setting.token', true) is distinct from p_token then
        raise exception 'the handler ended the transaction that it was given' using errcode = 'OQ012';
    end if;
    perform set_config('lock_timeout', '0', true);  -- a batch's is short (`begin_text`): here nobody waits for us
    if cardinality(p_seqs) = 1 then
        select * into done from onceq.conclude_one(p_seqs[1], p_incarnation, 'done', p_replies[1],
            p_content_type, p_rings => true);
    else
        select * into done from onceq.conclude_batch(p_seqs, p_incarnation, p_replies, p_content_type);
    end if;
    if done.concluded < cardinality(p_seqs) then
        raise exception 'of elements % only % are still claimed by incarnation %',
            p_seqs, done.concluded, p_incarnation using errcode = 'OQ002';
    end if;
    if current_setting('synchronous_commit') in ('off', 'local')
            and (p_effects or done.is_volatile is distinct from true) then  -- by the handler
        perform set_config('synchronous_commit', 'on', true);
    end if;
    if p_n > 0 then
        return query select * from onceq.claim(p_incarnation, p_queue_id, p_n, p_turn, p_alone,
            p_slot => p_slot, p_sleep => p_sleep, p_drowsy => p_drowsy);
    end if;
    if done.bells is not null then
        foreach e.rid in array done.bells loop
            return next e;
        end loop;
    end if;
end $$;

-- Ends an execution that failed: after the rollback, in a transaction of its own, so that the
-- count is durable outside what was aborted (finding 4). The marker is cleared: this execution
-- is accounted for. Returns 'failed', 'held' or 'returned', or 'lost' if the incarnation no longer claims the element.
create or replace function onceq.abort(
    p_seq bigint, p_incarnation bigint, p_charge text, p_code text, p_error text, p_traceback text default null,
    p_after_s double precision default null, p_together smallint default null
) returns text
language plpgsql volatile as $$
declare e onceq.element;
begin
    perform onceq.be_durable();
    select * into e from onceq.element where seq = p_seq and claimed_by = p_incarnation for update;
    perform setval(('onceq.started_' || slot)::regclass, 0) from onceq.server
        where incarnation = p_incarnation;
    if p_charge in ('environment', 'retry') then
        perform onceq.tidy_session();
    end if;
    if e.seq is null then
        return 'lost';
    end if;
    return onceq.return_element(e, p_charge, p_code, p_error, p_incarnation, p_traceback, p_after_s, p_together);
end $$;
