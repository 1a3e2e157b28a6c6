"""What code of a level asks of a repository: its statements, with what they take and give.

`python -m tests.upgrade.statements URL` prints those of this code. A release that brings a level
keeps them as `level-N.json`, for as long as a later level serves it: the test holds that a
repository of the newest level still understands each, and answers with the same columns.
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Final, TypeAlias

import psycopg

from onceq.engine.bind.statement import Binding
from onceq.engine.perform import hung
from onceq.engine.perform.spark_driver import ALL_BINDINGS
from onceq.engine.schema.migrate import apply_with
from onceq.engine.sessions.session import who_text
from onceq.spark.audit import places

HERE: Final = Path(__file__).parent
REPOSITORY: Final = "t_statements"
BESIDE: Final = {
    "a hung handler": hung._FIND,
    "volatile queues": places._VOLATILE,
    "the retry limit": places._RETRIES,
    "who": who_text("{schema}").decode().partition("; ")[2],
}
"""What is asked without a binding, and is no question of one who looks into the schema."""

Asked: TypeAlias = dict[str, str]
Understood: TypeAlias = dict[str, list[list[str]]]


def asked() -> Asked:
    """Returns the statements of this code by name, with {schema} and $1, $2, ..."""
    found = dict(BESIDE)
    for kind, row in ALL_BINDINGS.items():
        found[kind.__name__] = _text(row)
        if row.plain is not None:
            found[f"{kind.__name__}, plain"] = _text(row.plain)
    return {name: _numbered(text) for name, text in found.items()}


def _text(row: Binding) -> str:
    return row.text("{schema}")


def _numbered(text: str) -> str:
    """Returns it with numbers for marks: one for each, or for each name."""
    marks: dict[str, int] = {}

    def number(mark: re.Match[str]) -> str:
        return f"${marks.setdefault(mark[1] or str(len(marks)), len(marks) + 1)}"

    return re.sub(r"%(?:\((\w+)\))?[sb]", number, text).replace("%%", "%")


def understood(conninfo: str, repository: str, statements: Asked) -> Understood:
    """Returns what each takes and gives, or the error: of parameters the types, and of columns."""
    with psycopg.connect(conninfo, autocommit=True) as connection:
        return {name: _described(connection, repository, text) for name, text in statements.items()}


def _described(
    connection: psycopg.Connection[tuple[object, ...]], repository: str, text: str
) -> list[list[str]]:
    wire = connection.pgconn
    made = wire.prepare(b"asked", text.replace("{schema}", repository).encode())
    if made.error_message:
        return [["error", made.error_message.decode().splitlines()[0]]]
    found = wire.describe_prepared(b"asked")
    takes = [found.param_type(n) for n in range(found.nparams)]
    gives = [found.ftype(n) for n in range(found.nfields)]
    names = [(found.fname(n) or b"").decode() for n in range(found.nfields)]
    wire.exec_(b"deallocate asked")
    query = "select array(select format_type(unnest, null) from unnest(%s::oid[]))"
    row = connection.execute(query, ([*takes, *gives],)).fetchone()
    assert row is not None
    types = [str(one).replace(repository, "onceq") for one in list(row[0])]  # type: ignore[call-overload] # an array
    return [types[: len(takes)], names, types[len(takes) :]]


def main(url: str) -> None:
    """Prints the statements of this code and what they take and give, as JSON."""
    apply_with(url, REPOSITORY)
    statements = asked()
    meant = understood(url, REPOSITORY, statements)
    kept = {name: {"text": text, "meant": meant[name]} for name, text in statements.items()}
    sys.stdout.write(f"{json.dumps(kept, indent=1, sort_keys=True)}\n")


if __name__ == "__main__":
    main(sys.argv[1])
