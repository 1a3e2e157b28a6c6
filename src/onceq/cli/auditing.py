"""`onceq spark audit`: checks whole histories against the guarantees, once or again and again."""

from __future__ import annotations

import datetime as dt
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from onceq.cli.command import Invocation
from onceq.cli.exits import VIOLATION
from onceq.cli.output import hint
from onceq.cli.pipelines import Every, Master, run_pipeline
from onceq.errors import InvalidValue
from onceq.history.events import FINAL_NAME

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from onceq.spark.pipelines import Audited

SAID_MAX = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """What is judged, and where the verdict goes."""

    events: Annotated[
        Path | None,
        typer.Option(help="A folder of recorded events; a final state in it is judged too."),
    ] = None
    effects: Annotated[
        str | None, typer.Option(help="A table that handlers add rows to, with the eid.")
    ] = None
    effects_each: Annotated[
        int | None, typer.Option(min=0, help="How many rows each finished request must have in it.")
    ] = None
    abort_limit: Annotated[
        int | None,
        typer.Option(min=1, help="The abort limit of all queues, if it has never changed."),
    ] = None
    retry_limit: Annotated[
        int | None,
        typer.Option(min=0, help="The largest retry limit of a queue, if it was lowered since."),
    ] = None
    report: Annotated[Path | None, typer.Option(help="Write a page for people: HTML.")] = None
    save: Annotated[
        Path | None, typer.Option(help="A new folder for all violations, as JSON lines.")
    ] = None

    def __post_init__(self) -> None:
        if self.effects_each is not None and self.effects is None:
            raise InvalidValue("--effects-each says how many rows --effects has: give both")


def spark_audit(
    invoked: Invocation, asked: Asked, *, every: Every = None, master: Master = None
) -> int:
    """Judge everything in history, archived or not, and everything in the queues, by G1 to G8.

    Exit code 1 if a guarantee was broken; each violation names its request. The repository
    is seen as of one moment, whoever else is working.
    """
    if asked.save is not None and every is not None:
        raise InvalidValue("--save is a folder for one run: give it without --every")
    broken: list[int] = []

    def once(session: SparkSession) -> None:
        found = _run(invoked, asked, session)
        broken.append(found.violations)
        if asked.report is not None:
            _write(invoked, found, asked.report)
        _tell(invoked, found)

    code = run_pipeline(once, "judging", every=every, master=master)
    return VIOLATION if any(broken) else code


def _run(invoked: Invocation, asked: Asked, session: SparkSession) -> Audited:
    from onceq.spark.pipelines import Known, audit, audit_files  # noqa: PLC0415 # an extra

    if asked.events is not None and (asked.events / FINAL_NAME).is_file():
        return audit_files(asked.events, save=asked.save, spark=session)
    known = Known(
        events=asked.events,
        effects=asked.effects,
        effects_each=asked.effects_each,
        abort_limit=asked.abort_limit,
        retry_limit=asked.retry_limit,
    )
    return audit(**invoked.target.given, known=known, save=asked.save, spark=session)


def _write(invoked: Invocation, found: Audited, report: Path) -> None:
    from onceq.spark.pipelines import audit_page  # noqa: PLC0415 # an extra

    name = f"repository {invoked.target.repository}"
    report.write_text(audit_page(found, name, dt.datetime.now(dt.UTC)), encoding="utf-8")
    hint(f"onceq: the report is in {report}")


def _tell(invoked: Invocation, found: Audited) -> None:
    if invoked.as_json:
        invoked.output.line(asdict(found))
        return
    from onceq.spark.audit.audited import GIVEN  # noqa: PLC0415 # an extra

    for one in found.found[:SAID_MAX]:
        print(one)
    if found.violations > SAID_MAX:
        hint(f"onceq: and {found.violations - SAID_MAX} more: --save keeps all of them")
    invoked.output.item(
        {
            "places": found.places,
            "of them archived": found.archived,
            "events": found.events,
            "effects": found.effects,
            "seconds": round(found.took_s),
            "violations": found.violations,
            "not asked, for want of": ", ".join(
                text for name, text in GIVEN.items() if name not in found.given
            )
            or "nothing",
        }
    )
