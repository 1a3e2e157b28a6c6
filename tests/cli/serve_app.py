"""What the tests of `onceq serve` serve: an echo, a poison, a sleeper. Imported by its children."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import onceq

ORDERS = onceq.Queue("orders", str, str, abort_limit=2, backoff_ms=1)
NOT_A_SERVER = 1


def handle(request: str, context: onceq.Context) -> str:
    """Does what the request says; effects go to the table, which counts executions."""
    kind, _, argument = request.partition(" ")
    table = os.environ["ONCEQ_REPOSITORY"]
    context.connection.execute(f"insert into {table}.effects values (%s)".encode(), [context.rid])
    if kind == "poison":
        os.kill(os.getpid(), signal.SIGKILL)
    if kind == "sleep":
        Path(argument).write_text(str(os.getpid()))
        time.sleep(600)
    if kind == "nap":
        Path(argument).write_text(str(os.getpid()))
        end = time.monotonic() + 600
        while not Path(f"{argument}.end").exists() and time.monotonic() < end:
            time.sleep(0.02)
    return f"{request} {os.getpid()}"


server = onceq.Server([ORDERS.handled_by(handle)], stop_timeout_s=0.5)
several = onceq.Server([ORDERS.handled_by(handle)], concurrency=3)
patient = onceq.Server([ORDERS.handled_by(handle)], stop_timeout_s=60)
