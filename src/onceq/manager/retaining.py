"""The Program that removes the history that queues keep no longer (spec Q17).

Run by whoever looks after a repository, once a second (`ticking.tend`), never in a caller's
transaction. Each of its Ops is a transaction: whoever dies between two has done the one or both.
What fails is logged, put off for a minute, and ends nobody.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial
from typing import Any, Final

from onceq import errors, telemetry
from onceq.model import ops
from onceq.model.archive_ops import ArchiveSpend
from onceq.model.retention_ops import (
    DueQueue,
    DueRetention,
    HoldRetention,
    RetentionOwners,
    RetireHistory,
)

log = logging.getLogger(__name__)

OWNER_WAIT_S: Final = 0.5
"""How long a client's transaction is waited for, once in its life; its sends wait behind that."""
AGAIN_S: Final = 60.0
_LOST: Final = (errors.ConnectionLost, errors.CannotConnect, errors.InDoubt)
"""What whoever looks must see for itself."""


def retire() -> ops.Program[int]:
    """Takes a step in each queue that has something due; returns how many rows of history went."""
    gone = 0
    for due in (yield from DueRetention()):
        try:
            gone += yield from _step(due)
        except _LOST:
            raise
        except errors.OnceqError as error:
            yield from _failed(due, error)
    return gone


def _step(due: DueQueue) -> ops.Program[int]:
    for one in (yield from RetentionOwners(queue_id=due.queue_id)):
        yield from ArchiveSpend(registrant_id=one, timeout_s=OWNER_WAIT_S)
    return (yield from RetireHistory(queue_id=due.queue_id)).retired


def _failed(due: DueQueue, error: errors.OnceqError) -> ops.Program[None]:
    event = telemetry.RetentionFailed(queue=due.queue, error=str(error))
    tell: Callable[[], Any] = partial(telemetry.tell, log, event)
    yield from ops.Act(act=tell)
    try:
        yield from HoldRetention(queue_id=due.queue_id, after_s=AGAIN_S)
    except _LOST:
        raise
    except errors.OnceqError:
        yield from ops.Act(act=tell)  # it is due still: whoever looks next says so again
