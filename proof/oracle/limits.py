"""The limits of a queue in depth and bytes (Q13), as the oracle keeps them: counted at each send.

Private to the oracle; the twin of `limits.sql`, whose measurements of up to 100 elements are not
kept either.
"""

from __future__ import annotations

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
    if len(bodies) == 1 and most.bytes is not None and more > most.bytes:
        raise TooLarge(f"queue {queue.name!r}: a body of {more} bytes never fits")
    inside = [one for one in state.elements.seen(tx) if one.queue_id == queue.queue_id]
    depth, size = len(inside), sum(len(one.body) for one in inside)
    is_full = most.depth is not None and depth + len(bodies) > most.depth
    if bodies and (is_full or (most.bytes is not None and size + more > most.bytes)):
        text = f'queue "{queue.name}" is full: it has {depth} element(s), {size} bytes'
        raise QueueFull(text, retry_after_s=RETRY_AFTER_S)
