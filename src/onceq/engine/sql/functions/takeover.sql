-- Incarnations of servers, their takeover, and verdicts on those that are missing (spec S1, G7; ADR 18).
-- Tables: server, element. Locks: server slots (advisory), then server rows, then elements by seq.

-- Begins an incarnation in a slot that is free and has no row; this session then holds its lock
-- for life. p_former names this session's former incarnation, whose connection broke: the
-- process did not die, so the environment is to blame; if the process was missing, this acquits it.
-- While a ghost of the former one lives, which may yet finish, or commit a claim that nobody sees, its row is
-- left for a later take_over. p_identity: by which its machine can tell whether the process is gone; null if
-- it cannot.
create or replace function onceq.open_incarnation(
    p_process uuid, p_host text, p_pid integer, p_former bigint, p_identity text,
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
        perform onceq.make_sequence('started_' || slot, '-9223372036854775808');
    end if;
    perform setval(('onceq.started_' || slot)::regclass, 0);
    incarnation := nextval('onceq.incarnation_seq');
    backend_pid := pg_backend_pid();
    insert into onceq.server (slot, incarnation, process, host, pid, backend_pid, postmaster_start,
            queue_ids, bell, identity)
        values (slot, incarnation, p_process, p_host, p_pid, backend_pid, pg_postmaster_start_time(),
            '{}', current_setting('onceq_setting.bell', true), p_identity);
end $$;

-- Ends an incarnation, from its own session or another: what it still holds goes back, uncharged.
-- While its session lives, which may be just finishing or claiming, its row is left for a later
-- take_over, for which it counts as having started nothing. Returns whether it was known.
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
    else
        perform setval(marker, 0) from to_regclass('onceq.started_' || s.slot) marker where marker is not null;
    end if;
    if s.backend_pid = pg_backend_pid() then
        perform pg_advisory_unlock('onceq.server'::regclass::oid::integer, s.slot);
    end if;
    return s.slot is not null;
end $$;

-- Gives back what an incarnation holds. p_charges maps the seqs it had started to 'charge',
-- 'suspect', 'environment' or 'fell'; what is not in it comes back uncharged. Suspects are of one batch, if there
-- are several, and run in halves of it from now on. p_waits: what is in p_charges stays claimed. Safety comes
-- from the fence, claimed_by: a ghost that is just finishing holds its row, is skipped, and
-- wins. Returns false if rows were left that should have come back.
create or replace function onceq.revoke(p_incarnation bigint, p_charges jsonb, p_waits boolean default false)
returns boolean
language plpgsql volatile as $$
declare
    e onceq.element;
    charge text;
    fate text;
    charges text[] := '{}';
    aborted jsonb := '[]';
    half smallint := (select (count(*) + 1) / 2 from jsonb_each_text(p_charges) c
        join onceq.element x on x.seq = c.key::bigint and x.claimed_by = p_incarnation where c.value = 'suspect');
begin
    for e in select * from onceq.element where claimed_by = p_incarnation
            and not (p_waits and p_charges ? seq::text) order by seq for update skip locked loop
        charge := coalesce(p_charges ->> e.seq::text, 'release');
        fate := onceq.return_element(e, charge,
            case charge when 'fell' then 'database_fell' when 'release' then null else 'server_died' end,
            case when charge <> 'release'
                 then format('incarnation %s ended while it ran', p_incarnation) end,
            p_incarnation, p_together => case when charge = 'suspect' and half > 1 then half end);
        charge := case when charge = 'release' then charge else onceq.last_charge(e.eid) end;
        charges := charges || charge;
        if charge in ('charge', 'suspect') then
            aborted := aborted || onceq.as_told(e, fate);
        end if;
    end loop;
    if charges <> '{}' then
        perform onceq.note_taken_over(p_incarnation, charges, aborted);
    end if;
    return not exists (select from onceq.element where claimed_by = p_incarnation
        and not (p_waits and p_charges ? seq::text));
end $$;

-- The charge of an element's last abort.
create or replace function onceq.last_charge(p_eid uuid) returns text
language sql volatile as $$
    select charge from onceq.attempt where eid = p_eid order by ended_at desc, record_no desc limit 1
$$;

-- The last abort of an element, as taken_back reports it. e: as it was before, p_fate: what became of it.
create or replace function onceq.as_told(e onceq.element, p_fate text) returns jsonb
language sql volatile as $$
    select jsonb_build_object('queue', q.name, 'rid', e.rid, 'eid', e.eid, 'attempt', e.aborts + 1,
            'charge', a.charge, 'code', a.code, 'error', a.error, 'fate', p_fate)
        from onceq.attempt a, onceq.queue q where a.eid = e.eid and q.queue_id = e.queue_id
        order by a.ended_at desc, a.record_no desc limit 1
$$;

-- Notes in this session what was taken back, for taken_back to report.
create or replace function onceq.note_taken(p_note jsonb) returns void
language sql volatile as $$
    select set_config('onceq_setting.taken_over', (coalesce(
        nullif(current_setting('onceq_setting.taken_over', true), ''), '[]')::jsonb || p_note)::text, false)
$$;

-- Notes what an incarnation held: what each of its elements cost, and each abort by which one was charged or
-- became a suspect.
create or replace function onceq.note_taken_over(p_incarnation bigint, p_charges text[], p_aborted jsonb) returns void
language sql volatile as $$
    select onceq.note_taken((select jsonb_build_object('incarnation', p_incarnation, 'process', s.process, 'host', s.host,
                'pid', s.pid, 'suspects', cardinality(array_positions(p_charges, 'suspect')),
                'charged', cardinality(array_positions(p_charges, 'charge')), 'held', cardinality(p_charges),
                'aborted', p_aborted)
            from (select) one left join onceq.server s on s.incarnation = p_incarnation))
$$;

-- What this session has taken over since it was last asked: from which incarnations, how many elements came
-- back uncharged, how many are suspects, how many were charged; aborted: the last two, one by one.
-- spark_server: from which.
create or replace function onceq.taken_back() returns table (incarnation bigint, process uuid, host text, pid integer,
    spark_server text, returned integer, suspects integer, charged integer, aborted jsonb)
language plpgsql volatile as $$
declare noted jsonb := nullif(current_setting('onceq_setting.taken_over', true), '');
begin
    perform set_config('onceq_setting.taken_over', '', false);
    return query select x.incarnation, x.process, x.host, x.pid, x.spark_server,
            x.held - x.suspects - x.charged, x.suspects, x.charged, x.aborted
        from jsonb_to_recordset(noted) x (incarnation bigint, process uuid, host text, pid integer,
            spark_server text, held integer, suspects integer, charged integer, aborted jsonb);
end $$;

-- Takes over from every process that is missing: all its slots' locks are free. Of the caller's own
-- process it takes over the slots whose connections broke. Returns how many processes were missing, and one
-- more if something was taken over from Spark servers.
create or replace function onceq.take_over(p_process uuid) returns integer
language plpgsql volatile as $$
declare
    class integer := 'onceq.server'::regclass::oid::integer;
    other uuid;
    taken integer := 0;
begin
    perform onceq.take_over_slot(s.slot, p_process, onceq.broken_by(s.incarnation))
        from onceq.server s where s.process = p_process and s.backend_pid <> pg_backend_pid()
          and pg_try_advisory_xact_lock(class, s.slot);
    for other in select distinct s.process from onceq.server s where s.process <> p_process loop
        taken := taken + onceq.take_over_process(other)::integer;
    end loop;
    perform onceq.adopt(), onceq.tidy_session() where random() < 1.0 / 32;  -- an idle process is here once a second
    -- A Spark server of the same name has the first minute.
    return taken + (onceq.spark_take_over(null, 60) > 0)::integer;
end $$;

-- Takes over from another process if it is missing; returns whether it is. What it had claimed and not
-- started comes back at once. That its sessions have ended does not prove its death: what it had started
-- stays claimed, and waits (G7). A life of it that comes back acquits it; `judge` says that it has ended, and
-- so does a minute of waiting. If the database itself went down, there is nothing to wait for. A session of it
-- that begins meanwhile keeps its row and its claims: only slots whose locks were got here are taken over.
create or replace function onceq.take_over_process(p_process uuid) returns boolean
language plpgsql volatile as $$
declare
    class integer := 'onceq.server'::regclass::oid::integer;
    held integer;
    slots integer[] := '{}';
    started jsonb;
    is_over boolean;
begin
    for held in select s.slot from onceq.server s where s.process = p_process loop
        if not pg_try_advisory_xact_lock(class, held) then
            return false;
        end if;
        slots := slots || held;
    end loop;
    select (array_agg(s.charges) filter (where s.charges is not null))[1],
            coalesce(bool_or(s.ended) or min(s.missed_at) <= onceq.now() - interval '60 seconds', false)
        into started, is_over from onceq.server s where s.process = p_process and s.slot = any (slots);
    if started is null then
        started := onceq.started_by(p_process);
        is_over := is_over or exists (select from onceq.server s
            where s.process = p_process and s.slot = any (slots) and onceq.database_fell(s));
    end if;
    perform onceq.take_over_slot(one, p_process, started, not is_over) from unnest(slots) one;
    return true;
end $$;

-- Takes over one slot of a missing process; its row goes when nothing is left claimed. p_waits: what
-- p_charges names waits for a verdict, and the row keeps it. This is a new statement after the lock: the
-- slot may have a new owner, or none, by now.
create or replace function onceq.take_over_slot(
    p_slot integer, p_process uuid, p_charges jsonb, p_waits boolean default false
) returns void
language plpgsql volatile as $$
declare
    s onceq.server;
    is_clean boolean;
begin
    select * into s from onceq.server where slot = p_slot and process = p_process for update;
    if s.slot is null or (p_waits and s.charges is not null) then
        return;
    end if;
    is_clean := onceq.revoke(s.incarnation, p_charges, p_waits);
    if is_clean and (not p_waits or p_charges = '{}') then
        delete from onceq.server where slot = p_slot and incarnation = s.incarnation;
    elsif p_waits then
        update onceq.server set missed_at = coalesce(missed_at, onceq.now()),
            charges = case when is_clean then p_charges end
            where slot = p_slot and incarnation = s.incarnation;
    end if;
end $$;

-- The processes that wait for a verdict, with the identity that their own machine can check.
create or replace function onceq.missing() returns table (process uuid, identity text)
language sql stable as $$
    select distinct s.process, s.identity from onceq.server s
        where s.missed_at is not null and s.identity is not null order by 1, 2
$$;

-- A verdict on a process. 'ended' comes from its supervisor, or from a server on the same
-- machine; it takes effect once all its sessions have ended too. 'lives' comes from a server on the same
-- machine: the environment is to blame for what was started; not in the first second in which the
-- process is missing, as a dying one may still live. Returns whether anything was known of it.
create or replace function onceq.judge(p_process uuid, p_verdict text) returns boolean
language plpgsql volatile as $$
declare class integer := 'onceq.server'::regclass::oid::integer;
begin
    perform onceq.be_durable();
    if p_verdict = 'ended' then
        update onceq.server set ended = true where process = p_process;
        perform onceq.take_over_process(p_process) where found;
        return found;
    end if;
    perform onceq.take_over_slot(s.slot, p_process, onceq.broken_by(s.incarnation))
        from onceq.server s where s.process = p_process
          and s.missed_at <= onceq.now() - interval '1 second' and pg_try_advisory_xact_lock(class, s.slot);
    return found;
end $$;

-- What a dead process had started and not finished, as {seq: charge}. The marker is a sequence,
-- so it survived the rollback; it is UNLOGGED, so a crash of the database wiped it. For a claim
-- from before a restart of the database nothing more is known, whatever the marker says: the
-- database went down while it was claimed (`return_element`). A negative marker names the first of a
-- batch, of which nobody knows which one ran: all are suspects that could be in it (`batch_of`).
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
        survived := survived and not onceq.database_fell(s);
        if marker > 0 and exists (select from onceq.element
                where seq = marker and claimed_by = s.incarnation) then
            charges := charges || jsonb_build_object(marker::text, 'charge');
        elsif marker < 0 and exists (select from onceq.element
                where seq = -marker and claimed_by = s.incarnation) then
            charges := charges || onceq.batch_of(s.incarnation, 'suspect');
        end if;
    end loop;
    if not survived then
        select coalesce(jsonb_object_agg(e.seq::text, 'fell'), '{}') into charges
            from onceq.element e join onceq.server x on x.incarnation = e.claimed_by
            where x.process = p_process;
    elsif (select count(*) from jsonb_object_keys(charges)) > 1 then
        select jsonb_object_agg(key, 'suspect') into charges from jsonb_object_keys(charges) key;
    end if;
    return charges;
end $$;

-- What of an incarnation's claims could be in its batch, as {seq: p_charge}: what came back before runs alone.
create or replace function onceq.batch_of(p_incarnation bigint, p_charge text) returns jsonb
language sql stable as $$
    select coalesce(jsonb_object_agg(seq::text, p_charge), '{}') from onceq.element
        where claimed_by = p_incarnation and (code is null or lane = 11 /* suspect */)
$$;

-- Lets the marker of a batch name another of it if it names this element, which is about to be removed: else
-- nothing would be known of the others if their server dies. The caller has locked the element, so the batch cannot
-- end meanwhile.
create or replace function onceq.name_another(e onceq.element) returns void
language plpgsql volatile as $$
declare
    marker regclass := (select to_regclass('onceq.started_' || slot) from onceq.server
        where incarnation = e.claimed_by);
    another bigint;
begin
    if pg_sequence_last_value(marker) = -e.seq then
        select min(key::bigint) into another from jsonb_object_keys(onceq.batch_of(e.claimed_by, '') - e.seq::text) key;
        perform setval(marker, -another) where another is not null;
    end if;
end $$;

-- Whether the database went down since an incarnation began; a crash has emptied its marker too.
create or replace function onceq.database_fell(s onceq.server) returns boolean
language sql volatile as $$
    select s.postmaster_start <> pg_postmaster_start_time()
        or pg_sequence_last_value(to_regclass('onceq.started_' || s.slot)) is null
$$;

-- What a live process had started when its connection broke: a fault of the environment, for all of
-- a batch; or, if the database itself went down, as above,
-- unless it had been missed before.
create or replace function onceq.broken_by(p_incarnation bigint) returns jsonb
language plpgsql volatile as $$
declare
    s onceq.server;
    marker bigint;
    charge text;
begin
    select * into s from onceq.server where incarnation = p_incarnation;
    if s.charges is not null then
        return (select coalesce(jsonb_object_agg(key, 'environment'), '{}') from jsonb_object_keys(s.charges) key);
    end if;
    marker := pg_sequence_last_value(to_regclass('onceq.started_' || s.slot));
    if s.slot is null or marker = 0 then
        return '{}';
    elsif not onceq.database_fell(s) then
        charge := 'environment';
        if marker > 0 then
            return jsonb_build_object(marker::text, charge);
        elsif not exists (select from onceq.element where seq = -marker and claimed_by = s.incarnation) then
            return '{}';
        end if;
        return onceq.batch_of(p_incarnation, charge);
    end if;
    return (select coalesce(jsonb_object_agg(seq::text, 'fell'), '{}')
            from onceq.element where claimed_by = p_incarnation);
end $$;
