"""The clerk: the library through which a client sends requests and receives replies."""

from onceq.clerk.clerk import AsyncClerk, Clerk
from onceq.clerk.program import Reply

__all__ = ["AsyncClerk", "Clerk", "Reply"]
