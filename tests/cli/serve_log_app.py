"""What is served where the log of `onceq serve` is read: handlers that fail in every way."""

from __future__ import annotations

import os
import signal
from typing import Any

import onceq

KEPT = onceq.Queue("kept", dict, dict, abort_limit=2, backoff_ms=1, keep_body=True)
NUMBERS = onceq.Queue("numbers", int, int, abort_limit=1, backoff_ms=1)
SMALL_BYTES = 200


def fail(request: dict[str, Any], context: onceq.Context) -> Any:
    """Does what the request says; no exception says what is in it."""
    match request["kind"]:
        case "raise":
            raise ValueError("it is bad")
        case "reject":
            raise onceq.Reject("it is refused")
        case "retry" if context.attempt == 1:
            raise RuntimeError("once")
        case "unencodable":
            return {"reply": object(), "secret": request["secret"]}
        case "sql":
            context.connection.execute("select 1 / 0")
        case "commit":
            context.connection.execute("commit")
        case "die":
            os.kill(os.getpid(), signal.SIGKILL)
        case _:
            pass
    return {"reply": request["secret"]}


def count(request: int, _: onceq.Context) -> int:
    """Answers a number."""
    return request


def told(abort: onceq.Abort) -> None:
    """Fails for its part."""
    raise LookupError(f"nobody listens to {abort.queue}")


server = onceq.Server([KEPT.handled_by(fail), NUMBERS.handled_by(count)], on_error=told)
