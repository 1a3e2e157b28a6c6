"""Rubbish against a real PostgreSQL: the public API, the SQL functions themselves, the commands.

A refusal leaves the repository as it was, and the session alive.
"""

from __future__ import annotations

import contextlib
import functools
from typing import TYPE_CHECKING, Any

import psycopg
from typer.testing import CliRunner

from onceq.cli.main import make_app
from onceq.engine.connect.connection import Link
from onceq.engine.embedded.locate import Located
from onceq.engine.schema.migrate import apply_with
from onceq.model.queue import Queue
from proof.fuzz import api, legal, values
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
TABLES = """
    select c.relname from pg_class c
    where c.relnamespace = %s::regnamespace and c.relkind = 'r' order by 1
"""
DIGEST = """(select count(*) || ':' || coalesce(sum(hashtext(ctid::text || xmin)::bigint), 0)
    from {0}.{1})"""
"""For a table: where each row version is, and which transaction wrote it. An insert,
update or delete of a row changes one of the two."""
ALLOWED = ("OQ", "22", "23", "54", "55P03", "0A", "40", "42P01", "42883", "42704", "42804", "P0002")
"""SQLSTATEs, by prefix, of an SQL function called with rubbish: our own; those of a data type, a
constraint, a limit, a time-out; 42: for a name in the rubbish that the database does not have."""
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
NO_PLACES = (
    "embedded:",
    "embedded:/dev/null/data",
    f"embedded:/tmp/{'a' * 300}",
    "embedded:/proc/1",
)
"""Places where no embedded PostgreSQL can be; another test has the other places."""
SIZED = Queue("sized", bytes, bytes)
"""A queue of the documented limits that no rubbish names."""
BODIES = (0, 1, legal.BODY_BYTES, legal.BODY_BYTES + 1)


class Database:
    """A repository of the fuzz in a PostgreSQL."""

    def __init__(self, conninfo: str) -> None:
        self.conninfo = conninfo
        apply_with(conninfo, REPOSITORY)
        self.link = Link(Located(conninfo, None), REPOSITORY)
        self.link.reconnect()
        self.link.connection.execute("set lock_timeout = '200ms'; set statement_timeout = '10s'")
        self.place = api.Place(self.link, "client")
        self.place.qm.declare(SIZED)
        self.plain = psycopg.connect(conninfo, autocommit=True)
        self.plain.execute("set lock_timeout = '200ms'; set statement_timeout = '10s'")
        tables = [row[0] for row in self.plain.execute(TABLES, (REPOSITORY,))]
        self._digests = "select " + ", ".join(DIGEST.format(REPOSITORY, one) for one in tables)
        self.functions = self.plain.execute(FUNCTIONS, (REPOSITORY,)).fetchall()

    def close(self) -> None:
        """Closes its connections."""
        self.link.close()
        self.plain.close()

    def state(self) -> Any:
        """Returns what a refusal must leave unchanged."""
        return self.plain.execute(self._digests.encode()).fetchone()

    def call_api(self, verdicts: Verdicts, seed: int) -> None:
        """Gives one rubbish call to the public API."""
        r = Rubbish(seed)
        call = r.chance.choice(api.CALLS)
        again = functools.partial(call, self.place, r)
        verdicts.judge("PostgreSQL", call.__name__, r, again, state=self.state)

    def call_sql(self, verdicts: Verdicts, seed: int) -> None:
        """Calls one SQL function with rubbish; in a transaction that is rolled back."""
        r = Rubbish(seed)
        name, text = self._enqueue(r) if r.likely(0.1) else self._function(r)
        text = text.replace("\0", "")
        before = self.state()
        sqlstate, changed = "", False
        try:
            with self.plain.transaction(force_rollback=True):
                sqlstate = self._refusal(text)
                changed = bool(sqlstate) and self.state() != before
        except psycopg.Error as error:
            sqlstate = error.sqlstate or type(error).__name__
        self._judge_sql(verdicts, r, f"SQL functions: {name}", (sqlstate, text[:300]))
        if self.plain.closed:
            verdicts.note(name, f"SQL functions: {name}: {text[:300]} ended its session")
            self.plain = psycopg.connect(self.conninfo, autocommit=True)
        if changed or self.state() != before:
            verdicts.note(name, f"SQL functions: {name}: {text[:200]} changed what it should not")

    def _refusal(self, text: str) -> str:
        """Executes in a savepoint; returns the SQLSTATE with which it is refused, or nothing."""
        try:
            with self.plain.transaction():
                self.plain.execute(text.encode("utf-8", "replace"))
        except psycopg.Error as error:
            if self.plain.closed:
                raise
            return error.sqlstate or type(error).__name__
        return ""

    def _judge_sql(self, verdicts: Verdicts, r: Rubbish, name: str, came: tuple[str, str]) -> None:
        sqlstate, text = came
        verdicts.count("SQL functions", r)
        if not sqlstate:
            verdicts.accepted["SQL functions"] += 1
        else:
            verdicts.refused[f"SQLSTATE {sqlstate}"] += 1
        if sqlstate and not sqlstate.startswith(ALLOWED):
            verdicts.note(f"{name}: {sqlstate}", f"{name}: {sqlstate}: {text} [seed {r.seed}]")
        if r.legal is not None and r.legal == bool(sqlstate):
            became = f"is {'legal' if r.legal else 'not legal'}, and came to {sqlstate or 'pass'}"
            verdicts.note(f"{name}: legal", f"{name}: {text[:150]} {became} [seed {r.seed}]")

    def _function(self, r: Rubbish) -> tuple[str, str]:
        """Returns a function's name, and a call of it with any values."""
        name, types = r.chance.choice(self.functions)
        given = ", ".join(literal(r, kind) for kind in types)
        return name, f"select * from {REPOSITORY}.{name}({given})"

    def _enqueue(self, r: Rubbish) -> tuple[str, str]:
        """Returns a call whose legal values are known: a body, a priority."""
        size = r.chance.choice(BODIES) if r.likely(0.1) else 2
        priority = r.chance.choice((-32_768, -1, 0, 4, 9, 10, 32_767, None))
        r.legal = size <= legal.BODY_BYTES and legal.whole(priority, 0, 9)
        body = f"convert_to(repeat('x', {size}), 'UTF8')"
        at = "null" if priority is None else f"'{priority}'"
        rest = "null, null, null, null, null, true"
        given = f"'{SIZED.name}', {body}, null, {at}::smallint, {rest}"
        return "enqueue", f"select * from {REPOSITORY}.enqueue({given})"

    def call_cli(self, verdicts: Verdicts, seed: int) -> None:
        """Gives one rubbish command line to `onceq`, in this process."""
        r = Rubbish(seed)
        words = [*r.chance.choice(COMMANDS)]
        for _ in range(r.chance.randint(0, 3)):
            words += [r.chance.choice(OPTIONS)] if r.likely(0.5) else []
            words.append(r.text().encode("utf-8", "replace").decode())
        url = self.conninfo if r.likely(0.9) else r.chance.choice((*NO_PLACES, *values.BAD_URLS))
        before = self.state()
        answer = CliRunner().invoke(make_app(), ["--url", url, "--repository", REPOSITORY, *words])
        verdicts.count("command line", r)
        refused = answer.exit_code != 0
        (verdicts.refused if refused else verdicts.accepted)[
            f"exit code {answer.exit_code}" if refused else "command line"
        ] += 1
        fine = answer.exception is None or isinstance(answer.exception, SystemExit)
        if not fine or answer.exit_code not in CODES:
            text = f"command line: {words[:2]}: {answer.exit_code} {answer.exception!r:.200}"
            verdicts.note(text[:60], f"{text} [seed {seed}]")
        if refused and self.state() != before:
            text = f"command line: {words[0]}: it failed ({answer.exit_code}) and changed something"
            verdicts.note(text, f"{text}: {words} {answer.output[-200:]!r} [seed {seed}]")


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
