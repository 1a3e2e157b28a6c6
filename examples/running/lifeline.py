"""Ends a child once the process that started it has gone, however that ended.

The runner holds the other end of each child's standard input; a kill -9 of the runner
closes it. Called once, at the start of a child's main.
"""

from __future__ import annotations

import os
import signal
import sys
import threading

GRACE_S = 20.0


def hold_lifeline() -> None:
    """Sends this process a SIGTERM at the end of its standard input, and later ends it hard."""
    threading.Thread(target=_watch, name="lifeline", daemon=True).start()


def _watch() -> None:
    # Not sys.stdin: the interpreter cannot end while a thread waits in its buffer.
    while os.read(0, 1):
        pass
    os.kill(os.getpid(), signal.SIGTERM)
    threading.Event().wait(GRACE_S)
    os._exit(1)


def end_in_order(_number: int, _frame: object) -> None:
    """A handler of SIGTERM: leaves every `with` block on the way out."""
    sys.exit(128 + signal.SIGTERM)
