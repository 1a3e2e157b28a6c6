"""The server: dequeues requests, runs their handlers, enqueues the replies, exactly once."""

from onceq.server.reporting import Abort
from onceq.server.server import Server, ServerStatistics

__all__ = ["Abort", "Server", "ServerStatistics"]
