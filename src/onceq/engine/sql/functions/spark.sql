-- The Spark server's registration and claim groups: open, claim, plan, read, take over (spec P1).
-- Tables: spark_server, spark_group, spark_consumed, element, the stage (swept), queue, registrant, server (read).
-- Locks: the server's anchor (advisory), then the life lock of its session (advisory, tried and never waited for),
-- then elements by seq.

-- Takes the anchor, so that one transaction at a time acts for this server, and refuses an epoch
-- that is over. The row is read by a later statement than the lock: its snapshot is newer. The
-- query outlives a crash of the database: what the crash took is removed before anything is done.
create or replace function onceq.spark_lock(p_server integer, p_epoch bigint) returns onceq.spark_server
language plpgsql volatile as $$
declare s onceq.spark_server;
begin
    perform onceq.need_read_committed('the Spark server needs READ COMMITTED transactions');
    perform pg_advisory_xact_lock('onceq.spark_server'::regclass::oid::integer, p_server);
    perform onceq.current_life();
    select * into s from onceq.spark_server where server_id = p_server;
    if s.epoch is distinct from p_epoch then
        raise exception 'epoch % of Spark server "%" is over; it is now %', p_epoch, s.name, s.epoch
            using errcode = 'OQ001', hint = 'another driver serves under this name: give this one another';
    end if;
    return s;
end $$;

-- Begins a life of the server of this name: fences the former one, and looks at what that one
-- left behind. p_innocent: the former life says that the environment ended it. p_stateful: its query
-- keeps a state, which may include what is held; that is held anew, for nobody could answer meanwhile.
create or replace function onceq.spark_open(
    p_name text, p_queue text, p_hold_s double precision, p_innocent boolean, p_stateful boolean,
    out server_id integer, out epoch bigint, out queue_id integer, out query_id text, out batch_id bigint
)
language plpgsql volatile set enable_seqscan = off as $$
declare
    q onceq.queue := onceq.find_queue(p_queue);
    s onceq.spark_server;
begin
    perform onceq.be_durable(), onceq.refuse_in_order(q.queue_id, 'Spark serves many at a time');
    insert into onceq.spark_server (name, queue_id) values (p_name, q.queue_id)
        on conflict on constraint spark_server_name_key do nothing;
    select x.server_id into server_id from onceq.spark_server x where x.name = p_name collate "C";
    perform pg_advisory_xact_lock('onceq.spark_server'::regclass::oid::integer, server_id);
    select * into s from onceq.spark_server x where x.server_id = spark_open.server_id;
    if s.queue_id <> q.queue_id and exists (select from onceq.spark_group g where g.server_id = s.server_id) then
        raise exception 'Spark server "%" still holds requests of another queue', p_name using errcode = 'OQ007';
    end if;
    -- For liveness, not for safety: it tells others that this server lives. A ghost may still hold it.
    perform pg_try_advisory_lock('onceq.spark_group'::regclass::oid::integer, server_id);
    perform onceq.spark_examine(g, p_innocent) from onceq.spark_group g
        where g.server_id = s.server_id and g.held_until is null;
    if not p_stateful then
        perform onceq.spark_forget(s);
    end if;
    update onceq.spark_group g set held_until = onceq.now() + p_hold_s * interval '1 second'
        where g.server_id = s.server_id and held_until is not null and s.stateful;
    update onceq.spark_server x set epoch = s.epoch + 1, queue_id = q.queue_id, hold_s = p_hold_s,
        stateful = p_stateful, planned = null, seen_at = onceq.now() where x.server_id = s.server_id;
    epoch := s.epoch + 1; queue_id := q.queue_id; query_id := s.query_id; batch_id := s.batch_id;
end $$;

-- Judges a group that a former life left unfinished (G7). If it was not begun, nothing is held against it.
-- If it was, one of its requests may have ended that life, and nobody knows which: it is halved, and the halves
-- run apart; only a group of one is charged. If the database itself went down, or the
-- environment is known to be at fault, nothing is charged, up to ten times.
create or replace function onceq.spark_examine(g onceq.spark_group, p_innocent boolean) returns void
language plpgsql volatile as $$
declare
    left_over bigint[] := onceq.spark_members(g);
    middle integer := (cardinality(left_over) + 1) / 2;
    e onceq.element;
begin
    if cardinality(left_over) = 0 then
        delete from onceq.spark_group where group_no = g.group_no;
    elsif g.started_under is null then
        return;
    elsif (p_innocent or g.started_under <> pg_postmaster_start_time()) and g.faults < 10 then
        update onceq.spark_group set started_under = null, faults = faults + 1 where group_no = g.group_no;
    elsif cardinality(left_over) > 1 then
        update onceq.spark_group set seqs = left_over[:middle], started_under = null, suspect = true
            where group_no = g.group_no;
        perform onceq.spark_gather(g.server_id, left_over[middle + 1:], g.group_no, true);
    else
        update onceq.element set lane = 11 /* suspect */, together = null
            where seq = left_over[1] and claimed_by = g.group_no returning * into e;
        perform onceq.return_element(e, 'charge', 'server_died',
            format('Spark ended %s time(s) while it ran alone', e.aborts + 1), onceq.spark_number(g));
        delete from onceq.spark_group where group_no = g.group_no;
    end if;
end $$;

-- The seqs of a group that it still holds, in order: not killed, taken over or finished.
create or replace function onceq.spark_members(g onceq.spark_group) returns bigint[]
language sql stable as $$
    select coalesce(array_agg(s.seq order by s.n), '{}')
    from unnest(g.seqs) with ordinality s (seq, n)
    cross join lateral (select from onceq.element e where e.seq = s.seq and e.claimed_by = g.group_no offset 0) e
$$;

-- The number by which history and the attempts name the server that has a group.
create or replace function onceq.spark_number(g onceq.spark_group) returns bigint
language sql stable as $$
    select s.server_no from onceq.spark_server s where s.server_id = g.server_id
$$;

-- Makes a claim group of elements that are unclaimed and locked, or claimed by p_from.
create or replace function onceq.spark_gather(
    p_server integer, p_seqs bigint[], p_from bigint, p_suspect boolean
) returns bigint
language plpgsql volatile as $$
declare g bigint := nextval('onceq.incarnation_seq');
begin
    update onceq.element set claimed_by = g
        where seq = any (p_seqs) and claimed_by is not distinct from p_from;
    insert into onceq.spark_group (group_no, server_id, seqs, suspect) values (g, p_server, p_seqs, p_suspect);
    -- Two may gather for one server at once, a takeover and a claim, and the later number may commit first.
    update onceq.spark_server set last_group = greatest(last_group, g) where server_id = p_server;
    return g;
end $$;

-- Gives what a group still holds back to its queue, uncharged, and ends the group. Returns how many.
create or replace function onceq.spark_release(g onceq.spark_group) returns integer
language plpgsql volatile as $$
declare released integer;
begin
    update onceq.element set claimed_by = null,
        lane = case when lane = 11 /* suspect */ then 11 /* suspect */ else 10 /* due */ end,
        not_before = onceq.now(), turn = onceq.turn_at(onceq.now()) where seq = any (g.seqs) and claimed_by = g.group_no;
    get diagnostics released = row_count;
    delete from onceq.spark_group where group_no = g.group_no;
    perform onceq.queue_bell(s.queue_id, false) from onceq.spark_server s
        where s.server_id = g.server_id and released > 0;
    return released;
end $$;

-- Gives back what a stateful server holds, and forgets what it has read: no state knows of it any more.
create or replace function onceq.spark_forget(s onceq.spark_server) returns void
language plpgsql volatile as $$
begin
    if s.stateful then
        perform onceq.spark_release(g) from onceq.spark_group g
            where g.server_id = s.server_id and g.held_until is not null;
        delete from onceq.spark_consumed where server_id = s.server_id;
    end if;
end $$;

-- Charges what a group holds that was not answered in time, and ends the group. Returns how many.
create or replace function onceq.spark_unanswered(g onceq.spark_group) returns integer
language plpgsql volatile as $$
declare
    e onceq.element;
    charged integer := 0;
begin
    for e in select * from onceq.element where seq = any (g.seqs) and claimed_by = g.group_no
            order by seq for update loop
        perform onceq.return_element(e, 'charge', 'unanswered',
            'the batch function returned no row for this request', onceq.spark_number(g));
        charged := charged + 1;
    end loop;
    delete from onceq.spark_group where group_no = g.group_no;
    return charged;
end $$;

-- The next claim group of a query that has reached p_start; p_start itself if there is none.
-- What is at or before p_start was finished or is held; what is still open there is released. A query
-- that begins, at 0, knows nothing of what was held for the state of another.
-- p_n: most elements. p_bound: with AvailableNow, the last seq to claim; null: any.
create or replace function onceq.spark_claim(
    p_server integer, p_epoch bigint, p_start bigint, p_n integer, p_bound bigint
) returns bigint
language plpgsql volatile set enable_seqscan = off as $$
declare
    s onceq.spark_server := onceq.spark_lock(p_server, p_epoch);
    open_group bigint;
    picked bigint[];
    is_suspect boolean;
begin
    if p_start > s.last_group then
        raise exception 'the checkpoint has come to claim group %, this server to %', p_start, s.last_group
            using errcode = 'OQ013', hint = 'it belongs to another server or repository: delete it';
    end if;
    if p_start = 0 then
        perform onceq.spark_forget(s);
    end if;
    perform onceq.spark_release(g) from onceq.spark_group g
        where g.server_id = p_server and g.group_no <= p_start and g.held_until is null;
    perform onceq.spark_unanswered(g) from onceq.spark_group g
        where g.server_id = p_server and g.held_until <= onceq.now();
    select min(group_no) into open_group from onceq.spark_group g
        where g.server_id = p_server and g.group_no > p_start and g.held_until is null;
    if open_group is not null then
        return open_group;
    end if;
    for again in 1 .. 1000 loop -- what has expired must not hide what has not
        select * into picked, is_suspect from onceq.spark_pick(s, p_n, coalesce(p_bound, 9223372036854775807));
        exit when picked is not null or not onceq.spark_finds(s.queue_id, coalesce(p_bound, 9223372036854775807));
    end loop;
    if picked is null then
        return p_start;
    end if;
    perform onceq.be_durable();
    update onceq.spark_server set seen_at = onceq.now(), ran_alone = is_suspect,
        due_first = case when is_suspect then due_first else not due_first end where server_id = p_server;
    return onceq.spark_gather(p_server, picked, null, is_suspect);
end $$;

-- The seqs to claim next, locked: what is due again, then what is fresh; they take turns at being
-- first, so that neither keeps the other waiting. A suspect runs alone, behind all others or,
-- once it has waited for a second, on every second turn.
create or replace function onceq.spark_pick(
    s onceq.spark_server, p_n integer, p_bound bigint, out picked bigint[], out is_suspect boolean
)
language plpgsql volatile as $$
declare
    waited interval := case when s.ran_alone then null else interval '1 second' end;
    due bigint := onceq.turn_at(onceq.now());
begin
    is_suspect := false;
    if not exists (select from onceq.queue where queue_id = s.queue_id and dequeue_started
            and (paused_until is null or paused_until <= onceq.now())) then
        return;
    end if;
    picked := onceq.spark_suspect(s.queue_id, p_bound, waited);
    is_suspect := picked is not null;
    if not is_suspect then
        picked := '{}';
        for at in 1 .. 2 loop
            if s.due_first = (at = 1) then
                picked := onceq.spark_sound(array(select seq from onceq.element
                    where queue_id = s.queue_id and lane = 10 /* due */ and claimed_by is null and turn <= due
                      and seq <= p_bound order by turn limit p_n - cardinality(picked) for update skip locked))
                    || picked;
            else
                picked := picked || onceq.spark_sound(array(select seq from onceq.element
                    where queue_id = s.queue_id and lane <= 9 /* fresh */ and claimed_by is null and seq <= p_bound
                    order by lane, turn limit p_n - cardinality(picked) for update skip locked));
            end if;
        end loop;
    end if;
    if picked = '{}' then
        picked := onceq.spark_suspect(s.queue_id, p_bound, interval '0');
        is_suspect := picked is not null;
    end if;
end $$;

-- One suspect that has waited for this long, locked; null if there is none.
create or replace function onceq.spark_suspect(p_queue_id integer, p_bound bigint, p_waited interval)
returns bigint[]
language plpgsql volatile as $$
begin
    return nullif(onceq.spark_sound(array(select seq from onceq.element
        where queue_id = p_queue_id and lane = 11 /* suspect */ and claimed_by is null and seq <= p_bound
          and turn <= onceq.turn_at(onceq.now() - p_waited)
        order by turn limit 1 for update skip locked)), '{}');
end $$;

-- These seqs without expired ones, which get their expired reply here, and without those that died
-- with an earlier life of the database.
create or replace function onceq.spark_sound(p_seqs bigint[]) returns bigint[]
language plpgsql volatile as $$
declare
    e onceq.element;
    unsound bigint[] := '{}';
begin
    for e in select * from onceq.element where seq = any (p_seqs)
            and (expires_at <= onceq.now() or (life is not null and life < onceq.current_life())) loop
        unsound := unsound || e.seq;
        if e.life < onceq.current_life() then
            delete from onceq.element where seq = e.seq;
        else
            perform onceq.expire_element(e);
        end if;
    end loop;
    if unsound = '{}' then
        return p_seqs;
    end if;
    return array(select seq from unnest(p_seqs) with ordinality x (seq, n) where seq <> all (unsound) order by n);
end $$;

-- The last seq given out, for AvailableNow: what is enqueued later waits for the next run.
create or replace function onceq.spark_bound() returns bigint
language sql volatile as $$
    select coalesce(pg_sequence_last_value(pg_get_serial_sequence('onceq.element', 'seq')::regclass), 0)
$$;

-- Whether a server whose query has ended could go on at once: a group of its own is open, or
-- something is there up to p_bound.
create or replace function onceq.spark_left(p_server integer, p_epoch bigint, p_bound bigint) returns boolean
language plpgsql volatile as $$
declare s onceq.spark_server := onceq.spark_lock(p_server, p_epoch);
begin
    return exists (select from onceq.spark_group where server_id = p_server and held_until is null)
        or onceq.spark_finds(s.queue_id, p_bound);
end $$;

-- Whether a queue that is started has an element to claim now, up to p_bound, that no other
-- transaction holds: what spark_pick looks for, expired or not.
create or replace function onceq.spark_finds(p_queue_id integer, p_bound bigint) returns boolean
language plpgsql volatile as $$
begin
    perform from onceq.element e join onceq.queue q on q.queue_id = e.queue_id
        where q.queue_id = p_queue_id and q.dequeue_started and claimed_by is null and seq <= p_bound
          and (q.paused_until is null or q.paused_until <= onceq.now())
          and (lane <= 9 /* fresh */ or lane in (10 /* due */, 11 /* suspect */) and turn <= onceq.turn_at(onceq.now()))
        limit 1 for update of e skip locked;
    return found;
end $$;

-- Notes that Spark begins to run a group, before it reads any of it: the evidence for
-- spark_examine, and the group that the next commit is about. Returns the group's size. Durable,
-- because the query outlives a crash of the database, and its commit must not be about the previous group.
create or replace function onceq.spark_plan(p_server integer, p_epoch bigint, p_group bigint) returns integer
language plpgsql volatile as $$
declare size integer;
begin
    perform onceq.spark_lock(p_server, p_epoch);
    perform onceq.be_durable();
    update onceq.spark_server set planned = p_group where server_id = p_server;
    update onceq.spark_group set started_under = pg_postmaster_start_time(), begun_at = onceq.now()
        where server_id = p_server and group_no = p_group and held_until is null
        returning cardinality(seqs) into size;
    return coalesce(size, (select max(place) from onceq.spark_consumed
        where server_id = p_server and group_no = p_group), 0);
end $$;

-- The requests of a group that it still holds, from place p_first to p_last of its order.
create or replace function onceq.spark_claimed(p_group bigint, p_first integer, p_last integer)
returns table (place bigint, eid uuid, rid text, registrant text, thread text, aborts smallint, priority smallint,
               enqueued_at timestamptz, correlation_id text, content_type text, properties text, body bytea)
language sql stable as $$
    select p_first - 1 + s.n, e.eid, e.rid, r.name, r.thread, e.aborts, e.priority, e.enqueued_at,
           e.correlation_id, e.content_type, e.properties::text, e.body
    from onceq.spark_group g
    cross join lateral unnest(g.seqs[p_first:p_last]) with ordinality s (seq, n)
    cross join lateral
        (select * from onceq.element e where e.seq = s.seq and e.claimed_by = g.group_no offset 0) e
    left join onceq.registrant r on r.registrant_id = e.registrant_id
    where g.group_no = p_group and g.held_until is null
$$;

-- The same, as a query reads it; for a stateful server's committed group, what it read then.
create or replace function onceq.spark_read(p_group bigint, p_first integer, p_last integer)
returns table (eid uuid, rid text, registrant text, thread text, aborts smallint, priority smallint,
               enqueued_at timestamptz, correlation_id text, content_type text, properties text, body bytea)
language sql stable set enable_seqscan = off as $$
    select eid, rid, registrant, thread, aborts, priority, enqueued_at, correlation_id, content_type, properties, body
    from (select * from onceq.spark_claimed(p_group, p_first, p_last)
          union all
          select place, eid, rid, registrant, thread, aborts, priority, enqueued_at, correlation_id,
                 content_type, properties, body
          from onceq.spark_consumed where group_no = p_group and place between p_first and p_last) x
    order by place
$$;

-- Keeps what the planned group of a stateful server has read: with its commit, or not at all.
create or replace function onceq.spark_keep(s onceq.spark_server) returns void
language sql volatile as $$
    insert into onceq.spark_consumed
        select s.server_id, g.group_no, x.* from onceq.spark_group g
        cross join lateral onceq.spark_claimed(g.group_no, 1, cardinality(g.seqs)) x
        where g.group_no = s.planned
$$;

-- Removes what was kept of the groups up to this one: Spark has noted that their batches are over.
create or replace function onceq.spark_purge(p_server integer, p_epoch bigint, p_group bigint) returns integer
language plpgsql volatile as $$
declare removed integer;
begin
    perform onceq.spark_lock(p_server, p_epoch);
    delete from onceq.spark_consumed where server_id = p_server and group_no <= p_group;
    get diagnostics removed = row_count;
    return removed;
end $$;

-- Whether an element is claimed by a stateful server: it may already be in a state, where no kill
-- can undo it.
create or replace function onceq.spark_is_in_state(e onceq.element) returns boolean
language sql stable as $$
    select exists (select from onceq.spark_group g join onceq.spark_server s on s.server_id = g.server_id
        where g.group_no = e.claimed_by and s.stateful)
$$;

-- Ends this life in good order: what it holds goes back, uncharged, except what is in the state of a
-- stateful server's query. Returns how many elements.
create or replace function onceq.spark_close(p_server integer, p_epoch bigint) returns integer
language plpgsql volatile set enable_seqscan = off as $$
declare
    s onceq.spark_server := onceq.spark_lock(p_server, p_epoch);
    released integer;
begin
    perform onceq.be_durable();
    select coalesce(sum(onceq.spark_release(g)), 0) into released
        from onceq.spark_group g where g.server_id = p_server and (held_until is null or not s.stateful);
    update onceq.spark_server set epoch = epoch + 1, planned = null where server_id = p_server;
    return released;
end $$;

-- A Spark server's sign of life: takes its life lock, which its session lacks if it was lost, or if a ghost
-- held it at the open (to take it once more does no harm); and notes the time, so that a restart of the
-- database, which frees all locks, does not make it look dead.
-- Takes over from Spark servers that have died: the lock of their session is free, and they have
-- not been seen for p_grace_s. A Spark server (p_server) adopts their groups on its own queue, and
-- halves what had begun. Otherwise (null) all goes back to the queues, what had begun as suspects, if a
-- native server serves these: for Spark, each suspect would be a batch of its own, and a halved group is two.
-- Nothing is charged. One that was only cut off goes on; its batch lacks what was taken (the fence). Not from
-- a stateful server: its state has them. What a server not seen for a day had staged is removed. Returns how
-- many elements were taken over.
create or replace function onceq.spark_take_over(p_server integer, p_grace_s double precision)
returns integer
language plpgsql volatile set enable_seqscan = off as $$
declare
    dead onceq.spark_server;
    g onceq.spark_group;
    taken integer := 0;
    n integer; held integer; suspects integer;
begin
    perform pg_try_advisory_lock('onceq.spark_group'::regclass::oid::integer, p_server);
    perform onceq.spark_discard(array(
        select attempt from onceq.spark_attempt a join onceq.spark_server s on s.server_id = a.server_id
        where s.seen_at < onceq.now() - greatest(p_grace_s * interval '1 second', interval '1 day')));
    update onceq.spark_server set seen_at = onceq.now()
        where server_id = p_server and seen_at < onceq.now() - p_grace_s / 4 * interval '1 second';
    for dead in select * from onceq.spark_server s where s.server_id is distinct from p_server
            and seen_at < onceq.now() - p_grace_s * interval '1 second' and not stateful
            and case when p_server is null then exists (select from onceq.server n where s.queue_id = any (n.queue_ids))
                else queue_id = (select queue_id from onceq.spark_server where server_id = p_server) end
            and exists (select from onceq.spark_group x where x.server_id = s.server_id) loop
        continue when not pg_try_advisory_xact_lock('onceq.spark_server'::regclass::oid::integer, dead.server_id)
            or not pg_try_advisory_xact_lock('onceq.spark_group'::regclass::oid::integer, dead.server_id);
        held := 0; suspects := 0;
        for g in select * from onceq.spark_group where server_id = dead.server_id order by group_no loop
            n := onceq.spark_take_over_group(g, p_server);
            held := held + n;
            suspects := suspects + case when g.started_under is not null then n else 0 end;
        end loop;
        taken := taken + held;
        perform onceq.note_taken(jsonb_build_object('incarnation', dead.server_no, 'spark_server', dead.name,
            'held', held, 'suspects', suspects, 'charged', 0, 'aborted', '[]'::jsonb)) where held > 0;
    end loop;
    return taken;
end $$;

-- Takes over one group of a dead Spark server, under its anchor.
create or replace function onceq.spark_take_over_group(g onceq.spark_group, p_server integer) returns integer
language plpgsql volatile as $$
declare
    members bigint[] := onceq.spark_members(g);
    adopted bigint;
begin
    if p_server is null then
        update onceq.element set lane = 11 /* suspect */, together = null where seq = any (members) and claimed_by = g.group_no
            and g.started_under is not null;
        return onceq.spark_release(g);
    end if;
    if cardinality(members) > 0 then
        adopted := onceq.spark_gather(p_server, members, g.group_no, g.suspect);
        if g.started_under is not null and cardinality(members) > 1 then
            update onceq.spark_group set started_under = g.started_under, faults = 10 where group_no = adopted;
            perform onceq.spark_examine(x, false) from onceq.spark_group x where x.group_no = adopted;
        end if;
    end if;
    delete from onceq.spark_group where group_no = g.group_no;
    return cardinality(members);
end $$;
