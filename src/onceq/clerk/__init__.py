"""The clerk: the library through which a client sends requests and receives replies."""

from onceq.clerk.async_clerk import AsyncClerk, AsyncLedgerClerk
from onceq.clerk.clerk import Clerk, LedgerClerk
from onceq.clerk.desk import AsyncClerks, Clerks
from onceq.clerk.device import Device
from onceq.clerk.policy import Processed, ReplyPolicy, Settled
from onceq.clerk.session import Reply

__all__ = [
    "AsyncClerk",
    "AsyncClerks",
    "AsyncLedgerClerk",
    "Clerk",
    "Clerks",
    "Device",
    "LedgerClerk",
    "Processed",
    "Reply",
    "ReplyPolicy",
    "Settled",
]
