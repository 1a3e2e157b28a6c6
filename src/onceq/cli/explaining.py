"""`onceq explain`: what happened to a request, and why it does not run."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from typing import Annotated, Any, Final

import typer

from onceq.cli.command import Invocation
from onceq.cli.exits import NOT_FOUND, OK, VIOLATION
from onceq.cli.old_requests import UNASKED, as_eid
from onceq.cli.output import hint, plain
from onceq.errors import InvalidValue
from onceq.model.explaining import Explanation, Step

TIME_WIDTH: Final = len("2026-01-31 12:00:00.000+00:00")
STEP_WIDTH: Final = len("collected")


def explain(
    invoked: Invocation,
    client: Annotated[
        str, typer.Argument(metavar="CLIENT|EID", help="Whose request it is; or its eid alone.")
    ],
    rid: Annotated[str | None, typer.Argument(metavar="[RID]", help="The request's id.")] = None,
) -> int:
    """Explain a request: what happened to it, and why it does not run, and what to do about it.

    The first reason is the answer; the others hold too. What was trimmed from PostgreSQL is looked
    up in the archive. Exit 3: no such request is here; the reasons say what may be the matter.
    """
    eid = as_eid(client) if rid is None else None
    if rid is None and eid is None:
        raise InvalidValue(f"{client!r} is no eid: give the client and the RID")
    asked: dict[str, Any] = {"eid": eid} if rid is None else {"registrant": client, "rid": rid}
    missed: str | None = None
    with invoked.open() as qm:
        try:
            found = qm.explain(**asked, archive=True)
        except UNASKED as error:
            found, missed = qm.explain(**asked), str(error)
    invoked.output.either(as_row(found), "\n".join(_lines(found)))
    if missed is not None:
        hint(f"onceq: {missed}; this is what PostgreSQL holds")
        return VIOLATION
    return NOT_FOUND if found.state is None else OK


def as_row(found: Explanation) -> dict[str, Any]:
    """Returns an explanation as JSON has it. answer: the name of the first reason."""
    return {**asdict(found), "answer": None if found.answer is None else found.answer.name}


def _lines(found: Explanation) -> Iterator[str]:
    whose = "" if found.registrant is None else f" of {found.registrant}"
    thread = f", thread {found.thread}" if found.thread else ""
    where = "nowhere" if found.state is None else f"{found.state.value}, queue {found.queue}"
    eid = "" if found.eid is None else f", eid {found.eid}"
    yield f"request {found.rid}{whose}{thread}: {where}{eid}"
    yield from (_line(step) for step in found.life)
    if found.reasons:
        yield "why it does not run:"
    for number, reason in enumerate(found.reasons, 1):
        yield f"{number}. {reason.name}: {reason.words}"
        yield f"   -> {reason.advice}"


def _line(step: Step) -> str:
    return f"  {plain(step.at):<{TIME_WIDTH}}  {step.name:<{STEP_WIDTH}}  {step.words}"
