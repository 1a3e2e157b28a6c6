"""One process of `onceq serve`: `python -m onceq.server.child serve MODULE:ATTRIBUTE ...`.

Started by `server.processes` only. The URL comes through the environment, so that no password
stands in the list of processes; standard input is a pipe from the parent: lines of JSON, an abort
each, of which `on_error` is to be told. Its end means that the parent is gone: the child then stops
as if told to. The child reports to the pipe whose number it is given, by lines of JSON: that it
serves, each abort that `on_error` was told of, and the error that ends it.
"""

from __future__ import annotations

import ctypes
import logging
import os
import signal
import sys
import threading
import uuid
from functools import partial
from typing import Any, Final, NoReturn

import msgspec

from onceq import errors
from onceq.model import ops
from onceq.server.lives import UNMENDABLE, limit_s
from onceq.server.loading import load
from onceq.server.log_lines import LogFormat, LogLevel, write_log
from onceq.server.reporting import Handed
from onceq.server.server import Server

PR_SET_PDEATHSIG: Final = 1
SERVES: Final = "serve"
LOADS: Final = "load"
"""It only loads the server and declares its queues: nobody serves, and somebody may want to."""
FINISHED: Final = 0
ABANDONED: Final = 3
"""Exit code: something was still running at the deadline; it was revoked, uncharged."""
FAILED: Final = 4
"""Exit code: an error that was reported."""
PARENT_GONE_GRACE_S: Final = 10.0

FINAL: Final = (errors.UsageError, *UNMENDABLE)
"""Errors that no restart mends."""


def main(arguments: list[str]) -> int:
    """Serves until told to stop; returns the exit code."""
    what, spec, repository, process, report_fd, log_format, log_level = arguments
    fd = int(report_fd)
    os.set_inheritable(fd, False)  # noqa: FBT003 # no keyword; handlers' own children must not hold it
    write_log(LogFormat(log_format), LogLevel(log_level))
    _thaw_with_parent()
    loading = True
    try:
        server = loaded(spec)
        loading = False
        handed = Handed(partial(_report, fd, {"heard": True}))
        threading.Thread(target=_heed_parent, args=(server, handed), daemon=True).start()
        with server.signals():
            if what == LOADS:
                server.stop()
            _report(fd, {"stop_timeout_s": server.stop_timeout_s, "limits": limits_of(server)})
            finished = server.run(
                None, repository=repository, process=uuid.UUID(process), handed=handed
            )
    except errors.OnceqError as error:
        said = {"error": type(error).__name__, "text": str(error), "loading": loading}
        _report(fd, {**said, "final": isinstance(error, FINAL)})
        return FAILED
    return FINISHED if finished else ABANDONED


def loaded(spec: str) -> Server:
    """Returns the user's server. InvalidValue when it is not a server."""
    server = load(spec)
    if not isinstance(server, Server):
        raise errors.InvalidValue(
            f"{spec} is {type(server).__name__}, not an onceq.Server: "
            "name what Server([queue.handled_by(handler)]) returned"
        )
    return server


def limits_of(server: Server) -> dict[str, int]:
    """Returns how many seconds a transaction of each queue may last; the supervisor sees to it."""
    return {one.queue.name: limit_s(one) for one in server.handled}


def _heed_parent(server: Server, handed: Handed) -> None:
    """Takes the aborts that the parent hands over, and stops when the parent does."""
    said = b""
    while read := os.read(sys.stdin.fileno(), 4096):  # ends with the parent
        *lines, said = (said + read).split(b"\n")
        for line in lines:
            handed.found.put(msgspec.json.decode(line, type=ops.Aborted))
    server.stop()
    threading.Event().wait(server.stop_timeout_s + PARENT_GONE_GRACE_S)
    os._exit(ABANDONED)  # nobody is left to end us


def _thaw_with_parent() -> None:
    """Lets this process go on if its parent dies while keeping it frozen; on Linux."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, int(signal.SIGCONT))


def _report(fd: int, content: dict[str, Any]) -> None:
    os.write(fd, msgspec.json.encode(content) + b"\n")


def _end(code: int) -> NoReturn:
    """Ends the process at once: a normal exit would wait for an abandoned handler's thread."""
    logging.shutdown()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


if __name__ == "__main__":
    _end(main(sys.argv[1:]))
