-- The commit of a micro-batch: one transaction, set by set (spec P1, P2).
-- Tables: spark_server, spark_group, spark_consumed, the stage (spark_attempt, spark_reply, spark_row, spark_named),
-- element, history, attempt, the user's tables. Locks: the server's anchor (advisory), then elements, by seq
-- those that joint rows name, then rows of the user's tables in the order of their keys.

-- Begins an attempt of a task to stage its rows, in the transaction that stages them. The number
-- is random: one from a sequence could come again after a crash of the database.
create or replace function onceq.spark_attempt(
    p_server integer, p_epoch bigint, p_query text, p_batch bigint
) returns bigint
language plpgsql volatile as $$
declare id bigint := ('x' || right(translate(gen_random_uuid()::text, '-', ''), 15))::bit(60)::bigint;
begin
    if not exists (select from onceq.spark_server where server_id = p_server and epoch = p_epoch) then
        raise exception 'epoch % of Spark server % is over', p_epoch, p_server using errcode = 'OQ001';
    end if;
    perform set_config('synchronous_commit', 'off', true);
    insert into onceq.spark_attempt values (id, p_server, p_epoch, p_query, p_batch);
    return id;
end $$;

-- Removes the staged rows of these attempts; returns how many attempts there were.
create or replace function onceq.spark_discard(p_attempts bigint[]) returns integer
language plpgsql volatile as $$
declare removed integer;
begin
    delete from onceq.spark_reply where attempt = any (p_attempts);
    delete from onceq.spark_row where attempt = any (p_attempts);
    delete from onceq.spark_named where attempt = any (p_attempts);
    delete from onceq.spark_attempt where attempt = any (p_attempts);
    get diagnostics removed = row_count;
    return removed;
end $$;

-- Removes the rows of attempts that nothing will ever commit: of an earlier life, or of a batch
-- that has committed. The attempts of the batch under way are of this life and of a later batch.
create or replace function onceq.spark_sweep(s onceq.spark_server) returns integer
language sql volatile as $$
    select onceq.spark_discard(array(
        select attempt from onceq.spark_attempt a where a.server_id = s.server_id
        and (a.epoch < s.epoch or (a.query_id = s.query_id and a.batch_id <= s.batch_id))))
$$;

-- Commits a micro-batch. p_attempts, p_rows: the attempts that count, and how many rows they said
-- they staged. p_tables: [{no, table, mode, columns, keys, add}]. Returns how it went:
-- 'committed'; 'void': it has a row of several requests, one of which was not to be finished: nothing
-- was applied, and it is over; 'replay': it was committed before; 'old': a later one was.
create or replace function onceq.spark_commit(
    p_server integer, p_epoch bigint, p_query text, p_batch bigint, p_attempts bigint[],
    p_rows bigint, p_tables jsonb, p_content_type text,
    out verdict text, out done integer, out failed integer, out returned integer
)
language plpgsql volatile set enable_seqscan = off as $$
declare
    s onceq.spark_server := onceq.spark_lock(p_server, p_epoch);
    doubled uuid[];
    removed record;
    joint record;
begin
    perform onceq.be_durable();
    done := 0; failed := 0; returned := 0;
    verdict := onceq.spark_verdict(s, p_query, p_batch);
    if verdict <> 'committed' then
        perform onceq.spark_discard(p_attempts);
        return;
    end if;
    perform onceq.spark_check_staged(p_attempts, p_rows);
    doubled := onceq.spark_doubled(p_attempts);
    select * into joint from onceq.spark_joint(s, p_attempts, doubled);
    if s.stateful then
        perform onceq.spark_keep(s);
    end if;
    if joint.fate = 'whole' then
        select * into removed from onceq.spark_finish(s, p_attempts, doubled, p_content_type);
        done := coalesce(cardinality(removed.eids), 0);
    end if;
    if done > 0 then
        perform onceq.spark_apply(spec, p_attempts, removed.eids, removed.seqs)
            from jsonb_array_elements(p_tables) spec;
    end if;
    if joint.fate <> 'gone' then
        select f.failed, f.returned into failed, returned from onceq.spark_fail(s, p_attempts, doubled) f;
    end if;
    if joint.fate = 'whole' then
        returned := returned + onceq.spark_conclude_group(s);
    else
        verdict := 'void';
        returned := returned + onceq.spark_void(s, joint.silent);
    end if;
    update onceq.spark_server set query_id = p_query, batch_id = p_batch, group_no = coalesce(planned, group_no),
        committed_at = onceq.now(), seen_at = onceq.now() where server_id = p_server returning * into s;
    perform onceq.spark_sweep(s);
end $$;

-- What this commit is, by the registration tag: a new batch, the same again, or an older one.
create or replace function onceq.spark_verdict(s onceq.spark_server, p_query text, p_batch bigint) returns text
language plpgsql volatile as $$
begin
    if p_query is distinct from s.query_id or p_batch > s.batch_id then
        return 'committed';
    elsif p_batch = s.batch_id and s.planned is not distinct from s.group_no then
        return 'replay';
    elsif s.planned > s.group_no then
        raise exception 'the checkpoint is older than the registration: batch % with claim group %, after batch % with %',
            p_batch, s.planned, s.batch_id, s.group_no using errcode = 'OQ013',
            hint = 'an earlier copy of it was restored: delete it';
    end if;
    return 'old';
end $$;

-- All the staged rows must be there: a crash of the database empties the stage.
create or replace function onceq.spark_check_staged(p_attempts bigint[], p_rows bigint) returns void
language plpgsql volatile as $$
declare present bigint;
begin
    select (select count(*) from onceq.spark_reply where attempt = any (p_attempts))
         + (select count(*) from onceq.spark_row where attempt = any (p_attempts))
         + (select count(*) from onceq.spark_named where attempt = any (p_attempts)) into present;
    if present <> p_rows then
        raise exception '% rows were staged and % are there: the database went down in between', p_rows, present
            using errcode = 'OQ014', hint = 'nothing happened; Spark runs the batch again';
    end if;
end $$;

-- The eids with more than one staged reply: nobody knows which is meant, so they fail.
create or replace function onceq.spark_doubled(p_attempts bigint[]) returns uuid[]
language sql stable as $$
    select coalesce(array_agg(eid), '{}') from (
        select eid from onceq.spark_reply where attempt = any (p_attempts)
        group by eid having count(*) > 1) x
$$;

-- The groups whose requests this server's commit may finish: the planned one and those held.
create or replace function onceq.spark_own(s onceq.spark_server) returns bigint[]
language sql stable as $$
    select array_agg(group_no) from onceq.spark_group
    where server_id = s.server_id and (group_no = s.planned or held_until is not null)
$$;

-- What becomes of a batch that has rows computed from several requests, which may count only if all
-- of these end with this commit. 'gone': one is no longer claimed, so nobody is to blame. 'failed':
-- one ends with an error or, in p_silent, with nothing. 'whole': the rows count. What they name is
-- locked from here on, so that no kill can come in between.
create or replace function onceq.spark_joint(
    s onceq.spark_server, p_attempts bigint[], p_doubled uuid[], out fate text, out silent uuid[]
)
language plpgsql volatile as $$
declare
    named uuid[] := array(select distinct eid from onceq.spark_named where attempt = any (p_attempts));
    own bigint[] := onceq.spark_own(s);
    held uuid[];
begin
    fate := 'whole'; silent := '{}';
    if named = '{}' then
        return;
    end if;
    held := array(select e.eid from onceq.element e where e.eid = any (named)
        and e.claimed_by = any (own) and e.role in ('request', 'datagram') order by e.seq for update);
    if cardinality(held) < cardinality(named) then
        perform onceq.spark_refuse_strangers(s, named);
        fate := 'gone';
        return;
    end if;
    silent := array(select eid from unnest(held) n (eid) where eid not in (
        select r.eid from onceq.spark_reply r where r.attempt = any (p_attempts) and r.eid is not null));
    if silent <> '{}' or exists (select from onceq.spark_reply r where r.attempt = any (p_attempts)
            and r.eid = any (held) and (r.error is not null or r.eid = any (p_doubled))) then
        fate := 'failed';
    end if;
end $$;

-- Refuses rows that name what this server cannot have read: they would be void for ever. It can have
-- read what its groups had claimed, wherever that is now, and what ended since the first of them began; a
-- minute is added, as clocks are set back. If the group itself was taken over, nobody knows.
create or replace function onceq.spark_refuse_strangers(s onceq.spark_server, p_named uuid[]) returns void
language plpgsql volatile as $$
declare
    known bigint[] := array(select unnest(seqs) from onceq.spark_group g where g.server_id = s.server_id);
    began timestamptz := coalesce((select min(begun_at) from onceq.spark_group g where g.server_id = s.server_id),
        s.seen_at);
    stranger uuid;
begin
    select n.eid into stranger from unnest(p_named) n (eid)
        where n.eid not in (select e.eid from onceq.element e where e.seq = any (known))
          and not exists (select from onceq.history h where h.eid = n.eid
                          and h.finished_at >= began - interval '1 minute') limit 1;
    if stranger is not null and exists (select from onceq.spark_group where group_no = s.planned) then
        raise exception 'a row names request %, which this batch has not read', stranger using errcode = 'OQ007',
            hint = 'eids are those of the requests that the row was computed from, as they came';
    end if;
end $$;

-- Ends the planned group of a void batch: what was to be answered in it and was not is charged, and all
-- others go back uncharged. Returns how many were charged. A stateful server's cannot be void, as its
-- state has it: it runs again, in halves.
create or replace function onceq.spark_void(s onceq.spark_server, p_silent uuid[]) returns integer
language plpgsql volatile as $$
declare
    e onceq.element;
    charged integer := 0;
begin
    if s.stateful then
        raise exception 'a row of a stateful query names requests that are not all finished with it'
            using errcode = 'OQ007', hint = 'each gets its reply, without an error, in the batch of that row';
    end if;
    for e in select * from onceq.element where eid = any (p_silent)
            and claimed_by = any (onceq.spark_own(s)) order by seq for update loop
        perform onceq.return_element(e, 'charge', 'unanswered',
            'rows were computed from this request, and the batch function returned none for it', s.server_no);
        charged := charged + 1;
    end loop;
    perform onceq.spark_release(g) from onceq.spark_group g
        where g.group_no = s.planned and g.held_until is null;
    return charged;
end $$;

-- Removes the answered requests that are STILL claimed by these groups, and only for those writes
-- reply and history, as onceq.conclude_batch does. Returns what was removed, by eid and seq.
create or replace function onceq.spark_finish(
    s onceq.spark_server, p_attempts bigint[], p_doubled uuid[], p_content_type text,
    out eids uuid[], out seqs bigint[]
)
language plpgsql volatile set enable_nestloop = off set enable_mergejoin = off as $$
declare
    own bigint[] := onceq.spark_own(s);
    moment timestamptz := onceq.now();
    answered uuid[] := array(select r.eid from onceq.spark_reply r
        where r.attempt = any (p_attempts) and r.error is null and r.eid <> all (p_doubled));
    clients integer[];
    reported text;
begin
    with gone as (
        delete from onceq.element e
            where e.eid = any (answered) and e.claimed_by = any (own) and e.role in ('request', 'datagram')
            returning e.*
    ), ended as materialized (
        select g.*, r.reply, case when g.reply_queue_id is not null then onceq.new_eid() end as reply_eid
            from gone g join onceq.spark_reply r on r.eid = g.eid and r.attempt = any (p_attempts)
    ), written as (
        insert into onceq.element (queue_id, lane, priority, role, outcome, registrant_id, send_no,
                rid, ack_rid, eid, correlation_id, enqueued_at, aborts, life, content_type, properties, sha256, body)
            select reply_queue_id, 0 /* reply */, priority, 'reply', 'done', registrant_id, send_no,
                rid, ack_rid, reply_eid, eid::text, moment, aborts, life, p_content_type,
                case when properties is not null then onceq.end_user_of(properties) end,
                '', coalesce(reply, '')
            from ended where reply_queue_id is not null
    ), recorded as (
        insert into onceq.history (finished_at, enqueued_at, send_no, server, queue_id, registrant_id,
                aborts, role, outcome, eid, reply_eid, rid, correlation_id, sha256, body, reply, started_at)
            select moment, x.enqueued_at, x.send_no, s.server_no, x.queue_id, x.registrant_id, x.aborts,
                x.role, 'done', x.eid, x.reply_eid, x.rid, x.correlation_id, x.sha256,
                case when q.keep_body then x.body end, case when q.keep_body then x.reply end,
                g.begun_at
            from ended x join onceq.queue q on q.queue_id = x.queue_id
            join onceq.spark_group g on g.group_no = x.claimed_by
    )
    select array_agg(x.eid), array_agg(x.seq), array_agg(distinct x.registrant_id)
        filter (where x.reply_queue_id is not null), max(case when x.properties ? 'onceq_reports'
            then onceq.report('done', x.properties, x.queue_id, x.eid, x.rid, x.registrant_id) end)
        into eids, seqs, clients, reported from ended x;
    perform onceq.ring_clerk(id) from unnest(clients) id;
end $$;

-- Aborts the requests that were answered with an error, or more than once: charged, unless the
-- environment is to blame. The n-th abort sends a request to the error queue with its one failure reply;
-- a rejected request goes there at once.
create or replace function onceq.spark_fail(
    s onceq.spark_server, p_attempts bigint[], p_doubled uuid[], out failed integer, out returned integer
)
language plpgsql volatile as $$
declare
    own bigint[] := onceq.spark_own(s);
    bad record;
    e onceq.element;
begin
    failed := 0; returned := 0;
    for bad in select x.seq, x.claimed_by, left(min(r.error), 4000) as error, left(min(r.code), 200) as code,
                left(min(r.traceback), 16384) as traceback,
                case when bool_or(r.reject) then 'reject' when bool_or(r.retry) then 'retry' else 'charge' end as fate,
                max(greatest(least(r.after_s, 31536000), 0)) filter (where r.after_s is not null) as after_s
            from onceq.spark_reply r
            cross join lateral (select m.seq, m.claimed_by from onceq.element m
                where m.eid = r.eid and m.claimed_by = any (own) offset 0) x
            where r.attempt = any (p_attempts) and (r.error is not null or r.eid = any (p_doubled))
            group by x.seq, x.claimed_by order by x.seq loop
        select * into e from onceq.element where seq = bad.seq and claimed_by = bad.claimed_by for update;
        continue when e.seq is null;
        if onceq.return_element(e, bad.fate, case when bad.error is null then 'doubled'
                else coalesce(bad.code, case bad.fate when 'reject' then 'rejected' else 'handler' end) end,
                coalesce(bad.error, 'the batch function returned more than one row for this request'),
                s.server_no, p_traceback => bad.traceback, p_after_s => case when bad.fate = 'retry' then bad.after_s end) = 'failed' then
            failed := failed + 1;
        else
            returned := returned + 1;
        end if;
    end loop;
end $$;

-- The number of the last record so far.
create or replace function onceq.spark_last_record() returns bigint
language sql volatile as $$ select coalesce(pg_sequence_last_value('onceq.record_seq'), 0) $$;

-- The aborts of a Spark server's requests, after a record, at most 1,000: for its log. failed: that request
-- failed by it, as the history row that follows says. Without traceback where the abort before said the same.
create or replace function onceq.spark_aborts(p_name text, p_since bigint) returns table (
    record_no bigint, rid text, eid uuid, attempt bigint, charge text, code text, failed boolean, traceback text)
language sql volatile as $$
    select a.record_no,
        coalesce((select e.rid from onceq.element e where e.eid = a.eid),
            (select h.rid from onceq.history h where h.eid = a.eid limit 1)),
        a.eid,
        1 + (select count(*) from onceq.attempt f where f.eid = a.eid and f.record_no < a.record_no
            and f.charge in ('charge', 'reject')),
        a.charge, a.code,
        exists (select from onceq.history h where h.eid = a.eid and h.outcome = 'failed' and h.record_no > a.record_no
            and not exists (select from onceq.attempt l where l.eid = a.eid and l.record_no > a.record_no
                and l.record_no < h.record_no)),
        case when not exists (select from (select f.code, f.error from onceq.attempt f
            where f.eid = a.eid and f.record_no < a.record_no order by f.record_no desc limit 1) l
            where (l.code, l.error) is not distinct from (a.code, a.error)) then a.traceback end
    from onceq.attempt a
    where a.record_no > p_since
      and a.server = (select s.server_no from onceq.spark_server s where s.name = p_name collate "C")
    order by a.record_no limit 1000
$$;

-- Aborts requests of a group that its reader found not to be of the queue's type: charged, each with its
-- own code and text. The reader names no epoch: what it found is true whoever claims the request;
-- what the group no longer holds is left alone, so this may be asked again. Returns how many.
create or replace function onceq.spark_refuse(
    p_group bigint, p_eids uuid[], p_codes text[], p_errors text[]
) returns integer
language plpgsql volatile set enable_seqscan = off as $$
declare
    bad record;
    e onceq.element;
    refused integer := 0;
begin
    perform onceq.be_durable();
    for bad in select x.seq, n.code, n.error, onceq.spark_number(g) as server_no
            from unnest(p_eids, p_codes, p_errors) n (eid, code, error)
            cross join lateral
                (select m.seq from onceq.element m where m.eid = n.eid and m.claimed_by = p_group offset 0) x
            join onceq.spark_group g on g.group_no = p_group
            order by x.seq loop
        select * into e from onceq.element where seq = bad.seq and claimed_by = p_group for update;
        continue when e.seq is null;
        perform onceq.return_element(e, 'charge', bad.code, bad.error, bad.server_no);
        refused := refused + 1;
    end loop;
    return refused;
end $$;

-- Ends the planned group: what its batch did not answer is held for later ones or, if this server
-- holds nothing, charged. Returns how many were charged.
create or replace function onceq.spark_conclude_group(s onceq.spark_server) returns integer
language plpgsql volatile as $$
declare
    g onceq.spark_group;
    charged integer := 0;
begin
    select * into g from onceq.spark_group where group_no = s.planned and held_until is null;
    if g.group_no is not null and s.hold_s <= 0 then
        charged := onceq.spark_unanswered(g);
    elsif g.group_no is not null then
        update onceq.spark_group set held_until = onceq.now() + s.hold_s * interval '1 second',
            started_under = null where group_no = g.group_no;
    end if;
    delete from onceq.spark_group h where h.server_id = s.server_id and h.held_until is not null
        and cardinality(onceq.spark_members(h)) = 0;
    return charged;
end $$;

-- The staged rows of removed requests ($1 attempts, $2 eids, $3 seqs) for one of the user's tables, as
-- a subquery x, with the place of the request in "?seq". Values are cast to the column's type without
-- its length, so that what is too long is refused as in any insert, not cut.
create or replace function onceq.spark_source(p_spec jsonb) returns text
language plpgsql stable as $$
declare
    target regclass := onceq.spark_target(p_spec);
    columns text;
begin
    select string_agg(format('s.c%s::%s as %I', c.n, format_type(a.atttypid, -1), c.name), ', ' order by c.n)
        into columns
        from jsonb_array_elements_text(p_spec -> 'columns') with ordinality as c (name, n)
        join pg_attribute a on a.attrelid = target and a.attname = c.name and a.attnum > 0 and not a.attisdropped;
    return format('(select %s, r.seq as "?seq" from onceq.spark_row s join unnest($2, $3) as r (eid, seq)
        on r.eid = s.eid where s.attempt = any ($1) and s.table_no = %s) x', columns, (p_spec ->> 'no')::integer);
end $$;

-- The statement that changes one of the user's tables from its rows. It goes in the order of the keys, so
-- that two servers do not deadlock; in an upsert the request enqueued last wins.
create or replace function onceq.spark_statement(p_spec jsonb) returns text
language plpgsql stable as $$
declare
    target regclass := onceq.spark_target(p_spec);
    columns text := onceq.spark_list('%1$I', p_spec -> 'columns', ', ');
    keys text := onceq.spark_list('%1$I', p_spec -> 'keys', ', ');
    added text := onceq.spark_list('%1$I', p_spec -> 'add', ', ');
    source text := onceq.spark_source(p_spec);
begin
    return case p_spec ->> 'mode'
        when 'insert' then format('insert into %s (%s) select %s from %s order by %s "?seq"',
            target, columns, columns, source, keys || ',')
        when 'upsert' then format('insert into %s (%s) select distinct on (%s) %s from %s order by %s, "?seq" desc
            on conflict (%s) do %s', target, columns, keys, columns, source, keys, keys,
            coalesce('update set ' || onceq.spark_list('%1$I = excluded.%1$I',
                (p_spec -> 'columns') - array(select jsonb_array_elements_text(p_spec -> 'keys')), ', '), 'nothing'))
        when 'add' then format('insert into %s as t (%s, %s) select %s, %s from %s group by %s order by %s
            on conflict (%s) do update set %s', target, keys, added, keys,
            onceq.spark_list('sum(%1$I)', p_spec -> 'add', ', '), source, keys, keys, keys,
            onceq.spark_list('%1$I = coalesce(t.%1$I + excluded.%1$I, excluded.%1$I, t.%1$I)', p_spec -> 'add', ', '))
        end;
end $$;

-- Refuses rows whose result would depend on where batches end: a null in a key, as no null equals another;
-- and, in an upsert, two rows of one request with the same keys, neither of which is the later one.
create or replace function onceq.spark_check_keys(
    p_spec jsonb, p_attempts bigint[], p_eids uuid[], p_seqs bigint[]
) returns void
language plpgsql stable set enable_nestloop = off as $$
declare
    keys text := onceq.spark_list('%1$I', p_spec -> 'keys', ', ');
    most bigint := case p_spec ->> 'mode' when 'upsert' then 1 else 9223372036854775807 end;
    has_null boolean;
begin
    if p_spec ->> 'mode' = 'insert' then
        return;
    end if;
    execute format('select num_nulls(%1$s) > 0 from %2$s group by %1$s, "?seq"
            having num_nulls(%1$s) > 0 or count(*) > %3$s limit 1', keys, onceq.spark_source(p_spec), most)
        into has_null using p_attempts, p_eids, p_seqs;
    if has_null then
        raise exception 'a row for table % has null in its keys (%)', p_spec ->> 'table', keys
            using errcode = 'not_null_violation';
    elsif has_null is not null then
        raise exception 'two rows of one request for table % have the same keys (%), and neither is the later',
            p_spec ->> 'table', keys using errcode = 'cardinality_violation';
    end if;
end $$;

-- The names in a JSON array, each put into a format; null if there are none.
create or replace function onceq.spark_list(p_format text, p_names jsonb, p_between text) returns text
language sql immutable as $$
    select string_agg(format(p_format, name), p_between order by n)
    from jsonb_array_elements_text(p_names) with ordinality x (name, n)
$$;

-- The user's table of a spec, perhaps with its schema in front; every column must exist.
create or replace function onceq.spark_target(p_spec jsonb) returns regclass
language plpgsql stable as $$
declare
    target regclass := to_regclass(p_spec ->> 'table');
    missing text;
begin
    if target is null then
        raise exception 'there is no table %', p_spec ->> 'table' using errcode = '42P01';
    end if;
    select name into missing from jsonb_array_elements_text(p_spec -> 'columns') name
        where not exists (select from pg_attribute where attrelid = target and attname = name
                          and attnum > 0 and not attisdropped) limit 1;
    if missing is not null then
        raise exception 'table % has no column "%"', target, missing using errcode = '42703';
    end if;
    return target;
end $$;

-- Tries the statement of a spec with no rows, and undoes it: what fails here is wrong for every request.
-- samples: for each column, a text of its values' type, as it is staged, that the column must accept; or
-- null. Returns the statement.
create or replace function onceq.spark_try(p_spec jsonb) returns text
language plpgsql volatile as $$
declare statement text := onceq.spark_statement(p_spec);
begin
    perform onceq.spark_fit(onceq.spark_target(p_spec), c.name, p_spec -> 'samples' ->> c.n::integer - 1)
        from jsonb_array_elements_text(p_spec -> 'columns') with ordinality as c (name, n);
    begin
        execute statement using '{}'::bigint[], '{}'::uuid[], '{}'::bigint[];
        raise exception 'tried' using errcode = 'OQ000';
    exception when sqlstate 'OQ000' then
        return statement;
    end;
end $$;

-- Refuses a column that does not accept a text of this kind. A domain's checks are about single values.
create or replace function onceq.spark_fit(p_table regclass, p_column text, p_sample text) returns void
language plpgsql volatile as $$
declare kind oid := (select atttypid from pg_attribute where attrelid = p_table and attname = p_column);
begin
    while exists (select from pg_type where oid = kind and typtype = 'd') loop
        kind := (select typbasetype from pg_type where oid = kind);
    end loop;
    if kind is null then
        raise exception 'table % has no column "%"', p_table, p_column using errcode = '42804';
    elsif p_sample is not null then
        execute format('select %L::%s', p_sample, format_type(kind, -1));
    end if;
exception when data_exception then
    raise exception 'column "%" of table % is %, and takes no values such as %',
        p_column, p_table, format_type(kind, -1), p_sample using errcode = '42804';
end $$;

-- Finds the requests whose staged rows the user's tables refuse, and makes each an error of the batch
-- function, in the words of the database. It goes in the order of the requests, each with the rows of those
-- before it, so that if numbers overflow together, the later ones are refused. An error of all rows is raised.
-- Returns how many requests were found.
create or replace function onceq.spark_blame(
    p_server integer, p_epoch bigint, p_attempts bigint[], p_tables jsonb
) returns integer
language plpgsql volatile set enable_seqscan = off as $$
declare
    s onceq.spark_server := onceq.spark_lock(p_server, p_epoch);
    eids uuid[];
    seqs bigint[];
    refused jsonb;
    blamed integer;
begin
    perform onceq.spark_try(spec) from jsonb_array_elements(p_tables) spec;
    select array_agg(e.eid order by e.seq), array_agg(e.seq order by e.seq) into eids, seqs
        from onceq.element e where e.claimed_by = any (onceq.spark_own(s)) and e.eid = any (array(
            select eid from onceq.spark_reply where attempt = any (p_attempts) and error is null));
    begin
        refused := onceq.spark_narrow(p_tables, p_attempts, eids, seqs);
        raise exception 'tried' using errcode = 'OQ000';
    exception when sqlstate 'OQ000' then
        update onceq.spark_reply r set error = x.error, code = 'StatementRefused', reply = null
            from jsonb_to_recordset(refused) x (eid uuid, error text)
            where r.attempt = any (p_attempts) and r.eid = x.eid;
    end;
    get diagnostics blamed = row_count;
    return blamed;
end $$;

-- Applies the rows of these requests, except those that are refused: [{eid, error}].
create or replace function onceq.spark_narrow(
    p_tables jsonb, p_attempts bigint[], p_eids uuid[], p_seqs bigint[]
) returns jsonb
language plpgsql volatile as $$
declare middle integer := coalesce(cardinality(p_eids), 0) / 2;  -- null: nothing is left of the batch
begin
    perform onceq.spark_apply(spec, p_attempts, p_eids, p_seqs) from jsonb_array_elements(p_tables) spec;
    return '[]';
exception when others then
    if left(sqlstate, 2) in ('08', '25', '40', '53', '55', '57', '58', 'OQ', 'XX') then
        raise;
    elsif middle = 0 then
        return jsonb_build_array(jsonb_build_object('eid', p_eids[1],
            'error', left(format('%s (SQLSTATE %s)', sqlerrm, sqlstate), 4000)));
    end if;
    return onceq.spark_narrow(p_tables, p_attempts, p_eids[:middle], p_seqs[:middle])
        || onceq.spark_narrow(p_tables, p_attempts, p_eids[middle + 1:], p_seqs[middle + 1:]);
end $$;

-- Applies the staged rows for one user table for the requests removed. Returns how many changed.
create or replace function onceq.spark_apply(
    p_spec jsonb, p_attempts bigint[], p_eids uuid[], p_seqs bigint[]
) returns bigint
language plpgsql volatile set enable_nestloop = off as $$
declare changed bigint;
begin
    perform onceq.spark_check_keys(p_spec, p_attempts, p_eids, p_seqs);
    execute onceq.spark_statement(p_spec) using p_attempts, p_eids, p_seqs;
    get diagnostics changed = row_count;
    return changed;
end $$;
