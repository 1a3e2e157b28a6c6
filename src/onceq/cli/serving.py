"""`onceq serve` and `onceq spark serve`: run the user's servers."""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Final

import typer

from onceq.cli.command import Invocation
from onceq.cli.exits import INTERRUPTED, OK, VIOLATION
from onceq.cli.output import Output, hint
from onceq.errors import InvalidValue, MissingExtra
from onceq.server import signals
from onceq.server.loading import load
from onceq.server.log_lines import LogFormat, LogLevel, write_log
from onceq.server.processes import ChildEvent, Processes
from onceq.server.scaling import Scale, Window
from onceq.server.seats import Spec

Named = Annotated[
    str, typer.Argument(metavar="MODULE:ATTRIBUTE", help="The server, for example app:server.")
]
LOOK_EVERY_S: Final = 0.2


@dataclass(frozen=True, slots=True, kw_only=True)
class Log:
    """How a server started from the command line logs, on standard error."""

    log_format: Annotated[
        LogFormat, typer.Option(help="text, for people; json, one object on each line.")
    ] = LogFormat.TEXT
    log_level: Annotated[LogLevel, typer.Option(help="The lowest level to log.")] = LogLevel.INFO

    def begin(self) -> None:
        """Makes this process log like this."""
        write_log(self.log_format, self.log_level)

    def hint(self, text: str) -> None:
        """Tells a person something, unless the log is for programs."""
        if self.log_format is LogFormat.TEXT:
            hint(text)


@dataclass(frozen=True, slots=True, kw_only=True)
class Scaled:
    """How many processes a server has, and when."""

    processes: Annotated[
        str, typer.Option(metavar="N|LEAST..MOST", help="How many processes to run, as 2 or 0..8.")
    ] = "1"
    start_at: Annotated[
        int, typer.Option(help="With 0..MOST: start the first when so many requests wait.")
    ] = 1
    window: Annotated[
        str | None, typer.Option(metavar="HH:MM-HH:MM", help="When to run; default: always.")
    ] = None
    zone: Annotated[
        str | None,
        typer.Option(help="Whose time the window is, as Europe/Berlin; default: this machine's."),
    ] = None

    def scale(self) -> Scale:
        """Returns what is meant. InvalidValue."""
        if self.zone is not None and self.window is None:
            raise InvalidValue(f"zone {self.zone} is that of a window, and none is given: --window")
        window = None if self.window is None else Window.parse(self.window, self.zone)
        return Scale.parse(self.processes, start_at=self.start_at, window=window)


def serve(
    invoked: Invocation,
    server: Named,
    log: Log,
    scaled: Scaled,
) -> int:
    """Serve queues with the handlers of MODULE:ATTRIBUTE until SIGTERM or Ctrl-C.

    A process that dies is started again. With LEAST..MOST what has waited for a second starts more,
    and half a minute in which nothing waits ends one. Outside a window what runs may finish, as at
    a stop. Exit 1: something was still running at the deadline of the stop; it was revoked and will
    run again.
    """
    scale = scaled.scale()
    target = invoked.target
    output = invoked.output

    said = False

    def told(event: ChildEvent) -> None:
        nonlocal said
        if (
            event.kind in {"ready", "loaded"} and not said
        ):  # only now is it known that it can be loaded
            said = True
            log.hint(
                f"onceq: serving {server} with {scale} process(es); Ctrl-C stops, twice at once"
            )
        _tell(output, event)

    log.begin()
    spec = Spec(server, log.log_format, log.log_level)
    service = Processes(spec, scale, told=told)
    ended = service.run(**target.given)
    if invoked.as_json:
        output.line({"event": "stopped", **asdict(ended)})
    log.hint(f"onceq: stopped; {ended.restarts} restart(s), {ended.abandoned} process(es) revoked")
    return VIOLATION if ended.abandoned else OK


def _tell(output: Output, event: ChildEvent) -> None:
    if output.as_json:
        fields = {name: value for name, value in asdict(event).items() if value is not None}
        output.line({"event": fields.pop("kind"), **fields})


def spark_serve(
    invoked: Invocation,
    server: Named,
    log: Log,
    *,
    once: Annotated[
        bool, typer.Option("--once", help="End when everything waiting now is answered.")
    ] = False,
    checkpoint: Annotated[
        Path | None, typer.Option(help="A directory for Spark's notes; default: a temporary one.")
    ] = None,
    master: Annotated[str | None, typer.Option(help="Spark's master; default: local[2].")] = None,
) -> int:
    """Serve a queue with Spark, micro-batch by micro-batch, until SIGTERM or Ctrl-C."""
    require_spark()
    from onceq.spark import Server, build_session  # noqa: PLC0415 # an extra

    target = invoked.target
    log.begin()
    found = load(server)
    if not isinstance(found, Server):
        raise InvalidValue(
            f"{server} is {type(found).__name__}, not an onceq.spark.Server: "
            "`onceq serve` is for native servers"
        )

    def run() -> None:
        # If None, the server builds its own once it has found the repository.
        session = build_session(f"onceq {found.name}", master=master) if master else None
        found.run(**target.given, spark=session, checkpoint=checkpoint, once=once)

    log.hint(f"onceq: serving {server} with Spark; Ctrl-C stops, twice at once")
    run_until_signalled(run, found.stop)
    if invoked.as_json:
        invoked.output.line({"event": "stopped"})
    log.hint("onceq: stopped")
    return OK


def run_until_signalled(run: Callable[[], None], stop: Callable[[], None]) -> None:
    """Runs to the end. The first SIGTERM or SIGINT asks for a stop; the second ends the process.

    On a thread: in a main thread Spark takes SIGINT for itself; in another it leaves signals to us.
    """
    asked = False

    def heed() -> None:
        nonlocal asked
        if asked:
            os._exit(INTERRUPTED)
        asked = True
        stop()

    with ThreadPoolExecutor(1) as pool, signals.heeded(heed):
        running = pool.submit(run)
        while not wait((running,), timeout=LOOK_EVERY_S).done:
            pass
    running.result()


def require_spark() -> None:
    """Raises MissingExtra when PySpark is not installed."""
    if importlib.util.find_spec("pyspark") is None:
        raise MissingExtra("PySpark is not installed: pip install 'onceq[spark]'")
