"""onceq: exactly-once request processing on recoverable queues, on PostgreSQL.

This module is the public Python API, together with `onceq.errors`, `onceq.files`, `onceq.spark` and
`onceq.testing`. Anything not named in one of them is private.
"""

from onceq.api import AsyncQueueManager, QueueManager, open, open_async  # noqa: A004 # onceq.open reads well
from onceq.clerk import (
    AsyncClerk,
    AsyncClerks,
    AsyncLedgerClerk,
    Clerk,
    Clerks,
    Device,
    LedgerClerk,
    Processed,
    Reply,
    ReplyPolicy,
    Settled,
)
from onceq.clerk.ledger import PostgresLedger, QueueLedger, SqliteLedger
from onceq.errors import (
    Cancelled,
    Expired,
    Fenced,
    InDoubt,
    OnceqError,
    Outcome,
    QueueFull,
    ReceiveTimeout,
    Reject,
    ReplyGone,
    ReplyHeld,
    RequestFailed,
    Retry,
    WindowFull,
)
from onceq.manager import enqueue, enqueue_async
from onceq.manager.metrics import Metrics
from onceq.model.attributes import ElementType
from onceq.model.client_state import (
    CannotTell,
    ClientState,
    Done,
    NotSubmitted,
    Recovery,
    ReplyWaiting,
    Submitted,
    WentBack,
)
from onceq.model.context import AsyncContext, Context
from onceq.model.element import (
    Attempt,
    Element,
    EndUser,
    KillAnswer,
    OldRequest,
    RequestOutcome,
    RequestState,
    Whereabouts,
)
from onceq.model.explaining import Explanation, Step
from onceq.model.held import Held, HeldGroup, Redriven, Released
from onceq.model.ops import AlterQueue, ThreadTags
from onceq.model.periodic import Periodic, PeriodicInfo
from onceq.model.queue import Limits, Queue, QueueInfo, QueueSettings
from onceq.model.reasons import Reason
from onceq.model.reports import Report, ReportEvent, Reports
from onceq.model.retention import Retention
from onceq.model.scan import Scanned
from onceq.server import Abort, Server, ServerStatistics
from onceq.version import __version__

__all__ = [
    "Abort",
    "AlterQueue",
    "AsyncClerk",
    "AsyncClerks",
    "AsyncContext",
    "AsyncLedgerClerk",
    "AsyncQueueManager",
    "Attempt",
    "Cancelled",
    "CannotTell",
    "Clerk",
    "Clerks",
    "ClientState",
    "Context",
    "Device",
    "Done",
    "Element",
    "ElementType",
    "EndUser",
    "Expired",
    "Explanation",
    "Fenced",
    "Held",
    "HeldGroup",
    "InDoubt",
    "KillAnswer",
    "LedgerClerk",
    "Limits",
    "Metrics",
    "NotSubmitted",
    "OldRequest",
    "OnceqError",
    "Outcome",
    "Periodic",
    "PeriodicInfo",
    "PostgresLedger",
    "Processed",
    "Queue",
    "QueueFull",
    "QueueInfo",
    "QueueLedger",
    "QueueManager",
    "QueueSettings",
    "Reason",
    "ReceiveTimeout",
    "Recovery",
    "Redriven",
    "Reject",
    "Released",
    "Reply",
    "ReplyGone",
    "ReplyHeld",
    "ReplyPolicy",
    "ReplyWaiting",
    "Report",
    "ReportEvent",
    "Reports",
    "RequestFailed",
    "RequestOutcome",
    "RequestState",
    "Retention",
    "Retry",
    "Scanned",
    "Server",
    "ServerStatistics",
    "Settled",
    "SqliteLedger",
    "Step",
    "Submitted",
    "ThreadTags",
    "WentBack",
    "Whereabouts",
    "WindowFull",
    "__version__",
    "enqueue",
    "enqueue_async",
    "open",
    "open_async",
]
