"""Ops: the operations of the queue manager, as frozen values, and Programs, which yield them.

An Op says what is to be done and what type its answer has; a Driver does it. A Program is a
generator of Ops: `element = yield from Claim(...)`. It does no I/O, reads no clock, draws no
random number, and never catches BaseException. Source: BHM90 figure 3.

Every Op is one round trip. What an Op raises is in `onceq.errors`; the Driver throws it into
the Program at the yield.
"""

from onceq.model.ops.base import Op, Program
from onceq.model.ops.clerk import (
    Acknowledge,
    CancelRequest,
    Connect,
    Connection,
    Disconnect,
    Outstanding,
    OutstandingRequest,
    Receive,
    Send,
    SendMany,
    Sent,
)
from onceq.model.ops.elements import (
    AbortTaken,
    Dequeue,
    Enqueue,
    EnqueueMany,
    Kill,
    LookUp,
    ReadElement,
    Redrive,
    ReplyTaken,
    Settle,
    Take,
)
from onceq.model.ops.queues import AlterQueue, CreateQueue, DestroyQueue, ListQueues
from onceq.model.ops.registrations import (
    Deregister,
    EnqueueTagged,
    LastOperation,
    ReadLast,
    Register,
    Registered,
)
from onceq.model.ops.server import (
    AbortElement,
    Begin,
    Call,
    Claim,
    ClaimEid,
    CloseIncarnation,
    Commit,
    FallAsleep,
    Finish,
    Incarnation,
    Observation,
    OpenIncarnation,
    Rollback,
    Stopping,
    Sweep,
    TakeOver,
    Wait,
)

__all__ = [
    "AbortElement",
    "AbortTaken",
    "Acknowledge",
    "AlterQueue",
    "Begin",
    "Call",
    "CancelRequest",
    "Claim",
    "ClaimEid",
    "CloseIncarnation",
    "Commit",
    "Connect",
    "Connection",
    "CreateQueue",
    "Dequeue",
    "Deregister",
    "DestroyQueue",
    "Disconnect",
    "Enqueue",
    "EnqueueMany",
    "EnqueueTagged",
    "FallAsleep",
    "Finish",
    "Incarnation",
    "Kill",
    "LastOperation",
    "ListQueues",
    "LookUp",
    "Observation",
    "Op",
    "OpenIncarnation",
    "Outstanding",
    "OutstandingRequest",
    "Program",
    "ReadElement",
    "ReadLast",
    "Receive",
    "Redrive",
    "Register",
    "Registered",
    "ReplyTaken",
    "Rollback",
    "Send",
    "SendMany",
    "Sent",
    "Settle",
    "Stopping",
    "Sweep",
    "Take",
    "TakeOver",
    "Wait",
]
