"""`onceq spark restore`: puts back into PostgreSQL what was archived and trimmed."""

from __future__ import annotations

from dataclasses import asdict
from datetime import date
from typing import Annotated

import typer

from onceq.cli.command import Invocation
from onceq.cli.exits import NOT_FOUND, OK
from onceq.cli.output import hint
from onceq.cli.pipelines import counted
from onceq.cli.serving import require_spark
from onceq.errors import InvalidValue


def spark_restore(
    invoked: Invocation,
    since: Annotated[str, typer.Option(help="The first day, in UTC: 2026-01-31.")],
    until: Annotated[str, typer.Option(help="The day after the last one.")],
) -> int:
    """Put back into PostgreSQL what was archived and trimmed in a range of days, as it was.

    Rows that are still there stay. A restore that dies has put back some files: run it again. The
    next run of the archive that trims removes again what is too old for it.
    """
    require_spark()
    from onceq.spark.pipelines import restore  # noqa: PLC0415 # an extra

    given = invoked.target.given
    first, end = _as_day("--since", since), _as_day("--until", until)
    done = restore(**given, since=first, until=end)
    if not done.files:
        hint("onceq: the archive has nothing of these days")
        return NOT_FOUND
    restored = counted(done.rows) or "nothing: all of it was there"
    invoked.output.either(asdict(done), {"restored": restored, "files": done.files})
    return OK


def _as_day(option: str, text: str) -> date:
    try:
        return date.fromisoformat(text)
    except ValueError:
        raise InvalidValue(f"{option} is a day like 2026-01-31, not {text!r}") from None
