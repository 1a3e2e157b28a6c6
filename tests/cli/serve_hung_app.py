"""What is served in the tests of handlers that hang, and of starts that fail; by its children."""

from __future__ import annotations

import ctypes
import os
import signal
import time
from pathlib import Path

import onceq

QUICK = onceq.Queue("quick", str, str, abort_limit=2, backoff_ms=1, execution_limit_s=1)
LONG = onceq.Queue("long", str, str, abort_limit=2, backoff_ms=1, execution_limit_s=300)
FOR_EVER_S = 600


def hang(request: str, context: onceq.Context) -> str:
    """Hangs in Python, in a statement, or in C, with all of the interpreter."""
    if request == "python":
        time.sleep(FOR_EVER_S)
    if request == "sql":
        context.connection.execute("select pg_sleep(%s)", [FOR_EVER_S])
    if request == "c":
        ctypes.PyDLL(None).sleep(FOR_EVER_S)
    if request == "die":
        os.kill(os.getpid(), signal.SIGKILL)
    return f"{request} {os.getpid()}"


def wait(request: str, _: onceq.Context) -> str:
    """Runs for as long as the test wants."""
    begun, goes_on = Path(f"{request}.begun"), Path(f"{request}.goes_on")
    begun.touch()
    while not goes_on.exists():
        time.sleep(0.01)
    return "well"


def tell(abort: onceq.Abort) -> None:
    """Notes what it is told, for the test."""
    words = (abort.rid, abort.attempt, abort.code, abort.charge.value, abort.failed)
    with Path(os.environ["ONCEQ_TEST_TOLD"]).open("a", encoding="utf-8") as told:
        told.write(" ".join(map(str, words)) + f" {type(abort.exception).__name__}\n")


server = onceq.Server([QUICK.handled_by(hang), LONG.handled_by(wait)], concurrency=2, on_error=tell)
batches = onceq.Server([QUICK.handled_by(hang, batch=3)], concurrency=1)

_DIES = os.environ.get("ONCEQ_TEST_DIES")
if _DIES and not Path(_DIES).exists():
    Path(_DIES).touch()
    os.kill(os.getpid(), signal.SIGKILL)  # while it is imported, once
