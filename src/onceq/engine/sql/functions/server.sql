-- The server's operations: incarnations, claim, finish, abort, takeover (spec S1, G7).
-- Tables: server, element, history. Locks: server slots (advisory), then elements by seq.

-- Begins an incarnation in a slot that is free and has no row; this session then holds its lock
-- for life. p_former names this session's former incarnation, whose connection broke: the
-- process did not die, so the environment is to blame. While a ghost of it lives, which may yet
-- finish, or commit a claim that nobody sees, its row is left for a later take_over.
create or replace function onceq.open_incarnation(
    p_process uuid, p_host text, p_pid integer, p_former bigint,
    out slot integer, out incarnation bigint, out backend_pid integer
)
language plpgsql volatile as $$
declare
    class integer := 'onceq.server'::regclass::oid::integer;
    is_gone boolean;
begin
    perform onceq.be_durable();
    perform onceq.drop_unreadable();
    select pg_try_advisory_xact_lock(class, x.slot) into is_gone
        from onceq.server x where x.incarnation = p_former;
    if onceq.revoke(p_former, onceq.broken_by(p_former)) and is_gone then
        delete from onceq.server x where x.incarnation = p_former;
    end if;
    perform onceq.take_over(p_process);
    for s in 1 .. 10000 loop
        if pg_try_advisory_lock(class, s) then
            if not exists (select from onceq.server x where x.slot = s) then
                slot := s;
                exit;
            end if;
            perform pg_advisory_unlock(class, s);
        end if;
    end loop;
    if to_regclass('onceq.started_' || slot) is null then
        execute format('create unlogged sequence onceq.%I minvalue -9223372036854775808 start 0',
            'started_' || slot);
    end if;
    perform setval(('onceq.started_' || slot)::regclass, 0);
    incarnation := nextval('onceq.incarnation_seq');
    backend_pid := pg_backend_pid();
    insert into onceq.server (slot, incarnation, process, host, pid, backend_pid, postmaster_start,
            queue_ids, bell)
        values (slot, incarnation, p_process, p_host, p_pid, backend_pid, pg_postmaster_start_time(),
            '{}', current_setting('onceq_setting.bell', true));
end $$;

-- Ends an incarnation, from its own session or another: what it still holds goes back, uncharged.
-- While its session lives, which may be just finishing or claiming, its row is left for a later
-- take_over.
create or replace function onceq.close_incarnation(p_incarnation bigint) returns boolean
language plpgsql volatile as $$
declare
    s onceq.server;
    is_gone boolean;
begin
    perform onceq.be_durable();
    select * into s from onceq.server where incarnation = p_incarnation;
    is_gone := pg_try_advisory_xact_lock('onceq.server'::regclass::oid::integer, s.slot);
    if onceq.revoke(p_incarnation, null) and is_gone then
        delete from onceq.server where incarnation = p_incarnation;
    end if;
    if s.backend_pid = pg_backend_pid() then
        perform pg_advisory_unlock('onceq.server'::regclass::oid::integer, s.slot);
    end if;
    return s.slot is not null;
end $$;

-- Returns what a dead incarnation holds. p_charges maps the seqs it had started to 'charge' or
-- 'suspect'; what is not in it comes back uncharged. Safety comes from the fence, claimed_by: a
-- ghost that is just finishing holds its row, is skipped, and wins. False when rows were left.
create or replace function onceq.revoke(p_incarnation bigint, p_charges jsonb) returns boolean
language plpgsql volatile as $$
declare
    e onceq.element;
    charge text;
begin
    for e in select * from onceq.element where claimed_by = p_incarnation order by seq
            for update skip locked loop
        charge := coalesce(p_charges ->> e.seq::text, 'release');
        perform onceq.return_element(e, charge,
            case when charge <> 'release' then 'server_died' end,
            case when charge <> 'release'
                 then format('incarnation %s ended while it ran', p_incarnation) end,
            p_incarnation);
    end loop;
    return not exists (select from onceq.element where claimed_by = p_incarnation);
end $$;

-- Takes over from every process that has died: all its slots' locks are free. Evidence decides
-- (G7): one started element is charged; when several had started, nobody knows which killed the
-- process, and they become suspects; when the database itself went down meanwhile, likewise. Of
-- the caller's own process it takes over the slots whose connections broke.
create or replace function onceq.take_over(p_process uuid) returns integer
language plpgsql volatile as $$
declare
    class integer := 'onceq.server'::regclass::oid::integer;
    dead record;
    charges jsonb;
    taken integer := 0;
begin
    perform onceq.take_over_slot(s.slot, p_process, onceq.broken_by(s.incarnation))
        from onceq.server s where s.process = p_process and s.backend_pid <> pg_backend_pid()
          and pg_try_advisory_xact_lock(class, s.slot);
    for dead in select s.process, array_agg(s.slot order by s.slot) as slots from onceq.server s
            where s.process <> p_process group by s.process loop
        continue when exists (select from unnest(dead.slots) x where not pg_try_advisory_xact_lock(class, x));
        charges := onceq.started_by(dead.process);
        perform onceq.take_over_slot(x, dead.process, charges) from unnest(dead.slots) x;
        taken := taken + 1;
    end loop;
    perform onceq.spark_take_over(null, 60);  -- a Spark server of the same name has the first minute
    return taken;
end $$;

-- Takes over one slot of a dead process; its row goes when nothing is left claimed. After the
-- lock, in a new statement: the slot may have a new owner, or none, by now.
create or replace function onceq.take_over_slot(p_slot integer, p_process uuid, p_charges jsonb)
returns void
language plpgsql volatile as $$
declare s onceq.server;
begin
    select * into s from onceq.server where slot = p_slot and process = p_process for update;
    if s.slot is not null and onceq.revoke(s.incarnation, p_charges) then
        delete from onceq.server where slot = p_slot and incarnation = s.incarnation;
    end if;
end $$;

-- What a dead process had started and not finished, as {seq: charge}. The marker is a sequence,
-- so it survived the rollback; it is UNLOGGED, so a crash of the database wiped it. A claim
-- from before a restart of the database is a suspect, whatever the marker says. A negative marker
-- names the first of a batch of which none is known to have started: all of it are suspects.
create or replace function onceq.started_by(p_process uuid) returns jsonb
language plpgsql volatile as $$
declare
    s onceq.server;
    marker bigint;
    charges jsonb := '{}';
    survived boolean := true;
begin
    for s in select * from onceq.server where process = p_process loop
        marker := pg_sequence_last_value(to_regclass('onceq.started_' || s.slot));
        survived := survived and marker is not null
            and s.postmaster_start = pg_postmaster_start_time();
        if marker > 0 and exists (select from onceq.element
                where seq = marker and claimed_by = s.incarnation) then
            charges := charges || jsonb_build_object(marker::text, 'charge');
        elsif marker < 0 and exists (select from onceq.element
                where seq = -marker and claimed_by = s.incarnation) then
            charges := charges || (select jsonb_object_agg(seq::text, 'suspect') from onceq.element
                where claimed_by = s.incarnation);
        end if;
    end loop;
    if not survived then
        select coalesce(jsonb_object_agg(e.seq::text, 'suspect'), '{}') into charges
            from onceq.element e join onceq.server x on x.incarnation = e.claimed_by
            where x.process = p_process;
    elsif (select count(*) from jsonb_object_keys(charges)) > 1 then
        select jsonb_object_agg(key, 'suspect') into charges from jsonb_object_keys(charges) key;
    end if;
    return charges;
end $$;

-- What a live process had started when its connection broke: a fault of the environment, of all of
-- a batch of which none is known to have started; or, when the database itself went down, suspects.
create or replace function onceq.broken_by(p_incarnation bigint) returns jsonb
language plpgsql volatile as $$
declare
    s onceq.server;
    marker bigint;
    charge text := 'suspect';
begin
    select * into s from onceq.server where incarnation = p_incarnation;
    marker := pg_sequence_last_value(to_regclass('onceq.started_' || s.slot));
    if s.slot is null or marker = 0 then
        return '{}';
    elsif marker is not null and s.postmaster_start = pg_postmaster_start_time() then
        charge := 'environment';
        if marker > 0 then
            return jsonb_build_object(marker::text, charge);
        elsif not exists (select from onceq.element where seq = -marker and claimed_by = s.incarnation) then
            return '{}';
        end if;
    end if;
    return (select coalesce(jsonb_object_agg(seq::text, charge), '{}')
            from onceq.element where claimed_by = p_incarnation);
end $$;

-- Claims up to p_n elements of a queue for an incarnation. p_turn alternates: even turns look at
-- due elements first, odd ones at fresh ones. A suspect is claimed alone, behind all others, or,
-- having waited for a second, on every second turn; never where p_alone is false. What has
-- expired is not returned: it gets its expired reply here. Fresh lanes are read from their
-- low-water marks on; p_everything: from the beginning. p_may_lose: alone in its transaction, the
-- claim of what never failed need not be durable. p_slot, p_asleep: of a session that is asleep on
-- these queues; it wakes when it gets something.
create or replace function onceq.claim(
    p_incarnation bigint, p_queue_id integer, p_n integer, p_turn integer, p_alone boolean,
    p_everything boolean default false, p_may_lose boolean default false,
    p_slot integer default null, p_asleep integer[] default null
) returns setof onceq.element
language plpgsql volatile
set enable_seqscan = off set enable_bitmapscan = off set enable_sort = off
set plan_cache_mode = force_generic_plan as $$
declare
    wanted integer := p_n;
    due bigint := onceq.turn_at(onceq.now());
    removed boolean;
    e onceq.element;
begin
    if p_may_lose and pg_current_xact_id_if_assigned() is null then
        perform set_config('synchronous_commit', 'off', true);
    end if;
    if p_alone and p_turn % 2 = 0
            and exists (select from onceq.element where queue_id = p_queue_id and lane = 11) then
        return query select * from onceq.claim_suspect(p_incarnation, p_queue_id, due - 1000000);
        wanted := case when found then 0 else wanted end;
    end if;
    for try in 1 .. 1000 loop  -- what has expired must not hide what has not
        exit when wanted = 0;
        removed := false;
        for e in update onceq.element x set claimed_by = p_incarnation where x.seq = any (array(
                select p.seq from onceq.queue q,
                    unnest(case p_turn % 2 when 0 then 10::smallint || q.lanes
                           else q.lanes || 10::smallint end) as l (lane),
                    lateral (select case when p_everything then 0
                        else coalesce(pg_sequence_last_value(q.low[l.lane + 1]), 0) end as low) m,
                    lateral (select s.seq from onceq.element s
                        where s.queue_id = q.queue_id and s.lane = l.lane and s.turn >= m.low
                          and s.turn <= case l.lane when 10 then due else 9223372036854775807 end
                          and s.claimed_by is null
                        order by s.turn limit wanted for update skip locked) p
                where q.queue_id = p_queue_id and q.dequeue_started and q.kind <> 'reply' limit wanted))
                returning x.* loop
            if (e.life is not null or e.expires_at is not null) and onceq.dismiss(e) then
                removed := true;
            else
                wanted := wanted - 1;
                if e.lane = 10 and p_may_lose then perform onceq.be_durable(); end if;
                return next e;
            end if;
        end loop;
        exit when not removed;
    end loop;
    if wanted = p_n then
        perform onceq.refuse_reply_queue(p_queue_id);
        if p_alone then
            return query select * from onceq.claim_suspect(p_incarnation, p_queue_id, due);
            wanted := case when found then 0 else wanted end;
        end if;
    end if;
    if wanted < p_n and (p_asleep is not null or p_everything) then
        perform onceq.wake_up(p_slot, p_asleep, null) where p_asleep is not null;
        perform onceq.check_marks(p_queue_id, p_incarnation) where p_everything;
    end if;
end $$;

-- Removes an element just claimed that may not be given out: of an earlier life of the database, or
-- expired, with its expired reply. Whether it was one.
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
begin
    if exists (select from onceq.queue where queue_id = p_queue_id and kind = 'reply') then
        raise exception 'queue "reply-%" is a client''s own: only its clerk receives from it', p_queue_id
            using errcode = 'OQ011';
    end if;
end $$;

-- Claims one suspect of a queue that was due by then: durably, for from now on a death is charged.
create or replace function onceq.claim_suspect(p_incarnation bigint, p_queue_id integer, p_due bigint)
returns setof onceq.element
language plpgsql volatile
set enable_seqscan = off set enable_bitmapscan = off set enable_sort = off
set plan_cache_mode = force_generic_plan as $$
declare e onceq.element;
begin
    update onceq.element x set claimed_by = p_incarnation where x.seq = (
            select s.seq from onceq.element s
            where s.queue_id = p_queue_id and s.lane = 11 and s.claimed_by is null and s.turn <= p_due
            order by s.turn limit 1 for update skip locked)
        and exists (select from onceq.queue where queue_id = p_queue_id and dequeue_started)
        returning x.* into e;
    if e.seq is null then
        return;
    end if;
    perform onceq.be_durable();
    if not onceq.dismiss(e) then
        return next e;
    end if;
end $$;

-- Claims one element of a queue by its eid, if its time has come and nobody holds it.
create or replace function onceq.claim_eid(p_incarnation bigint, p_queue_id integer, p_eid uuid)
returns setof onceq.element
language plpgsql volatile as $$
declare e onceq.element;
begin
    update onceq.element x set claimed_by = p_incarnation
        where x.seq = (select seq from onceq.element where eid = p_eid and claimed_by is null
                       and queue_id = p_queue_id and role in ('request', 'datagram')
                       and (lane <= 9 or not_before <= onceq.now()) for update skip locked)
          and exists (select from onceq.queue where queue_id = p_queue_id and dequeue_started)
        returning x.* into e;
    if e.seq is not null and not onceq.dismiss(e) then
        return next e;
    end if;
end $$;

-- Finishes claimed elements: removes them, writes their replies and history, and claims the next, in
-- the handler's transaction. The fence: only what this incarnation still holds is concluded, and at
-- least p_must of them must be. p_token was set at begin; it is gone when the handler ended the
-- transaction and its effects are outside (G2). p_effects: the handler may have written something,
-- so that the commit is durable even where all elements are volatile. A row without a seq says in
-- its rid a bell to ring after the commit, or in its send_no how many were claimed no longer.
create or replace function onceq.finish(
    p_seqs bigint[], p_incarnation bigint, p_replies bytea[], p_content_type text, p_token text,
    p_must integer, p_effects boolean, p_queue_id integer, p_n integer, p_turn integer, p_alone boolean
) returns setof onceq.element
language plpgsql volatile as $$
declare
    done record;
    e onceq.element;
begin
    if current_setting('onceq_setting.token', true) is distinct from p_token then
        raise exception 'the handler ended the transaction that it was given' using errcode = 'OQ012';
    end if;
    select * into done from onceq.conclude(p_seqs, p_incarnation, 'done', p_replies, p_content_type);
    if done.concluded < p_must then
        raise exception 'of elements % only % are still claimed by incarnation %',
            p_seqs, done.concluded, p_incarnation using errcode = 'OQ002';
    end if;
    if current_setting('synchronous_commit') in ('off', 'local')
            and (p_effects or done.is_volatile is distinct from true) then  -- by the handler
        perform set_config('synchronous_commit', 'on', true);
    end if;
    if p_n > 0 then
        return query select * from onceq.claim(p_incarnation, p_queue_id, p_n, p_turn, p_alone);
    end if;
    if done.bells is not null then
        foreach e.rid in array done.bells loop
            return next e;
        end loop;
        e.rid := null;
    end if;
    if done.concluded < cardinality(p_seqs) then
        e.send_no := cardinality(p_seqs) - done.concluded;
        return next e;
    end if;
end $$;

-- The fence of one request of a batch, before its handler runs: from here on a kill waits.
create or replace function onceq.fence(p_seq bigint, p_incarnation bigint) returns boolean
language plpgsql volatile as $$
begin
    if not exists (select from onceq.element where seq = p_seq and claimed_by = p_incarnation for update) then
        raise exception 'element % is no longer claimed by incarnation %', p_seq, p_incarnation
            using errcode = 'OQ002';
    end if;
    return true;
end $$;

-- Ends an execution that failed: after the rollback, in a transaction of its own, so that the
-- count is durable outside what was aborted (finding 4). The marker is cleared: this execution
-- is accounted for.
create or replace function onceq.abort(
    p_seq bigint, p_incarnation bigint, p_charge text, p_code text, p_error text
) returns text
language plpgsql volatile as $$
declare e onceq.element;
begin
    perform onceq.be_durable();
    select * into e from onceq.element where seq = p_seq and claimed_by = p_incarnation for update;
    perform setval(('onceq.started_' || slot)::regclass, 0) from onceq.server
        where incarnation = p_incarnation;
    if e.seq is null then
        return 'lost';
    end if;
    return onceq.return_element(e, p_charge, p_code, p_error, p_incarnation);
end $$;
