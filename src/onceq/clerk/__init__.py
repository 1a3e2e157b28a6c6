"""The clerk: the library through which a client sends requests and receives replies."""

from onceq.clerk.async_clerk import AsyncClerk
from onceq.clerk.clerk import Clerk
from onceq.clerk.device import Device
from onceq.clerk.policy import Processed, ReplyPolicy, Settled
from onceq.clerk.session import Reply

__all__ = ["AsyncClerk", "Clerk", "Device", "Processed", "Reply", "ReplyPolicy", "Settled"]
