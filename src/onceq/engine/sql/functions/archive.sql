-- The archive (spec P4): which records may be read, the manifest, and what may then be removed.
-- Tables: archive, archive_run, archive_file, spent (written), history, attempt (read, trimmed), element,
-- registrant, registration, redrive (read). Locks: the row of archive.

-- Begins a run, and fences the previous one. The root is kept, and another one is refused; null is for
-- a run that only trims.
create or replace function onceq.archive_begin(
    p_root text, out epoch bigint, out archived bigint, out begun_at timestamptz
)
language plpgsql volatile as $$
declare a onceq.archive;
begin
    insert into onceq.archive default values on conflict do nothing;
    select * into a from onceq.archive for update;
    if a.root <> p_root then
        raise exception 'the archive is in %, not in %', a.root, p_root using errcode = 'OQ007';
    end if;
    update onceq.archive r set epoch = r.epoch + 1, root = coalesce(p_root, r.root)
        returning r.epoch, r.archived, onceq.now() into epoch, archived, begun_at;
end $$;

-- Locks the row of the archive, and refuses an epoch that is over.
create or replace function onceq.lock_archive(p_epoch bigint) returns onceq.archive
language plpgsql volatile as $$
declare a onceq.archive;
begin
    select * into a from onceq.archive for update;
    if a.epoch is null or a.epoch is distinct from p_epoch then
        raise exception 'run % of the archive is over; it is now %', p_epoch, a.epoch using errcode = 'OQ001';
    end if;
    return a;
end $$;

-- The last record up to which none is still to come; is_new: whether that has moved. The number is read
-- before this transaction has an id: whoever took it, or a smaller one, had an id by then, which is below
-- ours.
create or replace function onceq.archive_settle(p_epoch bigint, out until bigint, out is_new boolean)
language plpgsql volatile as $$
declare
    a onceq.archive;
    newest bigint;
    mine xid8;
begin
    if pg_current_xact_id_if_assigned() is not null then
        raise exception 'what is settled is asked in a transaction of its own' using errcode = 'OQ007';
    end if;
    select last_value - (not is_called)::integer into newest from onceq.record_seq;
    mine := pg_current_xact_id();
    a := onceq.lock_archive(p_epoch);
    is_new := a.soon is not null and pg_snapshot_xmin(pg_current_snapshot()) >= a.soon_xid;
    until := case when is_new then a.soon else a.settled end;
    -- An id that is not below ours is from another cluster, from which this was restored: begin anew.
    if is_new or a.soon is null or a.soon_xid >= mine then
        update onceq.archive r set settled = until, soon = newest, soon_xid = mine;
    end if;
end $$;

-- Notes a folder that is about to be written.
create or replace function onceq.archive_plan(p_epoch bigint, p_run uuid) returns boolean
language plpgsql volatile as $$
begin
    perform onceq.lock_archive(p_epoch);
    insert into onceq.archive_run (run, epoch) values (p_run, p_epoch);
    return true;
end $$;

-- Puts files into the manifest, and moves the position with them. Returns how many there are.
create or replace function onceq.archive_commit(
    p_epoch bigint, p_since bigint, p_until bigint, p_run uuid, p_files jsonb
) returns integer
language plpgsql volatile as $$
declare a onceq.archive := onceq.lock_archive(p_epoch);
begin
    if a.archived <> p_since or p_until > a.settled or p_until < p_since then
        raise exception 'records % to % do not follow %, or are not settled (%)', p_since, p_until,
            a.archived, a.settled using errcode = 'OQ007';
    end if;
    insert into onceq.archive_file (path, kind, day, rows, bytes, first_us, last_us, since, until, sha256, run)
        select f.path, f.kind, f.day, f.rows, f.bytes, f.first_us, f.last_us, p_since, p_until,
            decode(f.sha256, 'hex'), p_run
        from jsonb_to_recordset(p_files) as f (path text, kind text, day date, rows bigint, bytes bigint,
            first_us bigint, last_us bigint, sha256 text);
    update onceq.archive set archived = p_until;
    return jsonb_array_length(p_files);
end $$;

-- What the files of some runs hold, by kind and day.
create or replace function onceq.archive_held(p_runs uuid[]) returns table (
    kind text, day date, rows numeric, first_us bigint, last_us bigint
)
language sql stable as $$
    select f.kind, f.day, sum(f.rows), min(f.first_us), max(f.last_us)
    from onceq.archive_file f where f.run = any (p_runs) group by f.kind, f.day
$$;

-- Puts the files of a run in place of others' that hold the same rows. Returns how many there are.
create or replace function onceq.archive_replace(p_epoch bigint, p_replaced uuid[], p_run uuid, p_files jsonb)
returns integer
language plpgsql volatile as $$
begin
    perform onceq.lock_archive(p_epoch);
    insert into onceq.archive_file (path, kind, day, rows, bytes, first_us, last_us, since, until, sha256, run,
            is_trimmed)
        select f.path, f.kind, f.day, f.rows, f.bytes, f.first_us, f.last_us, o.since, o.until,
            decode(f.sha256, 'hex'), p_run, not exists (select from onceq.archive_file x
                where x.run = any (p_replaced) and (x.kind, x.day) = (f.kind, f.day) and not x.is_trimmed)
        from jsonb_to_recordset(p_files) as f (path text, kind text, day date, rows bigint, bytes bigint,
            first_us bigint, last_us bigint, sha256 text)
        cross join (select min(since) as since, max(until) as until from onceq.archive_file
            where run = any (p_replaced)) o;
    if exists (select from onceq.archive_held(p_replaced) o
            full join onceq.archive_held(array[p_run]) n on (o.kind, o.day, o.rows, o.first_us, o.last_us)
                = (n.kind, n.day, n.rows, n.first_us, n.last_us)
            where o.kind is null or n.kind is null) then
        raise exception 'run % does not hold what those runs hold that it is to replace', p_run
            using errcode = 'OQ007';
    end if;
    delete from onceq.archive_file where run = any (p_replaced);
    update onceq.archive_run set epoch = p_epoch, replaced_at = onceq.now() where run = any (p_replaced);
    return jsonb_array_length(p_files);
end $$;

-- The folders of runs that died, or that another run replaced at least a day ago. No later commit can make
-- them part of the archive; and whoever had the manifest before they were replaced has read them by now.
create or replace function onceq.archive_dead(p_epoch bigint) returns setof uuid
language sql stable as $$
    select run from onceq.archive_run r where epoch < p_epoch
        and (replaced_at is null or replaced_at < onceq.now() - interval '1 day')
        and not exists (select from onceq.archive_file f where f.run = r.run)
$$;

-- The condition for records after p_since, up to p_until. Those without a number are record 1.
create or replace function onceq.records_between(p_since bigint, p_until bigint) returns text
language sql immutable as $$
    select format('(record_no > %L and record_no <= %L%s)', p_since, p_until,
        case when p_since < 1 and p_until >= 1 then ' or record_no is null' else '' end)
$$;

-- How many rows of a kind the tables hold of the records after p_since, up to p_until.
create or replace function onceq.archive_count(p_kind text, p_since bigint, p_until bigint) returns bigint
language plpgsql stable as $$
declare found bigint;
begin
    if p_kind not in ('history', 'attempt') then
        raise exception 'there are no records of kind "%"', p_kind using errcode = 'OQ007';
    end if;
    execute format('select count(*) from onceq.%I where %s', p_kind, onceq.records_between(p_since, p_until)) into found;
    return found;
end $$;

-- The name of a table that holds rows of a kind; any other is refused.
create or replace function onceq.archive_table(p_kind text, p_table oid) returns regclass
language plpgsql stable as $$
begin
    if not exists (select from onceq.archive_tables(p_kind) where table_oid = p_table) then
        raise exception 'table % holds no records of kind "%"', p_table, p_kind using errcode = 'OQ007';
    end if;
    return p_table::regclass;
end $$;

-- The expression for when a row x of a kind ended.
create or replace function onceq.archive_ended(p_kind text) returns text
language sql immutable as $$
    select case p_kind when 'history' then 'x.finished_at' else 'x.ended_at' end
$$;

-- The condition for rows x of a kind that may be removed: they ended before $1, and are no later than
-- record $2 (`archive_trims_until`). Records of a request that is still somewhere stay: a send, a redrive
-- or a reconnect asks for them.
create or replace function onceq.archive_removable(p_kind text) returns text
language sql immutable as $$
    select format('%s < $1 and coalesce(x.record_no, 1) <= $2
        and not exists (select from onceq.element e where e.eid = x.eid) %s', onceq.archive_ended(p_kind),
        case p_kind when 'history' then $q$
            and not exists (select from onceq.element e
                where e.registrant_id = x.registrant_id and e.rid = x.rid)
            and not exists (select from onceq.registration g
                where g.registrant_id = x.registrant_id and x.rid in (g.rid, g.sent_rid)) $q$ end)
$$;

-- The condition for rows x in p_pages pages of their table.
create or replace function onceq.archive_pages(p_page bigint, p_pages integer) returns text
language sql immutable as $$
    select format('x.ctid >= %L and x.ctid < %L', format('(%s,0)', p_page), format('(%s,0)', p_page + p_pages))
$$;

-- Up to which record rows may be removed: those that are in files, or all that there are.
create or replace function onceq.archive_trims_until(p_archived bigint, p_unarchived boolean) returns bigint
language sql immutable as $$
    select case when p_unarchived then 9223372036854775807 else p_archived end
$$;

-- By day, in UTC: how many rows of some pages may be removed, being in files, and how many
-- only lack that. The files are read again before rows are removed. It is called page by page, like
-- the next function, so that no transaction is long.
create or replace function onceq.archive_due_days(
    p_kind text, p_before timestamptz, p_table oid, p_page bigint, p_pages integer
) returns table (day date, archived bigint, unarchived bigint)
language plpgsql stable as $$
begin
    return query execute format('select (%s at time zone ''UTC'')::date,
            count(*) filter (where coalesce(x.record_no, 1) <= $3),
            count(*) filter (where coalesce(x.record_no, 1) > $3) from %s x where %s and %s group by 1',
            onceq.archive_ended(p_kind), onceq.archive_table(p_kind, p_table), onceq.archive_pages(p_page, p_pages),
            onceq.archive_removable(p_kind))
        using p_before, onceq.archive_trims_until(null, true),
            coalesce((select a.archived from onceq.archive a), 0);
end $$;

-- Removes, from some pages, what may be removed and ended on one of these days, in UTC; returns how many. History of
-- a registrant goes only once `archive_spend` has let it, and leaves its rids in `spent`.
create or replace function onceq.archive_trim(
    p_epoch bigint, p_kind text, p_before timestamptz, p_days date[], p_unarchived boolean, p_table oid,
    p_page bigint, p_pages integer
) returns bigint
language plpgsql volatile as $$
declare
    a onceq.archive := onceq.lock_archive(p_epoch);
    removed bigint;
begin
    execute onceq.archive_deletion(p_kind, onceq.archive_table(p_kind, p_table),
            format('%s and %s and (%s at time zone ''UTC'')::date = any ($3)', onceq.archive_pages(p_page, p_pages),
                onceq.archive_removable(p_kind), onceq.archive_ended(p_kind)))
        into removed using p_before, onceq.archive_trims_until(a.archived, p_unarchived), p_days;
    return removed;
end $$;

-- Notes the files whose rows all ended before p_before and are gone from the tables; returns how many.
create or replace function onceq.archive_trimmed(p_epoch bigint, p_before timestamptz) returns bigint
language plpgsql volatile as $$
declare noted bigint;
begin
    perform onceq.lock_archive(p_epoch);
    update onceq.archive_file f set is_trimmed = true
        where not is_trimmed and last_us < extract(epoch from p_before) * 1000000
            and case kind
                when 'history' then not exists (select from onceq.history h
                    where h.finished_at < p_before and (h.record_no > f.since and h.record_no <= f.until
                        or h.record_no is null and f.since < 1))
                else not exists (select from onceq.attempt t
                    where t.ended_at < p_before and (t.record_no > f.since and t.record_no <= f.until
                        or t.record_no is null and f.since < 1)) end;
    get diagnostics noted = row_count;
    return noted;
end $$;

-- The tables that hold rows of a kind, and how many pages each has.
create or replace function onceq.archive_tables(p_kind text, out table_oid oid, out pages bigint) returns setof record
language sql stable as $$
    select c.oid, pg_relation_size(c.oid) / current_setting('block_size')::bigint from pg_class c
    where c.relkind = 'r' and (p_kind = 'attempt' and c.oid = 'onceq.attempt'::regclass
        or p_kind = 'history' and c.oid in (select relid from pg_partition_tree('onceq.history')))
$$;

-- Where the archive is, up to which record, and its files by day, of one kind or of all: at one
-- moment. What is in files then, and what the tables hold of later records, is all there is.
create or replace function onceq.archive_manifest(
    p_kind text, out root text, out archived bigint, out file onceq.archive_file
) returns setof record
language sql stable as $$
    select a.root, a.archived, f from onceq.archive a
        left join onceq.archive_file f on f.kind = p_kind or p_kind is null
        order by f.day, f.kind, f.path
$$;

-- The rids under which the failed requests with these eids were run again.
create or replace function onceq.archive_redriven(p_eids uuid[]) returns table (eid uuid, rid text)
language sql stable as $$
    select old_eid, new_rid from onceq.redrive where old_eid = any (p_eids)
$$;
