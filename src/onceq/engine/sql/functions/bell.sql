-- Wake-up (ADR 9): who sleeps, and where to ring. Only a hint: every sleeper also looks by itself.
-- Whatever makes an element claimable, or due sooner, rings: docs/maintainers/rings.md lists all of it.
-- Tables: server (read, queue_ids written), queue, element, registrant (read), dequeuer (written). Locks: advisory, of the
-- session, shared, held while it sleeps: (oid of element_ready, queue), (oid of server_pkey, slot), (oid of dequeuer_pkey, backend),
-- (oid of registrant_pkey, registrant). They are in memory, end with the session, and nobody waits for
-- them: to ask whether somebody sleeps, one tries the exclusive lock, and lets it go at once.

-- Notes which queues a server session serves: it is rung for them while it sleeps. It is awake now,
-- whatever a failed finish has left.
create or replace function onceq.attend(p_slot integer, p_queue_ids integer[]) returns boolean
language plpgsql volatile as $$
begin
    perform onceq.need_not_last();
    for again in 1 .. 1000 loop
        exit when not onceq.holds('onceq.server_pkey', p_slot);
        perform onceq.wake_up(p_slot, p_queue_ids);
    end loop;
    update onceq.server set queue_ids = p_queue_ids where slot = p_slot and queue_ids <> p_queue_ids;
    return found;
end $$;

-- Registers this server's session as asleep on queues that it serves; returns them.
create or replace function onceq.fall_asleep(p_slot integer, p_queue_ids integer[]) returns integer[]
language plpgsql volatile as $$
declare
    id integer;
    taken text;  -- assigned, not performed: an expression needs no statement
begin
    taken := pg_advisory_lock_shared('onceq.server_pkey'::regclass::oid::integer, p_slot);
    foreach id in array p_queue_ids loop
        taken := pg_advisory_lock_shared('onceq.element_ready'::regclass::oid::integer, id);
    end loop;
    return p_queue_ids;
end $$;

-- Ends that; to be called only for queues on which it is registered so. Returns null.
create or replace function onceq.wake_up(p_slot integer, p_queue_ids integer[]) returns integer[]
language plpgsql volatile as $$
declare
    id integer;
    was boolean;
begin
    was := pg_advisory_unlock_shared('onceq.server_pkey'::regclass::oid::integer, p_slot);
    foreach id in array p_queue_ids loop
        was := pg_advisory_unlock_shared('onceq.element_ready'::regclass::oid::integer, id);
    end loop;
    return null;
end $$;

-- Registers a clerk's session as asleep.
create or replace function onceq.clerk_falls_asleep(p_registrant integer) returns text
language sql volatile as $$
    select pg_advisory_lock_shared('onceq.registrant_pkey'::regclass::oid::integer, p_registrant)::text
$$;

-- Says, as long as this session lasts, that there is a desk: its clerks sleep without a lock of their own.
create or replace function onceq.keep_desk() returns text
language sql volatile as $$
    select pg_advisory_lock_shared('onceq.registrant_pkey'::regclass::oid::integer, 0)::text
$$;

-- Ends that; to be called only if it is registered so.
create or replace function onceq.clerk_wakes(p_registrant integer) returns boolean
language sql volatile as $$
    select pg_advisory_unlock_shared('onceq.registrant_pkey'::regclass::oid::integer, p_registrant)
$$;

-- Whether this session holds a shared advisory lock. Unlocking what is not locked would give a warning,
-- and a warning at a commit makes it doubtful.
create or replace function onceq.holds(p_class regclass, p_id integer) returns boolean
language sql volatile as $$
    select exists (select from pg_locks
        where locktype = 'advisory' and pid = pg_backend_pid() and mode = 'ShareLock'
          and database = (select oid from pg_database where datname = current_database())
          and classid = p_class and objid = p_id::bigint::oid and objsubid = 2)
$$;

-- The bell to ring once this transaction has committed: of one session that sleeps on this queue, a server's
-- or, if none does, one that dequeues. Null if nobody sleeps there, or if it is rung through the database.
create or replace function onceq.server_bell(p_queue_id integer, p_own_transaction boolean) returns text
language plpgsql volatile as $$
declare
    class integer := 'onceq.server_pkey'::regclass::oid::integer;
    s record;
begin
    for s in select slot, bell from onceq.server
            where p_queue_id = any (queue_ids) and bell is not null order by random() loop
        continue when pg_try_advisory_lock(class, s.slot) and pg_advisory_unlock(class, s.slot);
        return onceq.call(s.bell, p_own_transaction);
    end loop;
    class := 'onceq.dequeuer_pkey'::regclass::oid::integer;
    for s in select backend_pid, bell from onceq.dequeuer where queue_id = p_queue_id order by random() loop
        continue when pg_try_advisory_lock(class, s.backend_pid) and pg_advisory_unlock(class, s.backend_pid);
        return onceq.call(s.bell, p_own_transaction);
    end loop;
    return null;
end $$;

-- Registers a session that dequeues from a queue as asleep, if it has a bell; removes rows of the dead.
create or replace function onceq.dequeuer_falls_asleep(p_queue_id integer) returns void
language plpgsql volatile as $$
declare class integer := 'onceq.dequeuer_pkey'::regclass::oid::integer;
begin
    if exists (select from onceq.dequeuer where backend_pid = pg_backend_pid() and queue_id = p_queue_id)
            and onceq.holds('onceq.dequeuer_pkey', pg_backend_pid()) then
        return;
    end if;
    perform onceq.dequeuer_wakes();
    delete from onceq.dequeuer d
        where pg_try_advisory_lock(class, d.backend_pid) and pg_advisory_unlock(class, d.backend_pid);
    insert into onceq.dequeuer select pg_backend_pid(), p_queue_id, bell
        from current_setting('onceq_setting.bell', true) bell where bell <> '';
    if found then
        perform pg_advisory_lock_shared(class, pg_backend_pid()),
            pg_advisory_lock_shared('onceq.element_ready'::regclass::oid::integer, p_queue_id);
    end if;
end $$;

-- Ends that, even if the row was rolled back. Returns whether it was asleep.
create or replace function onceq.dequeuer_wakes() returns boolean
language plpgsql volatile as $$
declare
    x record;
    was boolean := false;
begin
    if onceq.holds('onceq.dequeuer_pkey', pg_backend_pid()) then
        for x in select l.classid::integer as class, l.objid::integer as id from pg_locks l
                where l.locktype = 'advisory' and l.pid = pg_backend_pid() and l.mode = 'ShareLock'
                  and l.objsubid = 2 and l.classid in
                    ('onceq.dequeuer_pkey'::regclass, 'onceq.element_ready'::regclass) loop
            was := pg_advisory_unlock_shared(x.class, x.id);
        end loop;
        delete from onceq.dequeuer where backend_pid = pg_backend_pid();
    end if;
    return was;
end $$;

-- As server_bell, after a test in memory of whether anybody sleeps at all. The test takes the lock
-- for an instant; another test at that instant makes it look for a sleeper in vain.
create or replace function onceq.queue_bell(p_queue_id integer, p_own_transaction boolean) returns text
language sql volatile as $$
    select case when pg_try_advisory_lock('onceq.element_ready'::regclass::oid::integer, p_queue_id)
        then case when pg_advisory_unlock('onceq.element_ready'::regclass::oid::integer, p_queue_id)
             then null end
        else onceq.server_bell(p_queue_id, p_own_transaction) end
$$;

-- Rings, when this transaction commits, every server session that sleeps on one of these queues.
create or replace function onceq.ring_each(p_queue_ids integer[]) returns void
language plpgsql volatile as $$
declare
    class integer := 'onceq.server_pkey'::regclass::oid::integer;
    s record;
begin
    for s in select slot, bell from onceq.server where p_queue_ids && queue_ids and bell is not null loop
        continue when pg_try_advisory_lock(class, s.slot) and pg_advisory_unlock(class, s.slot);
        perform onceq.call(s.bell, false);
    end loop;
end $$;

-- Rings for the waiting suspects, one sleeper for each queue: the one that ran alone has ended.
create or replace function onceq.ring_suspects() returns void
language plpgsql volatile as $$
begin
    perform onceq.queue_bell(q.queue_id, false) from onceq.queue q where exists (select from onceq.element e
        where e.queue_id = q.queue_id and e.lane = 11 /* suspect */ and e.claimed_by is null);
end $$;

-- A bell is "host port channel token". On this session's host it is returned, for a datagram to ring it
-- after the commit; elsewhere, or if somebody else commits, the channel is notified of the port; a desk's of the token, too.
create or replace function onceq.call(p_bell text, p_own_transaction boolean) returns text
language plpgsql volatile as $$
begin
    if p_own_transaction
            and split_part(ltrim(p_bell, '!'), ' ', 1) = current_setting('onceq_setting.host', true) then
        return ltrim(p_bell, '!');
    end if;
    perform pg_notify(split_part(p_bell, ' ', 3), split_part(p_bell, ' ', 2)
        || case when p_bell like '!%' then ' ' || split_part(p_bell, ' ', 4) else '' end);
    return null;
end $$;

-- Rings, when this transaction commits, a registrant's clerk that sleeps.
create or replace function onceq.ring_clerk(p_registrant integer) returns void
language plpgsql volatile as $$
begin
    perform onceq.clerk_bell(registrant_id, bell, false) from onceq.registrant
        where registrant_id = p_registrant and bell is not null;
end $$;

-- The bell of a registrant's clerk, to be rung as that of server_bell; null if it does not sleep. One that begins
-- with ! is a desk's, whose clerks sleep without a lock: it is always rung.
create or replace function onceq.clerk_bell(p_registrant integer, p_bell text, p_own_transaction boolean)
returns text
language sql volatile as $$
    select case when p_bell like '!%' then onceq.call(p_bell, p_own_transaction)
        when pg_try_advisory_lock('onceq.registrant_pkey'::regclass::oid::integer, p_registrant)
        then case when pg_advisory_unlock('onceq.registrant_pkey'::regclass::oid::integer, p_registrant)
             then null end
        else onceq.call(p_bell, p_own_transaction) end
$$;
