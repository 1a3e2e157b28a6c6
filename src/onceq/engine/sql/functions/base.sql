-- Small functions that all the others build on: the clock, ids, the epoch check.
-- Tables: registrant (read), queue (lanes written), life (written), element (what a crash took is removed).
-- Locks: the registrant's anchor, or the queue's (advisory, shared); that of life (advisory), to begin one.
--
-- LANES. All elements of all queues are rows of one table, and a queue's rows stand in lanes. Within a lane
-- the order is that of `turn`. What somebody looks for is always the beginning of one lane, so that one
-- index, (queue_id, lane, turn), serves every look, and no plan for it can be a scan.
--
--   lane     who stands there                                  turn            leaves it when
--   0 to 9   fresh: 9 - priority, so the urgent come first     its seq         it ends or is given back
--            (a reply that waits for its client: always 0)
--   10       due at a time: sent with not_before, or given     that time, in   it ends, or becomes a suspect
--            back by whoever had claimed it                    microseconds
--   11       suspect: something ended while it ran, and it     as in 10        it ends
--            may have been the cause (G7); it runs alone,
--            or with half of its batch (ADR 29)
--   12       held for an operator: nobody claims it.           as it was       an operator redrives it
--            failed, in an error queue; or
--            a request of a queue that holds (hold.sql)        when it expires it is retried or given up; it ends
--   13       a reply that its client acknowledged, kept for    the order of    a later one is kept instead
--            rereceive; everywhere else it is gone             acknowledging
--
-- SQL has no constants. Wherever the number of a lane stands in these files, its name in Python's `Lane` follows
-- as a comment, which psql shows too, and costs nothing; a test compares the two.
--
-- An element does not leave its lane when it is claimed: `claimed_by` says so, and stands in no index, so
-- that a claim is a HOT update. The price is that a look passes over what is claimed; the low-water
-- marks (cursor.sql) keep it from passing over what has ended. A suspect never becomes fresh again: once
-- doubted, it runs without the fresh ones until it ends, as no success can clear it of having been the cause.
--
-- LOCK ORDER. A transaction takes its locks in this order, and so none waits for another in a circle:
--
--   0. a client's name (advisory: oid of the unique key of registrant, hash of the name): shared where a life of
--      one of its threads begins, exclusive where it is closed.
--   1. the anchor of a registrant (advisory: oid of registrant, its id): shared by whatever acts in a life
--      of it, exclusive where a life begins or ends, and by a tagged operation. It is the fence of clients: who holds it exclusively
--      knows that no ghost of the former life is between its check and its commit.
--   2. a queue (advisory: oid of queue, hash of its name): shared by enqueues, exclusive in destroy_queue; before
--      it, 0 for the list of queues: exclusive in create_queue and destroy_queue. After it, the row of a periodic
--      request, which a tick skips if it is locked.
--   3. slots of servers (advisory: oid of server, slot): held by a session as long as it lives. A free one
--      is the evidence that the session ended. It is tried, never waited for.
--   4. rows of server.
--   5. elements by seq, or, where rows were named by rids, by rid. Claims skip what is locked instead of
--      waiting.
--   6. what the caller does itself: the tables of a handler, the user's rows in the order of their keys
--      (spark_commit.sql). A caller may also tag an operation after that: it waits for no lock long (`patience`).
--
-- The locks of sleepers (bell.sql) are outside of this order: nobody waits for them. Each file says at its
-- top which of these it takes.

-- The clock of the queue manager: the database's, unless a test session sets onceq_setting.now.
create or replace function onceq.now() returns timestamptz
language sql volatile parallel safe as $$
    select coalesce(nullif(current_setting('onceq_setting.now', true), '')::timestamptz, clock_timestamp())
$$;

-- A new element id: version 7, so that ids grow with time. PostgreSQL 18 has its own.
create or replace function onceq.new_eid() returns uuid
language plpgsql volatile as $$
declare
    random bytea := uuid_send(gen_random_uuid());
    millis bytea := substring(int8send((extract(epoch from clock_timestamp()) * 1000)::bigint) from 3);
begin
    random := overlay(random placing millis from 1 for 6);
    return encode(set_byte(random, 6, (get_byte(random, 6) & 15) | 112), 'hex')::uuid;
end $$;

do $$ begin
    if current_setting('server_version_num')::integer >= 180000 then
        create or replace function onceq.new_eid() returns uuid
        language sql volatile parallel safe as 'select uuidv7()';
    end if;
end $$;

-- Makes the commit of this transaction durable if a role or database turned that off.
create or replace function onceq.be_durable() returns void
language plpgsql volatile as $$
begin
    if current_setting('synchronous_commit') = 'off' then
        perform set_config('synchronous_commit', 'on', true);
    end if;
end $$;

-- Lets the commit of this transaction be asynchronous, if it has written nothing yet: for data that a
-- crash may take, so that it never waits for a disk or a standby.
create or replace function onceq.need_not_last() returns void
language plpgsql volatile as $$
begin
    if pg_current_xact_id_if_assigned() is null then
        perform set_config('synchronous_commit', 'off', true);
    end if;
end $$;

-- Bounds every wait for a lock in the rest of this transaction: past it, an error says so.
create or replace function onceq.wait_at_most(p_timeout_s double precision) returns void
language plpgsql volatile as $$
begin
    perform set_config('lock_timeout', greatest(1, least(p_timeout_s * 1000, 2147483647))::integer::text, true);
end $$;

-- Refuses, in these words, a transaction with one snapshot for all: what is looked at after a lock must
-- be what its former holder has left. The hot path checks this without a call.
create or replace function onceq.need_read_committed(p_words text) returns void
language plpgsql volatile as $$
begin
    if current_setting('transaction_isolation') <> 'read committed' then
        raise exception '%', p_words using errcode = 'OQ007';
    end if;
end $$;

-- Takes the anchor lock, shared, and refuses an epoch that is over. The check is a later
-- statement than the lock, so its snapshot sees what a former holder committed. For the same
-- reason, a transaction with one snapshot for all (REPEATABLE READ) is refused.
create or replace function onceq.check_epoch(p_registrant integer, p_epoch bigint) returns void
language plpgsql volatile as $$
declare current bigint; who text;
begin
    if current_setting('transaction_isolation') <> 'read committed' then
        raise exception 'tagged operations need a READ COMMITTED transaction' using errcode = 'OQ007';
    end if;
    perform pg_advisory_xact_lock_shared('onceq.registrant'::regclass::oid::integer, p_registrant);
    select epoch into current from onceq.registrant where registrant_id = p_registrant;
    if current is distinct from p_epoch then
        select format('client "%s"', name) || case when thread <> '' then format(', thread "%s",', thread) else '' end
            into who from onceq.registrant where registrant_id = p_registrant;
        raise exception '% has connected again elsewhere, or was forgotten (epoch %; this one is %): nothing happened',
            coalesce(who, 'this client'), coalesce(current::text, 'none'), p_epoch
            using errcode = 'OQ001', hint = 'use that one, or connect() again, which fences it';
    end if;
end $$;

-- The life of the database that volatile elements belong to. A crash empties the table, and
-- the first to come then begins a new life; elements of an older life are never seen again.
create or replace function onceq.current_life() returns bigint
language plpgsql volatile as $$
declare current bigint;
begin
    select life into current from onceq.life;
    if current is null then
        perform pg_advisory_xact_lock('onceq.life'::regclass::oid::integer, 0);
        select life into current from onceq.life;
        if current is null then
            insert into onceq.life values (nextval('onceq.life_seq')) returning life into current;
            delete from onceq.element where life < current;
        end if;
    end if;
    return current;
end $$;

-- Returns the queue of this name, or raises an error that names it.
create or replace function onceq.find_queue(p_name text) returns onceq.queue
language plpgsql stable as $$
declare q onceq.queue;
begin
    select * into q from onceq.queue where name = p_name collate "C" and destroyed_at is null;
    if q.queue_id is null then
        raise exception 'queue "%" does not exist', p_name using errcode = 'OQ003';
    end if;
    return q;
end $$;

-- Keeps destroy_queue out where the snapshot may be older than the shared lock (REPEATABLE READ), and
-- so show a queue that has been destroyed: locking its row then fails (SQLSTATE 40001).
create or replace function onceq.hold_queue(p_name text) returns void
language sql volatile as $$
    select from onceq.queue where name = p_name collate "C" and destroyed_at is null for share
$$;

-- Returns the queue of this name, open for an enqueue of this body. The lock, shared and in memory,
-- keeps destroy_queue out until the caller's transaction ends; hence the second look.
create or replace function onceq.open_queue(p_name text, p_body bytea) returns onceq.queue
language plpgsql volatile as $$
declare q onceq.queue := onceq.find_queue(p_name);
begin
    perform pg_advisory_xact_lock_shared('onceq.queue'::regclass::oid::integer, hashtext(p_name));
    perform onceq.hold_queue(p_name) where current_setting('transaction_isolation') <> 'read committed';
    select * into q from onceq.queue where queue_id = q.queue_id and destroyed_at is null;
    if q.queue_id is null then
        raise exception 'queue "%" does not exist', p_name using errcode = 'OQ003';
    end if;
    if q.kind = 'reply' then
        raise exception 'queue "%" is of the replies to a client: only servers put replies there', q.name
            using errcode = 'OQ007', hint = 'send the client a request through a queue that it serves';
    elsif not q.enqueue_started then
        raise exception 'queue "%" is stopped for enqueue', q.name using errcode = 'OQ004';
    end if;
    if octet_length(p_body) > q.body_bytes_max then
        raise exception 'the body has % bytes; queue "%" takes at most %',
            octet_length(p_body), q.name, q.body_bytes_max using errcode = 'OQ005';
    end if;
    return q;
end $$;

-- Returns what an end user gave with a request and gets back with its reply (C19), from its properties.
create or replace function onceq.end_user_of(p_properties jsonb) returns jsonb
language sql immutable as $$
    select case when p_properties ? 'onceq_end_user'
        then jsonb_build_object('onceq_end_user', p_properties -> 'onceq_end_user') end
$$;

-- Makes an UNLOGGED sequence that belongs to the repository's owner, whoever asks: a role that serves
-- needs no right to make or to drop anything. Only the names of started markers, of low-water marks and of what was
-- measured of a queue are accepted.
create or replace function onceq.make_sequence(p_name text, p_least bigint) returns regclass
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp as $$
declare made text := format('onceq.%I', p_name);
begin
    if p_name !~ '^(started_[0-9]+|low_[0-9]+_[0-9]+|fill_[0-9]+_[0-2])$' then
        raise exception 'sequence % is none of the repository', p_name using errcode = 'invalid_parameter_value';
    end if;
    execute format('create unlogged sequence %s minvalue %s start 0', made, p_least);
    return made::regclass;
end $$;

-- Gives a sequence that another role made, in an older version, to the owner of the repository.
-- A role without the right leaves it as it is; `onceq doctor` reports it.
create or replace function onceq.give_to_owner(p_made regclass) returns void
language plpgsql volatile as $$
declare owner regrole;
begin
    select t.relowner::regrole into owner from pg_class t, pg_class m
        where t.oid = 'onceq.server'::regclass and m.oid = p_made and m.relowner <> t.relowner;
    if owner is not null then
        execute format('alter sequence %s owner to %s', p_made, owner);
    end if;
exception when insufficient_privilege then
    null;
end $$;

-- Ends what a handler has left in this session and neither a commit nor RESET ends: its PREPAREd
-- statements and its session's advisory locks. Our own locks name a table or an index of this schema, and
-- stay. To look for them at each commit would cost too much; a PREPARE that finds its name taken is a fault
-- of the environment, and this follows it.
create or replace function onceq.tidy_session() returns void
language plpgsql volatile as $$
declare
    x record;
    key bigint;
begin
    for x in select name from pg_prepared_statements where from_sql loop
        execute format('deallocate %I', x.name);
    end loop;
    for x in select l.classid, l.objid, l.objsubid, l.mode = 'ShareLock' as is_shared from pg_locks l
            where l.locktype = 'advisory' and l.pid = pg_backend_pid() and not (l.objsubid = 2 and l.classid in (
                select c.oid from pg_class c, pg_class s
                where s.oid = 'onceq.server'::regclass and c.relnamespace = s.relnamespace)) loop
        key := (x.classid::bigint << 32) | x.objid::bigint;
        perform case when x.objsubid = 1 and x.is_shared then pg_advisory_unlock_shared(key)
            when x.objsubid = 1 then pg_advisory_unlock(key)
            when x.is_shared then pg_advisory_unlock_shared(x.classid::integer, x.objid::integer)
            else pg_advisory_unlock(x.classid::integer, x.objid::integer) end;
    end loop;
end $$;

-- The turn of an element that waits for this point in time.
create or replace function onceq.turn_at(p_moment timestamptz) returns bigint
language sql stable parallel safe as $$ select (date_part('epoch', p_moment) * 1000000)::bigint $$;

-- Refuses an invalid priority.
create or replace function onceq.check_priority(p_priority integer) returns void
language plpgsql immutable as $$
begin
    if p_priority is null or p_priority not between 0 and 9 then
        raise exception 'a priority is from 0 to 9, not %', p_priority using errcode = '23514';
    end if;
end $$;

-- Refuses times that some client cannot read; years 1 to 9999 can be read in any time zone.
-- Returns null otherwise, also for null: it is assigned, as an expression needs no statement.
create or replace function onceq.check_moments(p_not_before timestamptz, p_expires_at timestamptz)
returns text
language plpgsql immutable as $$
begin
    if least(p_not_before, p_expires_at) < timestamptz '0001-01-02 00:00:00+00'
            or greatest(p_not_before, p_expires_at) >= timestamptz '9999-12-31 00:00:00+00' then
        raise exception 'not_before and expires_at are moments from year 1 to 9999, not % and %',
            p_not_before, p_expires_at using errcode = '23514', hint = 'leave out what is no such moment';
    end if;
    return null;
end $$;

-- Notes that a fresh lane of a queue is in use, in the transaction that first uses it; claims look
-- at no other fresh lane. It holds the queue's row until that transaction ends, once in the life of a lane.
create or replace function onceq.open_lane(p_queue_id integer, p_lane integer) returns void
language plpgsql volatile as $$
begin
    perform onceq.refuse_in_order(p_queue_id, 'takes no priority') where p_lane <= 9 /* fresh */ and p_lane <> 5 /* usual */;
    update onceq.queue set lanes = array(select distinct l from unnest(lanes || p_lane::smallint) l order by l)
        where queue_id = p_queue_id and p_lane <= 9 /* fresh */ and p_lane <> all (lanes);
end $$;
