-- Restoring from the archive (spec P4): rows of a file that are no longer in the tables go back into them.
-- The caller has put all rows of the file into the temporary table restoring, as text where a type is
-- the repository's own. Tables: archive_file, history, attempt (written), archive, queue, registrant
-- (read). Locks: the row of archive.

-- Puts back what is missing of a file, and leaves those rows in restoring; returns how many.
create or replace function onceq.archive_restore(p_epoch bigint, p_path text) returns bigint
language plpgsql volatile as $$
declare
    f onceq.archive_file;
    missing bigint;
    restored bigint;
begin
    perform onceq.lock_archive(p_epoch);
    update onceq.archive_file set is_trimmed = false where path = p_path returning * into f;
    analyze pg_temp.restoring;
    if f.rows is distinct from (select count(*) from pg_temp.restoring) then
        raise exception 'file % is not in the manifest with so many rows', p_path using errcode = 'OQ007';
    end if;
    perform onceq.leave_missing(f.kind);
    select count(*) into missing from pg_temp.restoring;
    if f.kind = 'history' then
        restored := onceq.restore_history();
    else
        insert into onceq.attempt (ended_at, server, pid, eid, charge, code, error, host, record_no)
            select ended_at, server, pid, eid::uuid, charge, code, error, host, record_no
            from pg_temp.restoring;
        get diagnostics restored = row_count;
    end if;
    if restored <> missing then
        raise exception '% rows of % name queues or registrants that this repository does not have: %',
            missing - restored, p_path, onceq.unknown_names() using errcode = 'OQ007';
    end if;
    return restored;
end $$;

-- Removes from restoring what is in the tables.
create or replace function onceq.leave_missing(p_kind text) returns void
language plpgsql volatile as $$
begin
    if p_kind = 'history' then
        delete from pg_temp.restoring s using onceq.history h where h.eid = s.eid::uuid
            and h.finished_at = s.finished_at and coalesce(h.record_no, 1) = s.record_no;
    else
        delete from pg_temp.restoring s using onceq.attempt t where t.eid = s.eid::uuid
            and t.ended_at = s.ended_at and coalesce(t.record_no, 1) = s.record_no;
    end if;
end $$;

-- Puts rows of history back: under the registrant of that name, and the queue that had the name then.
create or replace function onceq.restore_history() returns bigint
language plpgsql volatile as $$
declare restored bigint;
begin
    insert into onceq.history (finished_at, enqueued_at, started_at, send_no, server, queue_id,
            registrant_id, aborts, role, outcome, eid, reply_eid, rid, correlation_id, code, error,
            sha256, body, reply, record_no)
        select s.finished_at, s.enqueued_at, s.started_at, s.send_no, s.server, q.queue_id,
            r.registrant_id, s.aborts, s.role::onceq.role, s.outcome::onceq.outcome, s.eid::uuid,
            s.reply_eid::uuid, s.rid, s.correlation_id, s.code, s.error, s.sha256, s.body, s.reply,
            s.record_no
        from pg_temp.restoring s
        join (
            select queue_id, name,
                case when row_number() over w > 1 then created_at else '-infinity' end as since,
                coalesce(lead(created_at) over w, 'infinity') as until
            from onceq.queue window w as (partition by name order by created_at, queue_id)
        ) q on q.name = s.queue and s.enqueued_at >= q.since and s.enqueued_at < q.until
        left join onceq.registrant r on r.name = s.registrant and r.thread = s.thread
        where s.registrant is null or r.registrant_id is not null;
    get diagnostics restored = row_count;
    return restored;
end $$;

-- Up to five queues and registrants that restoring names and that are not here.
create or replace function onceq.unknown_names() returns text
language plpgsql volatile as $$
declare names text;
begin
    select string_agg(format('%s %L', kind, name), ', ') into names from (
        select 'queue' as kind, queue as name from pg_temp.restoring s
            where not exists (select from onceq.queue q where q.name = s.queue)
        union select 'registrant', registrant from pg_temp.restoring s where registrant is not null
            and not exists (select from onceq.registrant r where (r.name, r.thread) = (s.registrant, s.thread))
        order by kind, name limit 5
    ) unknown;
    return names;
end $$;
