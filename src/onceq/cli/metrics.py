"""`onceq metrics`: how the queues of a repository fare, for Prometheus.

What serves them is in `exposing`, which is imported when it is needed: it uses the net of streams.
"""

from __future__ import annotations

from typing import Annotated

import msgspec
import typer

from onceq.cli.command import Invocation
from onceq.cli.exits import OK
from onceq.cli.serving import Log
from onceq.cli.stores import Tls


def metrics(
    invoked: Invocation,
    tls: Tls,
    log: Log,
    *,
    listen: Annotated[
        str, typer.Option(metavar="HOST:PORT", help="Where to answer; port 0: any that is free.")
    ] = "127.0.0.1:9187",
    once: Annotated[
        bool, typer.Option("--once", help="Print one look, and end; --json: a line for each value.")
    ] = False,
) -> int:
    """Answer GET /metrics for Prometheus until SIGTERM or Ctrl-C, or print one look.

    It listens on this machine only, unless certificates are given. While the repository does not
    answer, it says `onceq_up 0`.
    """
    if not once:
        from onceq.cli import exposing  # noqa: PLC0415 - streams are imported when they are used

        return exposing.run(invoked, listen, tls.certificates, log)
    with invoked.open() as qm:
        seen = qm.metrics()
    if invoked.as_json:
        for one in seen.samples():
            invoked.output.line(msgspec.structs.asdict(one))
    else:
        print(seen.text(), end="", flush=True)
    return OK
