-- The low-water marks: below its mark a fresh lane holds nothing to claim, so that claims need not
-- step over what was removed, even while an old snapshot keeps the dead in the index (ADR 10).
-- An optimisation: a mark too low costs time, one too high would hide elements. It is an UNLOGGED
-- sequence: changed in place, and 0 again after a crash, which is safe.
-- Tables: queue (low written), element (read), pg_locks. Locks: the queue's row, by the first mark;
-- slot 0 (advisory) before it, if marks are found broken.

-- Moves the marks of these queues, and observes for the next sweep. p_value, p_holders: what the
-- previous sweep observed: a value of element's sequence, and who held the lock that an insert takes
-- before it draws its number. Once all of them have ended, whatever has a number up to that value
-- has committed, or never will. Returns the observation to give to the next sweep. Each statement
-- needs a snapshot of its own: an older one would lack what has committed since.
create or replace function onceq.sweep(
    p_queue_ids integer[], p_value bigint, p_holders text[], out value bigint, out holders text[]
)
language plpgsql volatile as $$
begin
    perform onceq.need_read_committed('a sweep needs a READ COMMITTED transaction');
    perform onceq.need_not_last();
    holders := onceq.inserters();
    if p_value is not null and holders && p_holders then
        value := p_value;
        holders := p_holders;
        return;
    end if;
    perform onceq.advance(id, p_value) from unnest(p_queue_ids) id where p_value is not null;
    perform onceq.expire_held(id), onceq.end_pause(id) from unnest(p_queue_ids) id;
    value := coalesce(pg_sequence_last_value('onceq.element_seq_seq'), 0);
    holders := onceq.inserters();  -- after the value, not before
end $$;

-- The transactions, by virtual id, that may have drawn a number and have not ended. A prepared one
-- keeps its virtual id.
create or replace function onceq.inserters() returns text[]
language sql volatile as $$
    select coalesce(array_agg(virtualtransaction), '{}') from pg_locks
    where locktype = 'relation' and relation = 'onceq.element'::regclass and mode = 'RowExclusiveLock'
      and database = (select oid from pg_database where datname = current_database())
$$;

-- Moves the marks of a queue to the first element that nobody has claimed, as a plain read shows
-- it, locked or not, so that a claim that rolls back leaves nothing behind; but never past p_value.
create or replace function onceq.advance(p_queue_id integer, p_value bigint) returns void
language plpgsql volatile
set enable_seqscan = off set enable_bitmapscan = off set enable_sort = off as $$
declare
    q onceq.queue;
    first bigint;
    mark regclass;
    old bigint;
begin
    select * into q from onceq.queue where queue_id = p_queue_id and destroyed_at is null;
    for i in 1 .. coalesce(cardinality(q.lanes), 0) loop
        mark := q.low[q.lanes[i] + 1];
        old := coalesce(pg_sequence_last_value(mark), 0);
        select e.turn into first from onceq.element e
            where e.queue_id = p_queue_id and e.lane = q.lanes[i] and e.turn >= old and e.claimed_by is null
            order by e.turn limit 1;
        first := least(coalesce(first, p_value + 1), p_value + 1);
        if first > old then
            mark := coalesce(mark, onceq.make_mark(p_queue_id, q.lanes[i]));
            perform setval(mark, first);
        end if;
    end loop;
end $$;

-- Makes the mark of a lane; null if somebody else is about to.
create or replace function onceq.make_mark(p_queue_id integer, p_lane integer) returns regclass
language plpgsql volatile as $$
declare
    name text := 'low_' || p_queue_id || '_' || p_lane;
    mark regclass;
begin
    perform from onceq.queue where queue_id = p_queue_id and destroyed_at is null for update skip locked;
    if not found then
        return null;
    end if;
    -- In a later statement than the lock: another may have just made it, and to_regclass need not know.
    mark := coalesce((select q.low[p_lane + 1] from onceq.queue q where q.queue_id = p_queue_id),
        to_regclass('onceq.' || name));
    if mark is not null then
        return mark;
    end if;
    mark := onceq.make_sequence(name, 0);
    update onceq.queue set low[p_lane + 1] = mark where queue_id = p_queue_id;
    return mark;
end $$;

-- Drops the marks of lanes, and what was measured, of queues that were destroyed at least a minute ago: a claim that began before may
-- still read them.
create or replace function onceq.drop_marks() returns void
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp as $$
declare mark regclass;
begin
    for mark in select unnest(low) from onceq.queue
            where destroyed_at < onceq.now() - interval '1 minute' and low <> '{}' loop
        if mark is not null then
            execute format('drop sequence %s', mark);
        end if;
    end loop;
    for mark in select c.oid from onceq.unlogged_sequences() c
            join onceq.queue q on c.relname ~ format('^fill_%s_[0-2]$', q.queue_id)
            where q.destroyed_at < onceq.now() - interval '1 minute' loop
        execute format('drop sequence %s', mark);
    end loop;
    update onceq.queue set low = '{}'
        where destroyed_at < onceq.now() - interval '1 minute' and low <> '{}';
end $$;

-- Drops the UNLOGGED sequences that cannot be read. If the power fails, PostgreSQL (seen in 18) leaves
-- one that was made since its last checkpoint like this. Each is made again when it is needed, and its absence
-- means what any crash does. The lock, of slot 0 that no server has, is taken before a sequence
-- is read, which keeps others from dropping it until the transaction ends; if all is well, the
-- exception lets go of it at once.
create or replace function onceq.drop_unreadable() returns void
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp as $$
declare
    class oid := 'onceq.server'::regclass;
    mark record;
begin
    perform pg_advisory_xact_lock(class::integer, 0);
    if onceq.is_readable(array(select oid::regclass from onceq.unlogged_sequences())) then
        raise no_data_found;
    end if;
    for mark in select oid::regclass as id, relname from onceq.unlogged_sequences() loop
        if not onceq.is_readable(array[mark.id]) then
            update onceq.queue set low = array_replace(low, mark.id, null) where mark.id = any (low);
            execute format('drop sequence if exists onceq.%I', mark.relname);
        end if;
    end loop;
    perform onceq.make_fill_marks(r.queue_id) from onceq.limits r;
exception when no_data_found then
    null;
end $$;

-- The UNLOGGED sequences that belong to someone other than the owner of the repository, and to whom.
create or replace function onceq.foreign_sequences() returns table (sequence regclass, owner regrole)
language sql stable as $$
    select c.oid::regclass, c.relowner::regrole from pg_class t, pg_class c
    where t.oid = 'onceq.server'::regclass and c.relnamespace = t.relnamespace
      and c.relkind = 'S' and c.relpersistence = 'u' and c.relowner <> t.relowner
$$;

-- The sequences of this repository that a crash resets: marks of lanes, and started markers.
create or replace function onceq.unlogged_sequences() returns setof pg_class
language sql stable as $$
    select c.* from pg_class c
    where c.relkind = 'S' and c.relpersistence = 'u'
      and c.relnamespace = (select relnamespace from pg_class where oid = 'onceq.server'::regclass)
$$;

create or replace function onceq.is_readable(p_sequences regclass[]) returns boolean
language plpgsql volatile as $$
begin
    perform pg_sequence_last_value(id) from unnest(p_sequences) id;
    return true;
exception when internal_error or data_corrupted then
    return false;
end $$;

-- Takes back the marks above an element that this incarnation has just claimed: in a dump they are
-- from a later moment than its rows, so this matters in a restored repository.
create or replace function onceq.check_marks(p_queue_id integer, p_incarnation bigint) returns void
language plpgsql volatile as $$
begin
    perform setval(q.low[l + 1], 0) from onceq.queue q, unnest(q.lanes) l
        where q.queue_id = p_queue_id and exists (select from onceq.element e
            where e.queue_id = q.queue_id and e.lane = l and e.claimed_by = p_incarnation
              and e.turn < coalesce(pg_sequence_last_value(q.low[l + 1]), 0));
end $$;
