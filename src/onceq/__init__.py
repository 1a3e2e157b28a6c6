"""onceq: exactly-once request processing on recoverable queues, on PostgreSQL.

This module is the public Python API, with `onceq.errors`, `onceq.spark` and `onceq.testing`; what
is not named in one of them is private.
"""

from onceq.api import AsyncQueueManager, QueueManager, open, open_async  # noqa: A004 # onceq.open reads well
from onceq.clerk import AsyncClerk, Clerk, Reply
from onceq.errors import (
    Cancelled,
    Expired,
    Fenced,
    InDoubt,
    OnceqError,
    Outcome,
    ReceiveTimeout,
    Reject,
    ReplyGone,
    RequestFailed,
    Retry,
)
from onceq.manager import enqueue, enqueue_async
from onceq.model.client_state import (
    ClientState,
    Done,
    NotSubmitted,
    Recovery,
    ReplyWaiting,
    Submitted,
    WentBack,
)
from onceq.model.element import Element, KillAnswer, RequestOutcome, RequestState
from onceq.model.queue import Queue, QueueInfo, QueueSettings
from onceq.server import AsyncContext, Context, Server, ServerStatistics
from onceq.version import __version__

__all__ = [
    "AsyncClerk",
    "AsyncContext",
    "AsyncQueueManager",
    "Cancelled",
    "Clerk",
    "ClientState",
    "Context",
    "Done",
    "Element",
    "Expired",
    "Fenced",
    "InDoubt",
    "KillAnswer",
    "NotSubmitted",
    "OnceqError",
    "Outcome",
    "Queue",
    "QueueInfo",
    "QueueManager",
    "QueueSettings",
    "ReceiveTimeout",
    "Recovery",
    "Reject",
    "Reply",
    "ReplyGone",
    "ReplyWaiting",
    "RequestFailed",
    "RequestOutcome",
    "RequestState",
    "Retry",
    "Server",
    "ServerStatistics",
    "Submitted",
    "WentBack",
    "__version__",
    "enqueue",
    "enqueue_async",
    "open",
    "open_async",
]
