"""Repositories for tests: each test has one that is like new, and few have to be made.

Used by the pytest plugin and by the suites of drivers. Making the schema of a repository is the
costly part of a small test, so one that a test has left with its original schema is emptied and
lent again.
"""

from __future__ import annotations

import time
import uuid
from typing import Any

from onceq.engine.perform.driver import connect
from onceq.engine.schema.migrate import apply_with

LOCK_S = 10
"""How long an emptying, or a drop, waits for a test's connections to let go."""
CLOSING_S = 0.2
"""How long PostgreSQL may need to end a session that is being closed."""

EMPTY = """
do $$ begin
    execute (
        with recursive used as (
            select oid from pg_class
            where relnamespace = '{0}'::regnamespace and relkind = 'r' and relname <> 'repository'
                and pg_relation_size(oid) > 0
            union
            select conrelid from pg_constraint join used on confrelid = used.oid
            where contype = 'f'
        )
        select coalesce(
            'truncate ' || string_agg(oid::regclass::text, ',') || ' restart identity', '')
        from used);
    execute (
        select coalesce(string_agg(
            case when sequencename ~ '^low_' then format('drop sequence {0}.%I', sequencename)
                 else format('alter sequence {0}.%I restart', sequencename) end, ';'), '')
        from pg_sequences
        where schemaname = '{0}' and sequencename !~ '^started_'
            and (last_value is not null or sequencename ~ '^low_'));
end $$
"""
"""Restores a repository to its original state, without making it again.

Only tables that have been written to are truncated, with those that refer to them: each costs its
files, and most tests write to few.
"""

# What a schema consists of, except the sequences that a repository makes as it goes.
SHAPE = """
select md5(string_agg(part, ';' order by part)) from (
    select concat_ws(' ', c.relname, c.relkind, c.relpersistence, attname, atttypid, attnotnull)
    from pg_class c left join pg_attribute a on a.attrelid = c.oid and a.attnum > 0
    where c.relnamespace = '{0}'::regnamespace and c.relname !~ '^(low|started)_'
    union all
    select concat_ws(' ', oid, proargtypes, provolatile, proconfig, prosrc, proacl)
    from pg_proc where pronamespace = '{0}'::regnamespace
    union all
    select concat_ws(' ', t.tgname, t.tgenabled)
    from pg_trigger t join pg_class c on c.oid = t.tgrelid
    where c.relnamespace = '{0}'::regnamespace
    union all
    select concat_ws(' ', conname, pg_get_constraintdef(oid))
    from pg_constraint where connamespace = '{0}'::regnamespace
    union all
    select concat_ws(' ', name, schema_version, functions_sha256, level, serves) from {0}.repository
) parts (part)
"""

# Sessions whose last statement was about a schema, or that hold locks in it.
LEFT = """
select count(*) from pg_stat_activity
where datname = current_database() and pid <> pg_backend_pid() and (query like '%{0}%' or pid in (
    select l.pid from pg_locks l join pg_class c on c.oid = l.relation
    where l.database = (select oid from pg_database where datname = current_database())
        and c.relnamespace = '{0}'::regnamespace))
"""


class Repositories:
    """The repositories of one test run, in one database. made: how many were made."""

    def __init__(self, conninfo: str) -> None:
        self.conninfo = conninfo
        self._connection = connect(conninfo)
        self._connection.execute(f"set lock_timeout = '{LOCK_S}s'".encode())
        self._free: dict[str, str] = {}  # to its shape
        self._lent: dict[str, str] = {}
        self.made = 0

    def lend(self) -> str:
        """Returns the name of an empty repository that nobody else has."""
        name, shape = self._free.popitem() if self._free else self._make()
        self._lent[name] = shape
        return name

    def _make(self) -> tuple[str, str]:
        name = new_name()
        apply_with(self.conninfo, name)
        self.made += 1
        return name, self._shape(name)

    def take_back(self, name: str) -> None:
        """Empties a repository for the next test, or drops it if the test has changed its schema.

        It also drops it if a session of the test's is still open, which might disturb the next one.
        """
        shape = self._lent.pop(name)
        if self._is_there(name) and self._shape(name) == shape and self._is_quiet(name):
            self._connection.execute(EMPTY.format(name).encode())
            self._free[name] = shape
        else:
            self.drop(name)

    def drop(self, name: str) -> None:
        """Drops a repository, or whatever has this name, if it exists."""
        self._connection.execute(f"drop schema if exists {name} cascade".encode())

    def close(self) -> None:
        """Drops all of them."""
        try:
            for name in (*self._free, *self._lent):
                self.drop(name)
        finally:
            self._connection.close()

    def _is_there(self, name: str) -> bool:
        return self._one("select to_regclass(%s) is not null", f"{name}.repository") is True

    def _is_quiet(self, name: str) -> bool:
        end = time.monotonic() + CLOSING_S
        while self._one(LEFT.format(name)) > 0:
            if time.monotonic() > end:
                return False
            time.sleep(0.002)
        return True

    def _shape(self, name: str) -> str:
        return str(self._one(SHAPE.format(name)))

    def _one(self, query: str, *parameters: Any) -> Any:
        row = self._connection.execute(query.encode(), parameters or None).fetchone()
        return None if row is None else row[0]


def new_name() -> str:
    """Returns a name for a repository that no other has, in any process."""
    return f"t_{uuid.uuid4().hex[:16]}"
