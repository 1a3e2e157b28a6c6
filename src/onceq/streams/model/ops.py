"""The Ops of streams: what the Programs of sources, receivers and stores have done for them. Pure.

As everywhere in onceq, a Program yields Ops and is sent their answers; a driver performs them, over
asyncio or in a simulator. What is steady (frames, acknowledgements) goes through cores instead.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from onceq.model.ops.base import Op
from onceq.streams.model import asks


class AskStore(Op[asks.Answer | None]):
    """Ask a store and wait for its answer; None: it did not come in time, or cannot."""

    store: str
    ask: Any
    within_s: float


class AskStores(Op[Mapping[str, asks.Answer]]):
    """Ask several stores at once; answer when what they answered is `enough`, or in time.

    Those that have not answered by then are cut off: what they were asked has no effect any more.
    """

    asked: Mapping[str, Any]
    enough: Callable[[Mapping[str, asks.Answer]], bool]
    within_s: float


class FetchRange(Op[tuple[bytes, ...] | None]):
    """Get the frames of a range from another store; None: it does not give them."""

    store: str
    ask: asks.Fetch
    within_s: float


class WaitUntil(Op[None]):
    """Wait, at most so long, for something to happen."""

    within_s: float
