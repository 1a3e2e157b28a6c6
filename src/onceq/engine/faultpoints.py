"""Fault points: named places where a test lets this process die, fail or lose its connection.

Between any two durable steps there is a point. The drivers report one before and one after each Op
that changes anything; the rest are called by name (`faultpoint`). `python -m proof --only
faultpoints` runs the product into each of them.

When off, the drivers are as they are written, not wrapped: an Op costs nothing more. A `faultpoint`
compares one global with None, and none of those is on the path of a request. Only the
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
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

    from onceq.model import ops

VARIABLE: Final = "ONCEQ_FAULT_POINT"
"""Environment variable: `POINT OCCURRENCE WHAT DIRECTORY`, as for `arm`."""
EAR: Final = "ear"
"""The socket in the directory by which a test is told what this module does not do itself."""
NOWHERE: Final = "nowhere"
"""The point at which nothing strikes: what is reached is only noted."""
_HEARD_WITHIN_S: Final = 30.0

OPS: Final = {
    "CreateQueue": "a queue is made",
    "AlterQueue": "the settings of a queue are changed",
    "DestroyQueue": "a queue is destroyed",
    "ForgetClient": "what a client has left is freed",
    "Enqueue": "an element is enqueued, in our transaction or in the caller's",
    "EnqueueMany": "many elements are enqueued as one",
    "Dequeue": "an element is taken for good, in a transaction of its own",
    "Take": "an element is taken in the caller's transaction",
    "AbortTaken": "a taking that the caller rolled back is counted",
    "ReplyTaken": "the reply of a taken element is written in the caller's transaction",
    "Kill": "a request is killed, and its cancelled reply written",
    "Redrive": "a failed request is sent anew",
    "Settle": "what is in doubt is made certain by a synchronous commit",
    "Register": "a registrant is made, or a new epoch of it begun",
    "Deregister": "a registrant is removed",
    "EnqueueTagged": "an element and the tag of a registrant become one",
    "Connect": "a client's new life begins, and fences the former",
    "Disconnect": "a client's session ends, and a tombstone stays",
    "Send": "a request goes in, and the replies that it acknowledges go",
    "SendMany": "many requests go in as one",
    "Post": "a request is given to the connection, and its answer not waited for",
    "Posted": "the answer to it is read: whether it is stable",
    "Receive": "a reply is read, and a checkpoint kept",
    "Acknowledge": "replies are freed, and a checkpoint kept",
    "AlertLate": "alerts of late requests are enqueued",
    "Act": "a client reads its device, or processes a reply",
    "BeginReply": "it is noted that a reply is processed in the client's transaction",
    "TakeReply": "a reply is received in the client's transaction",
    "SettleReply": "what the client's transaction did to a reply is found, and counted",
    "TakeLedger": "a life begins on a client's ledger, and fences the former",
    "WriteLedger": "a ledger's entry is replaced",
    "BeginLedger": "a transaction begins where the ledger is",
    "CommitLedger": "it is committed",
    "RollbackLedger": "it is rolled back",
    "PrepareLedger": "it is prepared: what becomes of it hangs on the repository",
    "EndPrepared": "what was prepared ends as the repository has decided",
    "CancelRequest": "a client kills its own request",
    "OpenIncarnation": "a server session's life begins, and takes back what the former held",
    "CloseIncarnation": "a server session's life ends in good order",
    "TakeOver": "the claims of processes that are missing are taken over",
    "Judge": "a process that is missing is said to have ended, or to live",
    "Sweep": "the low-water marks are moved",
    "Survey": "one session has looked for all of its process that sleep",
    "Claim": "requests are claimed",
    "ClaimEid": "the request of one eid is claimed",
    "Begin": "the handler's transaction begins, and the started marker is set",
    "Start": "a request of a batch begins",
    "Part": "the savepoint, the marker and the fence of a request of a batch are made",
    "Call": "the handler runs",
    "Keep": "what a request of a batch did is kept",
    "Undo": "what a request of a batch did is undone",
    "Finish": "requests, their replies and history change places, and it is committed",
    "Commit": "COMMIT is sent, and answered",
    "Rollback": "an execution that failed is rolled back",
    "AbortElement": "an execution that failed is counted, in a transaction of its own",
    "ArchiveBegin": "a run of the archive begins, and fences the one before",
    "ArchiveSettle": "it is noted up to where no record is still to come",
    "ArchiveCommit": "files go into the manifest, and the position moves",
    "ArchiveReplace": "files take the place of others in the manifest, which hold the same rows",
    "ArchivePlan": "a folder of files is noted, and not yet written",
    "ArchiveTrim": "rows that are in files are removed",
    "ArchiveRestore": "rows of a file are put back into the tables, and not yet committed",
    "ArchiveTrimmed": "it is noted of which files no row is left in the tables",
}
"""Each Op, or step of one, and what it does: it has a point `NAME.before` and one `NAME.after`."""

PLACES: Final = {
    "archive.written": "files of a run are written and durable, and in no manifest",
    "archive.compacted": "the files of small runs are one by day, durable, and in no manifest",
    "bulk.read": "an executor is about to enqueue rows of a DataFrame",
    "bulk.enqueued": "they are enqueued, and Spark does not know",
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
    **PLACES,
}
"""All points. Reaching a name that is not here is a bug."""

SILENT: Final = frozenset(
    {
        "ArchiveCount",
        "ArchiveDead",
        "ArchiveDue",
        "ArchiveManifest",
        "ArchiveRedriven",
        "ArchiveTables",
        "Attend",
        "LastUser",
        "BeginWork",
        "Identify",
        "ListClients",
        "ListPrepared",
        "ListQueues",
        "ListServers",
        "FindMissing",
        "FindRequests",
        "IsAlive",
        "ListAttempts",
        "ListTakenOver",
        "CountOutstanding",
        "LookUp",
        "MeasureRates",
        "NextDue",
        "NextExpiry",
        "Outstanding",
        "ReadElement",
        "ReadLast",
        "RidRange",
        "Rouse",
        "Sleep",
        "StopWaiting",
        "Stopping",
        "Threads",
        "Wait",
        "WhereIs",
    }
)
"""Ops that have no point: nobody else can see what they do."""

OF_SPARK: Final = frozenset(
    {
        "SparkAttempt",
        "SparkAborts",
        "SparkBound",
        "SparkLastRecord",
        "SparkLeft",
        "SparkBlame",
        "SparkCheckTable",
        "SparkClaim",
        "SparkClose",
        "SparkCommit",
        "SparkDiscard",
        "SparkEnqueue",
        "SparkOpen",
        "SparkPlan",
        "SparkPurge",
        "SparkRefuse",
        "SparkRead",
        "SparkTakeOver",
    }
)
"""Ops of the Spark server and of bulk enqueue: their points are places between Spark's steps."""

WATCHED: Final = {"_commit": "Commit", "_start_part": "Part"}
"""Steps of a driver that are not one Op alone: from method to the name of its points."""

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
    return answer if hook is None or type(op).__name__ in SILENT else _between(op, answer)


def _between(op: ops.Op[Any], answer: ops.Program[T]) -> ops.Program[T]:
    name = type(op).__name__
    faultpoint(f"{name}.before")
    answered = yield from answer
    faultpoint(f"{name}.after")
    return answered


def _name(op: tuple[object, ...], step: str | None) -> str | None:
    """Returns the name around a call; None if it has no points, or another call reports them."""
    if step is not None:
        return step
    name = type(op[0]).__name__
    return None if name in SILENT | OF_SPARK or name in WATCHED.values() else name


def _called(method: Callable[..., Any], step: str | None) -> Callable[..., Any]:
    @functools.wraps(method)
    def call(driver: object, *op: object) -> Any:
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
    async def call(driver: object, *op: object) -> Any:
        name = _name(op, step)
        if name is None:
            return await method(driver, *op)
        faultpoint(f"{name}.before")
        answer = await method(driver, *op)
        faultpoint(f"{name}.after")
        return answer

    return call
