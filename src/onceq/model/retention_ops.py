"""The Ops of retention: how long queues keep the history of what has ended. Pure. Source: Q17.

Each is one transaction, of whoever looks after a repository; none waits for a lock longer than half
a second.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from onceq.model.ops.base import Integer, Op

ROWS: Final = 1000
"""Of history, looked at in one transaction; and those of the last one's moment."""
EVERY_S: Final = 3600.0
"""From the end of a look through a queue's history to the next one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DueQueue:
    """A queue whose history is to be looked at now."""

    queue: str
    queue_id: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Retired:
    """What a step did. retired: rows of history that went. is_over: so is this look."""

    retired: int
    is_over: bool


class DueRetention(Op[list[DueQueue]]):
    """The queues whose history is to be looked at now, the longest due first."""


class RetentionOwners(Op[list[int]]):
    """The registrants of the next n rows of a queue, of which no history ever went: ArchiveSpend.

    Until that is done, what is theirs stays.
    """

    queue_id: Integer
    n: Integer = ROWS


class RetireHistory(Op[Retired], changes="history goes that its queue keeps no longer"):
    """Removes of the next n rows of a queue's history those that may go, and goes on behind them.

    With them go the aborts of those requests. If there is an archive, only what is in its files.
    every_s: after how long the next look begins, when this one is over. Somebody else is at it, or
    it is not due: 0, over.
    """

    queue_id: Integer
    n: Integer = ROWS
    every_s: float = EVERY_S


class HoldRetention(Op[bool], changes="a look at history is put off after a failure"):
    """Puts off the next look at a queue's history; False: nothing of it is to go any more."""

    queue_id: Integer
    after_s: float
