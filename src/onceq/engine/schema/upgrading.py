"""The SQL that makes a repository, or brings one up to date: what `init` runs, and prints.

Pure: it is a function of the repository's stamp. It is one transaction, refuses any repository but
the one that it was made for, waits for no table longer than LOCK_MS, and leaves a repository in use
alone if its new level does not serve those who use it.
"""

from __future__ import annotations

from typing import Final

from onceq import version
from onceq.engine.schema import scripts
from onceq.engine.sessions.levels import APPLICATION, Stamp

LOCK_MS: Final = 500
"""How long a statement of an upgrade waits for a table: everybody else waits behind it meanwhile.

Less than PostgreSQL's deadlock_timeout (1 s): where an upgrade and an Op wait for each other, the
upgrade gives up before anybody is chosen for it.
"""
OTHERS_MS: Final = 10_000
"""How long it waits for another one who makes or upgrades; nobody waits behind that."""
CHANGED: Final = "OQ016"
"""The SQLSTATE that says that the repository is not as it was when the SQL was made."""
GONE: Final = ["restore_attempts", "fence"]
"""Functions of former versions that have no successor."""

GIVE: Final = "select {r}.give_to_owner(sequence) from {r}.foreign_sequences();"
"""Gives the repository's owner any sequences that another role made, if this role may."""

_BEGIN: Final = """
set local lock_timeout = {others};
do $$ begin perform pg_advisory_xact_lock(hashtext('onceq.migrate')); end $$;
set local lock_timeout = {tables};
"""
_IS_MISSING: Final = """
do $$ begin
    if to_regclass('{r}.repository') is not null then
        raise exception 'there is a repository {r} by now'
            using errcode = '{changed}', hint = 'print this script again: another one is needed';
    end if;
end $$;
"""
_IS_AS_IT_WAS: Final = """
do $$ begin
    if not exists (select from {r}.repository where schema_version = {version}
            and tables_sha256 = '{tables}' and functions_sha256 = '{functions}') then
        raise exception 'repository {r} has changed since this script was made for it'
            using errcode = '{changed}', hint = 'print this script again: another one is needed';
    end if;
end $$;
"""
# Whoever serves, or waits, holds an advisory lock that names a table of the repository. Of what
# level its code is, says the name of its session, and otherwise the repository that let it in.
_IS_FREE: Final = """
do $$
declare found text;
begin
    with used as (
        select l.pid from pg_locks l join pg_class c on c.oid = l.classid
        where l.locktype = 'advisory' and l.objsubid = 2 and l.granted
            and l.pid <> pg_backend_pid() and c.relnamespace = to_regnamespace('{r}')
            and l.database = (select oid from pg_database where datname = current_database()))
    select string_agg(format('pid %s (%s, %s)', pid, usename, application_name), ', ') into found
    from pg_stat_activity where pid in (select pid from used) and coalesce(
        substring(application_name from '^{application}$')::integer, {level}) < {serves};
    if found is not null then
        raise exception 'level {new} of repository {r} does not serve who is at work: %', found
            using errcode = 'OQ015', hint = 'stop it, then run this again; nothing happened';
    end if;
end $$;
"""
# Former functions with other parameters: beside the present ones, calls would be ambiguous. The
# present ones were written by this transaction; a function of any other name is the user's.
_DROP_FORMER: Final = """
do $$
declare former record;
begin
    for former in
        with all_of as (select oid, proname, xmin = pg_current_xact_id()::xid as is_new
            from pg_proc where pronamespace = to_regnamespace('{r}'))
        select oid::regprocedure::text as signature from all_of where not is_new
            and (proname in (select proname from all_of where is_new) or proname in ({gone}))
    loop
        execute 'drop function ' || former.signature;
    end loop;
end $$;
"""
_NOTED: Final = """
update {r}.repository set schema_version = {version}, tables_sha256 = '{tables}',
    functions_sha256 = '{functions}', level = {level}, serves = {serves},
    migrated_at = clock_timestamp();
"""


def made() -> Stamp:
    """Returns the stamp of the repositories that this onceq makes."""
    newest = scripts.newest()
    return Stamp(
        version=newest,
        tables_sha256=scripts.tables_sha256(newest),
        functions_sha256=scripts.functions_sha256(),
        level=version.LEVEL,
        serves=version.SERVES,
    )


def body(repository: str, stamp: Stamp | None) -> str:
    """Returns the SQL to be run in a transaction; empty: the repository is up to date.

    stamp: of the repository as it is, which this onceq may upgrade; None: there is none.
    """
    new = made()
    if stamp == new:
        return ""
    begin = _BEGIN.format(others=OTHERS_MS, tables=LOCK_MS)
    if stamp is None:
        is_missing = _IS_MISSING.format(r=repository, changed=CHANGED)
        return "\n".join([begin, is_missing, scripts.render(repository), inserted(repository, new)])
    parts = [begin, _IS_AS_IT_WAS.format(r=repository, changed=CHANGED, **_digests(stamp))]
    if stamp.level < new.level:
        parts.append(_is_free(repository, stamp))
    parts.append(scripts.in_schema(scripts.tables(stamp.version, new.version), repository))
    if stamp.functions_sha256 != new.functions_sha256:
        parts.extend(scripts.in_schema(text, repository) for _, text in scripts.function_sources())
        gone = ", ".join(f"'{name}'" for name in GONE)
        parts.append(_DROP_FORMER.format(r=repository, gone=gone))
    parts.append(_NOTED.format(r=repository, level=new.level, serves=new.serves, **_digests(new)))
    return "\n".join(parts)


def script(repository: str, stamp: Stamp | None) -> str:
    """Returns all of it for psql, or for somebody else to run: what `init` would run now."""
    text = body(repository, stamp)
    what = "is up to date" if not text else "of" if stamp else "to be made, of"
    level = f" level {version.LEVEL}" if text else ""
    head = f"-- Repository {repository} {what}{level}."
    give = GIVE.format(r=repository)
    return f"{head}\nbegin;\n{text}\ncommit;\n{give}\n" if text else f"{head}\n{give}\n"


def inserted(repository: str, stamp: Stamp) -> str:
    """Returns the SQL of the row that records what was made. Nothing in it needs quoting."""
    return (
        f"insert into {repository}.repository"
        " (name, schema_version, tables_sha256, functions_sha256, level, serves)"
        f" values ('{repository}', {stamp.version}, '{stamp.tables_sha256}',"
        f" '{stamp.functions_sha256}', {stamp.level}, {stamp.serves});"
    )


def _digests(stamp: Stamp) -> dict[str, object]:
    """Returns what a stamp says of its SQL, fit for a literal."""
    tables, functions = stamp.tables_sha256 or "", stamp.functions_sha256 or ""
    return {
        "version": stamp.version,
        "tables": tables.replace("'", "''"),
        "functions": functions.replace("'", "''"),
    }


def _is_free(repository: str, stamp: Stamp) -> str:
    return _IS_FREE.format(
        r=repository,
        application=APPLICATION.pattern,
        level=stamp.level,
        serves=version.SERVES,
        new=version.LEVEL,
    )
