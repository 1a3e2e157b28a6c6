"""Destroys a repository in which nothing waits, slice by slice; it can be gone on with.

Used by the command line. The first transaction looks whether anything waits while nobody can
write, notes that the repository is going, and puts up a fence for sessions that are connected
already. From then on nobody opens it. Each further transaction drops at most SLICE objects, so that
the lock table suffices however many queues and sessions there were. Nothing is dropped that a
repository does not make itself, and nothing of another schema: no CASCADE.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import psycopg
from psycopg import sql
from psycopg.rows import class_row

from onceq import version
from onceq.engine.schema import upgrading
from onceq.engine.schema.holders import holders
from onceq.engine.schema.parts import (
    FENCE,
    check_foreign,
    in_use,
    members,
    refuse_others,
    some,
)
from onceq.engine.schema.repositories import NO_RIGHT, quoted, shown
from onceq.engine.sessions.faults import translated
from onceq.engine.sessions.levels import GOING, stamp_of
from onceq.errors import (
    DeadlineExceeded,
    IllegalState,
    SchemaMismatch,
    SchemaMissing,
    StatementRefused,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from onceq.engine.schema.repositories import RepositoryInfo
    from onceq.engine.sessions.levels import Stamp

SLICE: Final = 200
"""How many objects are dropped in a transaction; each takes a few places in the lock table."""
WAIT_S: Final = 10.0
"""How long each transaction tries to get its locks."""
PAUSE_S: Final = 0.2
AGAIN: Final = frozenset({"55P03", "40P01"})
TOLD: Final = ("table", "repository")
"""What says to the last that the repository is going."""

_OWNER: Final = """
select pg_has_role(nspowner, 'usage') from pg_namespace where oid = to_regnamespace(%(schema)s)
"""
# Who has not ended: those who serve or wait hold an advisory lock that names a table.
_WAITS: Final = """
select case e.role when 'request' then 'request' when 'reply' then 'reply' when 'failed'
        then 'failed element' else 'datagram' end as kind,
    'queue ' || coalesce(q.name, e.queue_id::text) as place, count(*) as number
from {r}.element e left join {r}.queue q using (queue_id)
where e.lane <> 13 /* kept */ or e.claimed_by is not null group by 1, 2
union all
select 'connected client', concat_ws(', thread ', r.name, nullif(r.thread, '')), 1
from {r}.registrant r where r.state = 'connected'
union all
select 'relay', p.name, count(*) from {r}.stream_plan p group by 2
union all
select 'session', format('pid %%s (%%s, %%s)', l.pid, a.usename, a.application_name), 1
from (select distinct l.pid from pg_locks l join pg_class c on c.oid = l.classid
    where l.locktype = 'advisory' and l.objsubid = 2 and l.granted and l.pid <> pg_backend_pid()
        and c.relnamespace = to_regnamespace({schema})
        and l.database = (select oid from pg_database where datname = current_database())) l
    left join pg_stat_activity a using (pid)
order by 1, 2
"""
ADVICE: Final = {
    "request": "let a server do them, or `onceq kill EID`",
    "reply": "let their client collect them, or `onceq client forget CLIENT --force`",
    "datagram": "let whoever takes them do so, or `onceq kill EID`",
    "failed element": "`onceq redrive EID`, or dequeue them",
    "connected client": "let it disconnect, or `onceq client forget CLIENT --force`",
    "relay": "let it send what it has planned",
    "session": "it serves, waits, or has a transaction open: end it",
}
"""By what waits: what to do about it."""

_BEGIN: Final = f"""
set local lock_timeout = {upgrading.OTHERS_MS};
do $$ begin perform pg_advisory_xact_lock(hashtext('onceq.migrate')); end $$;
set local lock_timeout = {upgrading.LOCK_MS};
"""
# A trigger's lock waits for all who write, and keeps out those who come: what is then read is true.
_FENCED: Final = """
create or replace function {r}.{fence}() returns trigger language plpgsql as $$ begin
    raise exception 'repository {name} is being destroyed: nothing happened'
        using errcode = 'OQ015';
end $$;
do $$ declare one regclass; begin
    for one in select oid from pg_class where relnamespace = to_regnamespace('{r}')
            and relkind in ('r', 'p') and relname <> 'repository' order by relname loop
        execute format('create trigger {fence} before insert or update or delete on %s'
            ' for each statement execute function {r}.{fence}()', one);
    end loop;
end $$;
"""
# Not by to_regclass: its caches may be older than the lock that was waited for.
_IS_THERE: Final = """
select from pg_class c join pg_namespace n on n.oid = c.relnamespace
where n.nspname = %s and c.relname = 'repository'
"""
_NOTED: Final = "update {r}.repository set level = {going}, serves = {going}"


@dataclass(frozen=True, slots=True)
class Waiting:
    """What keeps a repository from being destroyed. kind: of ADVICE. place: where it is, or who."""

    kind: str
    place: str
    number: int

    def __str__(self) -> str:
        if self.kind in {"session", "connected client"}:
            return f"{self.kind} {self.place}"
        return f"{self.number} {self.kind}(s) in {self.place}"


def check(connection: psycopg.Connection[Any], name: str, *, wait_s: float = WAIT_S) -> bool:
    """Returns whether a repository may be destroyed: True, and False if that has begun already.

    wait_s: how long it tries while tables are locked. Raises InvalidName, SchemaMissing,
    SchemaMismatch (another onceq made it), IllegalState (something waits, is at work, or is not the
    repository's own; the text says what to do), StatementRefused (this role does not own it),
    DeadlineExceeded, EnvironmentFault; nothing happened.
    """
    info = shown(connection, name)
    with translated(connection):
        _check_right(connection, name, info)
    return _in_transaction(connection, name, wait_s, _look) > 0


def destroy(
    connection: psycopg.Connection[Any],
    name: str,
    *,
    wait_s: float = WAIT_S,
    told: Callable[[int], None] = lambda _number: None,
) -> int:
    """Destroys a repository, or goes on with it; returns how many objects it dropped.

    The schema goes too. wait_s: how long each transaction tries to get its locks. told: of the
    number dropped so far, after each. Raises what `check` does, and DeadlineExceeded (the error
    says who holds locks): nothing happened, or, if it had begun, what is left of the repository is
    listed as being destroyed, and this goes on with it. After EnvironmentFault, look.
    """
    if check(connection, name, wait_s=wait_s):
        _in_transaction(connection, name, wait_s, _begin)
    dropped = 0
    while number := _in_transaction(connection, name, wait_s, _drop_some):
        dropped += number
        told(dropped)
    return dropped


def _in_transaction(
    connection: psycopg.Connection[Any],
    name: str,
    wait_s: float,
    step: Callable[[psycopg.Connection[Any], str], int],
) -> int:
    """Does a step in a transaction of its own, again while it does not get its locks."""
    end = time.monotonic() + wait_s
    with translated(connection):
        while True:
            try:
                with connection.transaction():
                    connection.execute(_BEGIN.encode())
                    return step(connection, name)
            except psycopg.errors.DependentObjectsStillExist as error:
                raise IllegalState(in_use(name, error.diag.message_detail or "")) from error
            except psycopg.Error as error:
                if error.sqlstate not in AGAIN:
                    raise
                if time.monotonic() > end:
                    raise DeadlineExceeded(_held(connection, name, wait_s)) from error
            time.sleep(PAUSE_S)


def _held(connection: psycopg.Connection[Any], name: str, wait_s: float) -> str:
    who = holders(connection, quoted(name)) or "nobody any more"
    return (
        f"for {wait_s:g} s locks of repository {name!r} were held by {who}; end that transaction, "
        "or try again when it is over; `onceq repository list` says whether it is being destroyed"
    )


def _look(connection: psycopg.Connection[Any], name: str) -> int:
    """Refuses a repository that is not to be destroyed; 0: one that is being destroyed already."""
    stamp = _stamp(connection, name)
    if stamp is not None and stamp.is_going:
        return 0
    _check_made_by_this(name, stamp)
    check_foreign(connection, name)
    _check_waiting(connection, name)
    return 1


def _begin(connection: psycopg.Connection[Any], name: str) -> int:
    """Fences a repository in which nothing waits, and notes that it is going; 0: it is already."""
    stamp = _stamp(connection, name)
    if stamp is not None and stamp.is_going:
        return 0
    _check_made_by_this(name, stamp)
    going = {"r": quoted(name), "name": name, "fence": FENCE, "going": GOING}
    connection.execute(_FENCED.format(**going).encode())
    check_foreign(connection, name)
    _check_waiting(connection, name)
    connection.execute(_NOTED.format(**going).encode())
    return 1


def _drop_some(connection: psycopg.Connection[Any], name: str) -> int:
    """Drops what comes next of a repository that is going; returns how much; 0: it is gone.

    Another one may have ended it, and made a new one of its name.
    """
    stamp = _stamp(connection, name)
    if stamp is None or not stamp.is_going:
        return 0
    next_ones = members(connection, name, SLICE + 1)
    left = [one for one in next_ones if (one.type, one.name) != TOLD]
    refuse_others(name, left)
    these = [one for one in left if one.turn == left[0].turn][:SLICE]
    if these:
        text = f"drop {these[0].type} {', '.join(one.identity for one in these)}"
        connection.execute(text.encode())
        return len(these)
    last = "drop table {0}.repository; drop schema {0}"
    connection.execute(last.format(quoted(name)).encode())
    return 1


def _stamp(connection: psycopg.Connection[Any], name: str) -> Stamp | None:
    """Returns what a repository says of itself, under the lock of those who change it."""
    if connection.execute(_IS_THERE.encode(), (name,)).fetchone() is None:
        return None
    text = f"select to_jsonb(r) from {quoted(name)}.repository r"
    row = connection.execute(text.encode()).fetchone()
    return None if row is None else stamp_of(row[0])


def _check_right(connection: psycopg.Connection[Any], name: str, info: RepositoryInfo) -> None:
    row = connection.execute(_OWNER.encode(), {"schema": quoted(name)}).fetchone()
    if row != (True,) or info.state == NO_RIGHT:
        role = connection.info.user
        raise StatementRefused(
            f"role {role!r} may not destroy repository {name!r}, and nothing happened: its schema "
            f"belongs to {info.owner!r}; connect as that role, or as a member of it"
        )


def _check_made_by_this(name: str, stamp: Stamp | None) -> None:
    if stamp is None:
        raise SchemaMissing(f"repository {name!r} is gone by now: another one has destroyed it")
    if stamp != upgrading.made():
        raise SchemaMismatch(
            f"repository {name!r} is not destroyed, as another onceq made it (level "
            f"{stamp.level}; this one is of level {version.LEVEL}), and may keep there what it "
            "cannot see: with the newest onceq that you have, run "
            f"`onceq init --repository {name}`, then this again"
        )


def _check_waiting(connection: psycopg.Connection[Any], name: str) -> None:
    query = sql.SQL(_WAITS).format(r=sql.Identifier(name), schema=sql.Literal(quoted(name)))
    with connection.cursor(row_factory=class_row(Waiting)) as cursor:
        found = cursor.execute(query, {}).fetchall()
    if found:
        kinds = dict.fromkeys(one.kind for one in found)
        advice = ". ".join(f"{kind}: {ADVICE[kind]}" for kind in kinds)
        raise IllegalState(
            f"repository {name!r} is not destroyed, and nothing happened: it has "
            f"{some([str(one) for one in found])}. {advice}"
        )
