"""Fault points: named places where a test lets this process die, fail or lose its connection.

Between any two durable steps there is a point. The drivers report one before and one after each Op
that changes anything; the rest are called by name (`faultpoint`). `python -m proof --only
faultpoints` runs the product into each of them.

When off, the drivers are as they are written, not wrapped: an Op costs nothing more. A `faultpoint`
compares one global with None, and none of those is passed for each request. Only the
environment arms them, when the process starts, or `arm` in a test; never a database or a peer. When
armed, the process says so on stderr. Each process that reaches a point notes it in a directory, so
counts go on over deaths, and a fault strikes once.
"""

from __future__ import annotations

import functools
import inspect
import os
import signal
import socket
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TypeVar

from onceq.model import (
    admin_ops,
    archive_ops,
    desk_ops,
    ledger_ops,
    ops,
    periodic_ops,
    retention_ops,
    stream_ops,
)

VARIABLE: Final = "ONCEQ_FAULT_POINT"
"""Environment variable: `POINT OCCURRENCE WHAT DIRECTORY`, as for `arm`."""
EAR: Final = "ear"
"""The socket in the directory by which a test is told what this module does not do itself."""
NOWHERE: Final = "nowhere"
"""The point at which nothing strikes: what is reached is only noted."""
_HEARD_WITHIN_S: Final = 30.0

WATCHED: Final = {"_commit": "Commit"}
"""Steps of a driver that are not one Op alone: from method to the name of its points."""

_MODULES: Final = (
    *(ops, admin_ops, archive_ops, desk_ops, ledger_ops, periodic_ops, retention_ops, stream_ops),
)
OPS: Final = {
    one.__name__: one.changes
    for module in _MODULES
    for one in vars(module).values()
    if isinstance(one, type) and issubclass(one, ops.Op) and one is not ops.Op and one.changes
}
"""Each Op and what it changes: it has a point `NAME.before` and one `NAME.after`.

Those of the Spark server have none: their points are places between Spark's steps.
"""

NAMED: Final = {
    "archive.written": "files of a run are written and durable, and in no manifest",
    "archive.compacted": "the files of small runs are one by day, durable, and in no manifest",
    "bulk.read": "an executor is about to enqueue rows of a DataFrame",
    "bulk.enqueued": "they are enqueued, and Spark does not know",
    "into.moved": "effects and position are committed, and no store was told",
    "migrate.made": "the schema is made or brought up to date, and not committed",
    "migrate.committed": "the schema is committed, and nobody was told",
    "embedded.cluster_made": "a new cluster is whole, under a name that is not its own yet",
    "embedded.cluster_named": "a new cluster has its name, which is not durable yet",
    "embedded.launched": "PostgreSQL was launched, and is not ready yet",
    "embedded.stopping": "PostgreSQL is to be stopped, and was not told",
    "embedded.stopped": "PostgreSQL has stopped, and its socket's directory is there",
    "file.cut": "the file of replies is cut back to its checkpoint",
    "file.written": "replies are written to the file, and not durable",
    "file.durable": "replies are durable in the file, and not acknowledged",
    "file.named": "the file of replies has its name, which is not durable yet",
    "parquet.written": "the Parquet file is whole, under a name that is not its own yet",
    "parquet.named": "the Parquet file has its name, and the rows it was made of are there",
    "relay.planned": "numbers are planned, and nothing was sent under them",
    "relay.sent": "what was planned is sent, and not known to be stable",
    "spark.claim": "the planning process is about to claim a group",
    "spark.claimed": "it has claimed one, and Spark does not know",
    "spark.read": "an executor has read a part of a group",
    "spark.write": "an executor is about to stage rows",
    "spark.staged": "an executor's rows are staged, and Spark does not know",
    "spark.commit": "the committing process is about to connect",
    "spark.concluded": "the micro-batch is applied, and not committed",
    "spark.committed": "the micro-batch is committed, and Spark has not noted it",
}
"""Each point, and what has happened by then."""

POINTS: Final = {
    **{f"{name}.before": f"before {text}" for name, text in OPS.items()},
    **{f"{name}.after": f"after {text}" for name, text in OPS.items()},
    **NAMED,
}
"""All points. Reaching a name that is not here is a bug."""

T = TypeVar("T")


class PlannedFault(Exception):
    """Raised at a fault point that was armed to raise. Not an error of onceq: nobody handles it."""


@dataclass(frozen=True, slots=True)
class Armed:
    """What this process is to do at a point. what: kill, raise, or a word to send to EAR."""

    point: str
    occurrence: int
    what: str
    directory: Path

    def __call__(self, name: str) -> None:
        """Notes that a point was reached, and strikes if it is the armed one."""
        if self._reached(name) == self.occurrence and name == self.point:
            self._strike()

    def _reached(self, name: str) -> int:
        """Returns how often any process has reached the point: the length of its file."""
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC
        file = os.open(self.directory / name, flags, 0o600)
        try:
            os.write(file, b".")
            return os.lseek(file, 0, os.SEEK_CUR)
        finally:
            os.close(file)

    def _strike(self) -> None:
        if self.what == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        if self.what == "raise":
            raise PlannedFault(f"planned at {self.point}, time {self.occurrence}")
        with socket.socket(socket.AF_UNIX) as ear:
            ear.settimeout(_HEARD_WITHIN_S)
            ear.connect(str(self.directory / EAR))
            ear.sendall(f"{self.what} {os.getpid()}\n".encode())
            if not ear.recv(1):
                raise PlannedFault(f"nobody did what was asked for at {self.point}: {self.what}")


def _armed(text: str) -> Armed:
    point, occurrence, what, directory = text.split(maxsplit=3)
    if point not in POINTS and point != NOWHERE:
        raise ValueError(f"there is no fault point {point!r}")
    sys.stderr.write(
        f"onceq: FAULT POINTS ARE ARMED in process {os.getpid()}: {what} at {point}, time "
        f"{occurrence}. This is for tests of onceq: unset {VARIABLE} anywhere else.\n"
    )
    return Armed(point, int(occurrence), what, Path(directory))


hook: Callable[[str], None] | None = (
    _armed(os.environ[VARIABLE]) if VARIABLE in os.environ else None
)


def arm(text: str) -> None:
    """Arms this process: `POINT OCCURRENCE WHAT DIRECTORY`; for drivers made from now on.

    WHAT: kill, raise, or a word; a word is sent, with the pid, to the socket EAR in the directory,
    and its answer is waited for.
    Only for tests. ValueError: there is no such point.
    """
    global hook  # noqa: PLW0603 - one process, one plan: this is what the environment sets
    hook = _armed(text)


def faultpoint(name: str) -> None:
    """Does nothing. When armed, it notes that this process came here, and may strike."""
    if hook is not None:
        hook(name)


def pointed(driver: type[T]) -> type[T]:
    """Returns a driver class as it is; when armed, with the points of its Ops. Idempotent."""
    if hook is not None:
        wrap = _awaited if inspect.iscoroutinefunction(driver.__dict__["perform"]) else _called
        for method in ("perform", *WATCHED):
            found = driver.__dict__.get(method)
            if found is not None and not hasattr(found, "__wrapped__"):
                setattr(driver, method, wrap(found, WATCHED.get(method)))
    return driver


def pointed_answer(op: ops.Op[Any], answer: ops.Program[T]) -> ops.Program[T]:
    """Returns the Program that answers an Op; when armed, with the Op's points around it."""
    return answer if hook is None or not op.changes else _between(op, answer)


def _between(op: ops.Op[Any], answer: ops.Program[T]) -> ops.Program[T]:
    name = type(op).__name__
    faultpoint(f"{name}.before")
    answered = yield from answer
    faultpoint(f"{name}.after")
    return answered


def _name(op: tuple[Any, ...], step: str | None) -> str | None:
    """Returns the name around a call; None if it has no points, or another call reports them."""
    if step is not None:
        return step
    name = type(op[0]).__name__
    return name if op[0].changes and name not in WATCHED.values() else None


def _called(method: Callable[..., Any], step: str | None) -> Callable[..., Any]:
    @functools.wraps(method)
    def call(driver: object, *op: Any) -> Any:
        name = _name(op, step)
        if name is None:
            return method(driver, *op)
        faultpoint(f"{name}.before")
        answer = method(driver, *op)
        faultpoint(f"{name}.after")
        return answer

    return call


def _awaited(method: Callable[..., Any], step: str | None) -> Callable[..., Any]:
    @functools.wraps(method)
    async def call(driver: object, *op: Any) -> Any:
        name = _name(op, step)
        if name is None:
            return await method(driver, *op)
        faultpoint(f"{name}.before")
        answer = await method(driver, *op)
        faultpoint(f"{name}.after")
        return answer

    return call
