-- Rids whose history was trimmed (spec finding 3, ADR 34). They are still known, so that none of them runs twice.
-- Tables: spent, registrant (written), history (read). Locks: the registrant's anchor (advisory, exclusive in
-- archive_spend).
--
-- Whoever sends looks into `spent` only if its registrant `has_spent`, which it reads under the anchor. This is set under
-- the exclusive anchor, before the first row of history goes: whoever has read that it was not has ended by then.
-- A look into `spent` is never before that into history, but in the same statement or a later one: what a trim moves in
-- between is seen in one of them.

-- What `spent` knows a rid by.
create or replace function onceq.rid_sha256(p_rid text) returns bytea
language sql stable parallel safe as $$ select sha256(convert_to(p_rid, 'UTF8')) $$;

-- Whether the history of a rid was trimmed.
create or replace function onceq.is_spent(p_registrant integer, p_rid text) returns boolean
language sql stable as $$
    select exists (select from onceq.spent s
        where s.registrant_id = p_registrant and s.rid_sha256 = onceq.rid_sha256(p_rid))
$$;

-- Notes for this transaction that a registrant may have such rids. It is called in the condition by which several
-- senders' rows are read, and for the others costs nothing there.
create or replace function onceq.note_spent() returns boolean
language sql volatile as $$ select set_config('onceq_setting.may_be_spent', 'on', true) = 'on' $$;

-- Those of some rids of a registrant whose history was trimmed.
create or replace function onceq.spent_of(p_registrant integer, p_rids text[]) returns setof text
language sql stable as $$
    select x.rid from onceq.registrant r, unnest(p_rids) x (rid), lateral (select from onceq.spent s
            where s.registrant_id = r.registrant_id and s.rid_sha256 = onceq.rid_sha256(x.rid) offset 0) s
        where r.registrant_id = p_registrant and r.has_spent
$$;

-- The registrants that have history from before p_before, and none of whose history may be trimmed yet.
create or replace function onceq.archive_owners(p_before timestamptz) returns setof integer
language sql stable as $$
    select r.registrant_id from onceq.registrant r where not r.has_spent
        and exists (select from onceq.history h where h.registrant_id::bigint = r.registrant_id
            and h.outcome = any (enum_range(null::onceq.outcome)) and h.finished_at < p_before)
        order by r.registrant_id
$$;

-- Lets history of a registrant be trimmed from now on. False: for p_timeout_s somebody has held its anchor, so its
-- history stays for now.
create or replace function onceq.archive_spend(p_registrant integer, p_timeout_s double precision) returns boolean
language plpgsql volatile as $$
begin
    perform onceq.wait_at_most(p_timeout_s);
    perform pg_advisory_xact_lock('onceq.registrant'::regclass::oid::integer, p_registrant);
    update onceq.registrant set has_spent = true where registrant_id = p_registrant;
    return true;
exception when lock_not_available then
    return false;
end $$;

-- The statement that deletes rows x of a table of a kind, where p_condition holds, and counts them. Rows of a
-- registrant are deleted only if it `has_spent`, and leave their rids in `spent`, unless its name is closed.
create or replace function onceq.archive_deletion(p_kind text, p_table regclass, p_condition text) returns text
language sql stable as $$
    select format(case p_kind when 'history' then $q$
        with gone as (delete from %s x where %s and (x.registrant_id is null or exists (
                select from onceq.registrant r where r.registrant_id = x.registrant_id and r.has_spent)) returning x.*),
            left_over as (insert into onceq.spent (registrant_id, outcome, eid, rid_sha256, sha256)
                select registrant_id, outcome, eid, onceq.rid_sha256(rid), sha256
                from gone join onceq.registrant r using (registrant_id)
                where r.closed_at is null order by finished_at on conflict do nothing)
        select count(*) from gone $q$ else $q$
        with gone as (delete from %s x where %s returning x.eid) select count(*) from gone $q$ end, p_table, p_condition)
$$;
