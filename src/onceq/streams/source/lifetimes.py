"""How long messages may be without being stable, before they are given up. Pure.

The time that counts stands still while a store has no room: that is waited for. Source: UM,
ume_message_stability_lifetime; spec M15.
"""

from __future__ import annotations

from collections.abc import Iterator

from onceq.streams.source.retaining import Block, Retention


class Lifetimes:
    """lifetime_s: of a message that is not stable; 0: without end. now_s: the time that counts."""

    def __init__(self, lifetime_s: float) -> None:
        self.now_s = 0.0
        self._lifetime_s = lifetime_s
        self._clock_s: float | None = None
        self._over_below = 0

    def go_on(self, clock_s: float, *, stands_still: bool) -> None:
        """Note what the clock says now, and whether a store has no room."""
        before_s, self._clock_s = self._clock_s, clock_s
        if before_s is not None and not stands_still:
            self.now_s += clock_s - before_s

    def sent(self, block: Block) -> None:
        """Note that a block is sent, perhaps again."""
        if block.since_s is None:
            block.since_s = self.now_s

    def over(self, retention: Retention, stable: int) -> Iterator[Block]:
        """Yield the blocks whose lifetime has come to its end, each once."""
        if not self._lifetime_s:
            return
        block = retention.at(max(stable, self._over_below))
        while block is not None and block.since_s is not None:
            if self.now_s - block.since_s < self._lifetime_s:
                return
            self._over_below = block.end
            yield block
            block = retention.at(block.end)
