"""The oracle's refusals of what would break the order of a strict queue.

Private to the oracle; the twin of a part of `order.sql`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from onceq.errors import InvalidValue

if TYPE_CHECKING:
    from datetime import datetime

    from proof.oracle.rows import QueueRow

USUAL_PRIORITY = 4


def refuse_in_order(queue: QueueRow, what: str) -> None:
    """Refuses what would break the order of a strict queue."""
    if queue.settings.order is not None:
        raise InvalidValue(f'queue "{queue.name}" is in strict order, and {what}')


def check_order(queue: QueueRow, priority: int, not_before: datetime | None) -> None:
    """Refuses a priority or a delay in a strict queue."""
    if not_before is not None:
        refuse_in_order(queue, "delays nothing")
    elif priority != USUAL_PRIORITY:
        refuse_in_order(queue, "takes no priority")
