"""The client's own ledger: what it meant to send, what it sent, what it has processed (spec C4).

Kinds: a local SQLite file, the repository's own database, another PostgreSQL database, a queue.
"""

from onceq.clerk.ledger.kind import Ledger
from onceq.clerk.ledger.postgresql import PostgresLedger
from onceq.clerk.ledger.queue import QueueLedger
from onceq.clerk.ledger.sqlite import SqliteLedger
from onceq.clerk.ledger.work import Work

__all__ = [
    "Ledger",
    "PostgresLedger",
    "QueueLedger",
    "SqliteLedger",
    "Work",
]
