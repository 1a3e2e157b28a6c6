"""Rubbish against a real PostgreSQL: the public API, the SQL functions themselves, the commands.

A refusal leaves the repository as it was, and the session alive.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

import psycopg
from typer.testing import CliRunner

from onceq.cli.main import make_app
from onceq.engine.connection import Link
from onceq.engine.locate import Located
from onceq.engine.migrate import apply_with
from proof.fuzz import api
from proof.fuzz.rubbish import Rubbish

if TYPE_CHECKING:
    from collections.abc import Generator

    from proof.fuzz.judge import Verdicts

REPOSITORY = "fuzz"
FUNCTIONS = """
    select p.proname, array(select format_type(t, null) from unnest(p.proargtypes::oid[]) t)
    from pg_proc p where p.pronamespace = %s::regnamespace and p.prokind = 'f'
      and p.prorettype <> 'trigger'::regtype order by 1, 2
"""
STATE = """
    select (select json_agg(q order by queue_id)::text from {0}.queue q),
        (select count(*) || coalesce(sum(seq), 0)::text from {0}.element),
        (select count(*) from {0}.history), (select json_agg(r)::text from {0}.registration r),
        (select json_agg(r order by registrant_id)::text from {0}.registrant r)
"""
ALLOWED = ("OQ", "22", "23", "54", "55P03", "0A", "40", "42P01", "42883", "42704", "42804", "P0002")
"""SQLSTATEs, by prefix, of an SQL function that is called with rubbish: our own, a data type's, a
constraint's, a limit's, a time-out; 42: a name in the rubbish that is none of the database's."""
UNHARMED = "select count(*) from {0}.repository"
COMMANDS = (
    ("queue", "list"),
    ("queue", "show"),
    ("queue", "create"),
    ("queue", "alter"),
    ("queue", "start"),
    ("queue", "destroy"),
    ("request", "show"),
    ("request", "list"),
    ("error", "list"),
    ("redrive",),
    ("kill",),
    ("submit",),
    ("collect",),
    ("version",),
)
OPTIONS = ("--abort-limit", "--queue", "--client", "--rid", "--json", "--limit", "--state", "--out")
CODES = frozenset({0, 1, 2, 3, 4})


class Database:
    """A repository of the fuzz in a PostgreSQL."""

    def __init__(self, conninfo: str) -> None:
        self.conninfo = conninfo
        apply_with(conninfo, REPOSITORY)
        self.link = Link(Located(conninfo, None), REPOSITORY)
        self.link.reconnect()
        self.link.connection.execute("set lock_timeout = '200ms'; set statement_timeout = '10s'")
        self.place = api.Place(self.link, "client")
        self.plain = psycopg.connect(conninfo, autocommit=True)
        self.plain.execute("set lock_timeout = '200ms'; set statement_timeout = '10s'")
        self.functions = self.plain.execute(FUNCTIONS, (REPOSITORY,)).fetchall()

    def close(self) -> None:
        """Closes its connections."""
        self.link.close()
        self.plain.close()

    def state(self) -> Any:
        """Returns what a refusal must leave as it is."""
        return self.plain.execute(STATE.format(REPOSITORY).encode()).fetchone()

    def call_api(self, verdicts: Verdicts, seed: int) -> None:
        """Gives one rubbish call to the public API."""
        r = Rubbish(seed)
        call = r.chance.choice(api.CALLS)
        state = self.state if seed % 5 == 0 else lambda: None
        name = call.__name__
        verdicts.judge("PostgreSQL", name, seed, lambda: call(self.place, r), state=state)

    def call_sql(self, verdicts: Verdicts, seed: int) -> None:
        """Calls one SQL function with rubbish; in a transaction that is rolled back."""
        verdicts.inputs["SQL functions"] += 1
        r = Rubbish(seed)
        name, types = r.chance.choice(self.functions)
        values = ", ".join(literal(r, kind) for kind in types)
        text = f"select * from {REPOSITORY}.{name}({values})".replace("\0", "")
        before = self.state() if seed % 10 == 0 else None
        sqlstate = ""
        try:
            with self.plain.transaction(force_rollback=True):
                self.plain.execute(text.encode("utf-8", "replace"))
        except psycopg.Error as error:
            sqlstate = error.sqlstate or type(error).__name__
        if sqlstate and not sqlstate.startswith(ALLOWED):
            kind = f"SQL functions: {name}: {sqlstate}"
            verdicts.note(kind, f"{kind}: {text[:300]} [seed {seed}]")
        if before is not None and self.state() != before:
            verdicts.note(name, f"SQL functions: {name}: {text[:200]} changed what it should not")
        if self.plain.closed:
            verdicts.note(name, f"SQL functions: {name}: {text[:300]} ended its session")
            self.plain = psycopg.connect(self.conninfo, autocommit=True)

    def call_cli(self, verdicts: Verdicts, seed: int) -> None:
        """Gives one rubbish command line to `onceq`, in this process."""
        verdicts.inputs["command line"] += 1
        r = Rubbish(seed)
        words = [*r.chance.choice(COMMANDS)]
        for _ in range(r.chance.randint(0, 3)):
            words += [r.chance.choice(OPTIONS)] if r.likely(0.5) else []
            words.append(r.text().encode("utf-8", "replace").decode())
        url = self.conninfo if r.likely(0.9) else r.text().encode("utf-8", "replace").decode()
        line = ["--url", url, "--repository", REPOSITORY, *words]
        if url.startswith("embedded:"):
            return
        answer = CliRunner().invoke(make_app(), line)
        fine = answer.exception is None or isinstance(answer.exception, SystemExit)
        if not fine or answer.exit_code not in CODES:
            text = f"command line: {words[:2]}: {answer.exit_code} {answer.exception!r:.200}"
            verdicts.note(text[:60], f"{text} [seed {seed}]")


def literal(r: Rubbish, kind: str) -> str:
    """Returns a value of an SQL type, well formed, at or beyond its limits."""
    if r.likely(0.15):
        return f"null::{kind}"
    base = kind.removesuffix("[]")
    if base != kind:
        return (
            f"array[{', '.join(literal(r, base) for _ in range(r.chance.randint(0, 3)))}]::{kind}"
        )
    texts = {
        "boolean": lambda: r.chance.choice(("true", "false")),
        "bytea": lambda: "\\x" + r.data().hex(),
        "uuid": lambda: str(r.eid()),
        "jsonb": lambda: r.chance.choice(("{}", "1", '{"a": [1]}', "null")),
        "double precision": lambda: r.chance.choice(("0", "-1", "NaN", "1e308", "Infinity")),
        "timestamp with time zone": lambda: r.chance.choice(
            ("infinity", "-infinity", "2026-01-01", "294276-01-01", "4713-01-01 BC")
        ),
        "text": r.text,
    }
    if base in texts:
        chosen = texts[base]()
    elif base in {"smallint", "integer", "bigint"}:
        bits = {"smallint": 15, "integer": 31, "bigint": 63}[base]
        chosen = str(max(-(2**bits), min(r.number(), 2**bits - 1)))
    else:
        return f"null::{kind}"
    plain = chosen.encode("utf-8", "replace").decode().replace("\0", "").replace("'", "''")
    return f"'{plain}'::{kind}"


@contextlib.contextmanager
def opened(conninfo: str) -> Generator[Database]:
    """Opens a repository of the fuzz."""
    database = Database(conninfo)
    try:
        yield database
    finally:
        database.close()
