"""The limits of a queue in depth and bytes (Q13), as the oracle keeps them: counted at each send.

Private to the oracle; the twin of `limits.sql`, whose measurements of up to 100 elements are not
kept either.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from onceq.errors import QueueFull, TooLarge
from onceq.model.queue import UNLIMITED

if TYPE_CHECKING:
    from proof.oracle.rows import QueueRow, Transaction
    from proof.oracle.state import State

RETRY_AFTER_S = 0.05


def need_room(state: State, tx: Transaction, queue: QueueRow, bodies: list[bytes]) -> None:
    """Refuses elements with these bodies if the queue does not take them. QueueFull, TooLarge."""
    most = queue.settings.limits
    if most == UNLIMITED:
        return
    more = sum(map(len, bodies))
    if len(bodies) == 1 and _over(most.bytes, more):
        raise TooLarge(f"queue {queue.name!r}: a body of {more} bytes never fits")
    inside = [one for one in state.elements.seen(tx) if one.queue_id == queue.queue_id]
    depth, size = len(inside), sum(len(one.body) for one in inside)
    if bodies and (_over(most.depth, depth + len(bodies)) or _over(most.bytes, size + more)):
        text = f'queue "{queue.name}" is full: it has {depth} element(s), {size} bytes'
        never = len(bodies) > 1 and (_over(most.depth, len(bodies)) or _over(most.bytes, more))
        raise QueueFull(text, retry_after_s=math.inf if never else RETRY_AFTER_S)


def _over(most: int | None, size: int) -> bool:
    return most is not None and size > most
