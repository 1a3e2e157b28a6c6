-- How long history is kept, by queue (spec Q17). Whoever looks, does it, a thousand rows at a time.
-- Tables: retention, history, attempt, spent (written), queue, archive, registrant, element, registration (read). Locks: the
-- row of retention, which is skipped if it is locked: another one is at it. No statement waits for another lock long.
--
-- A look goes through the history of a queue by the index of (queue_id, outcome, finished_at), from the mark on, outcome by
-- outcome; what may not go is passed over, and comes again with the next look, an hour later. What may go, and what is left of
-- it, is as in a trim (archive.sql, spent.sql): only what is in files, if there is an archive.

-- Sets for how many days a queue keeps its history; null: until somebody trims it.
create or replace function onceq.retain_queue(p_queue_id integer, p_history_days integer) returns void
language plpgsql volatile as $$
begin
    delete from onceq.retention r where r.queue_id = p_queue_id and r.history_days is distinct from p_history_days;
    insert into onceq.retention (queue_id, history_days)
        select p_queue_id, p_history_days where p_history_days is not null on conflict do nothing;
end $$;

-- `create_queue`, and for how long history is kept; null: until somebody trims it.
create or replace function onceq.create_queue(
    p_name text, p_durable boolean, p_abort_limit integer, p_backoff_ms integer,
    p_backoff_max_ms integer, p_execution_limit_s integer, p_body_bytes_max integer,
    p_tag_bytes_max integer, p_keep_body boolean, p_error_queue text, p_retry_limit integer, p_order text,
    p_depth bigint, p_bytes bigint, p_on_failure text, p_history_days integer
) returns boolean
language plpgsql volatile as $$
begin
    if not onceq.create_queue(p_name, p_durable, p_abort_limit, p_backoff_ms, p_backoff_max_ms, p_execution_limit_s,
            p_body_bytes_max, p_tag_bytes_max, p_keep_body, p_error_queue, p_retry_limit, p_order, p_depth, p_bytes,
            p_on_failure) then
        return false;
    end if;
    perform onceq.retain_queue((onceq.find_queue(p_name)).queue_id, p_history_days) where p_history_days is not null;
    return true;
end $$;

-- `alter_queue`, and for how long history is kept, if p_retention; null: until somebody trims it.
create or replace function onceq.alter_queue(
    p_name text, p_abort_limit integer, p_backoff_ms integer, p_backoff_max_ms integer,
    p_execution_limit_s integer, p_body_bytes_max integer, p_tag_bytes_max integer,
    p_keep_body boolean, p_enqueue_started boolean, p_dequeue_started boolean, p_retry_limit integer,
    p_limits boolean, p_depth bigint, p_bytes bigint, p_on_failure text, p_retention boolean, p_history_days integer
) returns boolean
language plpgsql volatile as $$
begin
    perform onceq.retain_queue((onceq.find_queue(p_name)).queue_id, p_history_days) where p_retention;
    return onceq.alter_queue(p_name, p_abort_limit, p_backoff_ms, p_backoff_max_ms, p_execution_limit_s,
        p_body_bytes_max, p_tag_bytes_max, p_keep_body, p_enqueue_started, p_dequeue_started, p_retry_limit,
        p_limits, p_depth, p_bytes, p_on_failure);
end $$;

-- The queues whose history is to be looked at now.
create or replace function onceq.due_retention() returns table (queue text, queue_id integer)
language sql volatile as $$
    select q.name, r.queue_id from onceq.retention r join onceq.queue q on q.queue_id = r.queue_id
        where r.look_at <= onceq.now() order by r.look_at, r.queue_id
$$;

-- Puts off the next look at a queue's history, after it failed.
create or replace function onceq.hold_retention(p_queue_id integer, p_after_s double precision) returns boolean
language plpgsql volatile as $$
begin
    perform onceq.wait_at_most(0.5);
    update onceq.retention r set look_at = onceq.now() + p_after_s * interval '1 second' where r.queue_id = p_queue_id;
    return found;
end $$;

-- The next rows of a queue's history that ended before p_before: those with p_outcome, after `since` and up to `until`. At
-- most p_n, and those of the last one's moment: as many as a batch has. No row: there are no more.
create or replace function onceq.retention_page(
    p_queue_id integer, p_before timestamptz, p_n integer, inout outcome onceq.outcome, inout since timestamptz,
    out until timestamptz
)
language plpgsql volatile
set enable_seqscan = off set enable_bitmapscan = off set enable_sort = off
set plan_cache_mode = force_generic_plan as $$
declare o onceq.outcome;
begin
    foreach o in array enum_range(coalesce(outcome, enum_first(null::onceq.outcome)), null) loop
        since := case when o = outcome then since else '-infinity' end;
        outcome := o;
        select max(x.finished_at) into until from (select h.finished_at from onceq.history h
            where h.queue_id = p_queue_id and h.outcome = o and h.finished_at > since and h.finished_at < p_before
            order by h.finished_at limit p_n) x;
        if until is not null then
            return;
        end if;
    end loop;
    outcome := null;
end $$;

-- The registrants of the next rows, none of whose history may be removed yet (`archive_spend`).
create or replace function onceq.retention_owners(p_queue_id integer, p_n integer) returns setof integer
language plpgsql volatile as $$
declare
    r onceq.retention;
    before timestamptz;
    page record;
begin
    select x.* into r from onceq.retention x where x.queue_id = p_queue_id and x.look_at <= onceq.now();
    before := onceq.now() - r.history_days * interval '1 day';
    select * into page from onceq.retention_page(p_queue_id, before, p_n, r.outcome, r.finished_at);
    return query select distinct w.registrant_id from onceq.history h
        join onceq.registrant w on w.registrant_id = h.registrant_id and not w.has_spent
        where h.queue_id = p_queue_id and h.outcome = page.outcome and h.finished_at > page.since
          and h.finished_at <= page.until
        order by w.registrant_id;
end $$;

-- Removes of the next rows of a queue's history what may go, with the aborts of those requests, and goes on behind them;
-- returns how many rows of history that were, and whether the look is over: the next one begins p_every_s later.
create or replace function onceq.retire_history(
    p_queue_id integer, p_n integer, p_every_s double precision, out retired bigint, out is_over boolean
)
language plpgsql volatile as $$
declare
    r onceq.retention;
    before timestamptz;
    page record;
    trims_until bigint;
    eids uuid[];
begin
    retired := 0;
    is_over := true;
    perform onceq.wait_at_most(0.5);
    select x.* into r from onceq.retention x where x.queue_id = p_queue_id and x.look_at <= onceq.now()
        for update skip locked;
    if r.queue_id is null then
        return;
    end if;
    before := onceq.now() - r.history_days * interval '1 day';
    select * into page from onceq.retention_page(p_queue_id, before, p_n, r.outcome, r.finished_at);
    is_over := page.outcome is null;
    update onceq.retention x set outcome = page.outcome, finished_at = page.until,
        look_at = case when is_over then onceq.now() + p_every_s * interval '1 second' else look_at end
        where x.queue_id = p_queue_id;
    if is_over then
        return;
    end if;
    -- without an archive all may go; with one, what is in its files
    trims_until := onceq.archive_trims_until((select a.archived from onceq.archive a where a.root is not null),
        not exists (select from onceq.archive a where a.root is not null));
    execute format('select array(select x.eid from onceq.history x where x.queue_id = $3 and x.outcome = $4
            and x.finished_at > $5 and x.finished_at <= $6 and %s
            and not exists (select from onceq.attempt t where t.eid = x.eid and coalesce(t.record_no, 1) > $2))',
            onceq.archive_removable('history'))
        into eids using before, trims_until, p_queue_id, page.outcome, page.since, page.until;
    execute onceq.archive_deletion('history', 'onceq.history', format('%s and x.queue_id = $3 and x.outcome = $4
            and x.finished_at > $5 and x.finished_at <= $6 and x.eid = any ($7)', onceq.archive_removable('history')))
        into retired using before, trims_until, p_queue_id, page.outcome, page.since, page.until, eids;
    execute onceq.archive_deletion('attempt', 'onceq.attempt', format('%s and x.eid = any ($3)
            and not exists (select from onceq.history h where h.eid = x.eid)', onceq.archive_removable('attempt')))
        using before, trims_until, eids;
end $$;
