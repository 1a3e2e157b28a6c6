"""`onceq serve` and `onceq spark serve`: run the user's servers."""

from __future__ import annotations

import importlib.util
import logging
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Final

import typer

from onceq.cli.command import Place, command
from onceq.cli.exits import OK, VIOLATION
from onceq.cli.output import Output, hint
from onceq.errors import InvalidValue, MissingExtra
from onceq.server.loading import load
from onceq.server.processes import PROCESSES_MAX, Processes

if TYPE_CHECKING:
    from onceq.server.processes import Event

spark_app: Final = typer.Typer(no_args_is_help=True, help="Spark as the server.")

Spec = Annotated[
    str, typer.Argument(metavar="MODULE:ATTRIBUTE", help="The server, as in app:server.")
]
TEXTS: Final = {
    "ready": "process {pid} serves",
    "died": "process {pid} ended with {code}; starting another in {delay_s:.1f} s",
    "killed": "process {pid} did not stop in time: revoked, uncharged, and killed",
}


def serve(
    place: Place,
    server: Spec,
    *,
    processes: Annotated[
        int, typer.Option(min=1, max=PROCESSES_MAX, help="How many processes serve.")
    ] = 1,
) -> int:
    """Serve queues with the handlers of MODULE:ATTRIBUTE until SIGTERM or Ctrl-C.

    A process that dies is started again. Exit 1: something still ran at the deadline of the
    stop; it was revoked and will run again.
    """
    target = place.target
    output = place.output

    def told(event: Event) -> None:
        _tell(output, event)

    hint(f"onceq: serving {server} with {processes} process(es); Ctrl-C stops, twice at once")
    service = Processes(server, processes, told=told)
    ended = service.run(target.url or None, repository=target.repository)
    if place.as_json:
        output.line({"event": "stopped", **asdict(ended)})
    hint(f"onceq: stopped; {ended.restarts} restart(s), {ended.abandoned} process(es) revoked")
    return VIOLATION if ended.abandoned else OK


def _tell(output: Output, event: Event) -> None:
    if output.as_json:
        fields = {name: value for name, value in asdict(event).items() if value is not None}
        output.line({"event": fields.pop("kind"), **fields})
    elif event.kind in TEXTS:
        hint("onceq: " + TEXTS[event.kind].format(**asdict(event)))


@command(spark_app, "serve")
def spark_serve(place: Place, server: Spec) -> int:
    """Serve a queue with Spark, micro-batch by micro-batch, until SIGTERM or Ctrl-C."""
    if importlib.util.find_spec("pyspark") is None:
        raise MissingExtra("PySpark is not installed: pip install 'onceq[spark]'")
    target = place.target
    logging.basicConfig(level=logging.INFO)
    found = load(server)
    if not callable(getattr(found, "run", None)) or not type(found).__module__.startswith(
        "onceq.spark"
    ):
        raise InvalidValue(
            f"{server} is {type(found).__name__}, not an onceq.spark.Server: "
            "`onceq serve` is for native servers"
        )
    found.run(target.url or None, repository=target.repository)
    return OK
