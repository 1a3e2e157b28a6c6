"""How an epoch of a source stands: by which lists it counts, who refused it, why it ends. Pure.

Source: streams.md 5.
"""

from __future__ import annotations

from collections.abc import Mapping

from msgspec.structs import replace

from onceq.streams.model.choice import Stage
from onceq.streams.model.quorum import StoreList, are_stable
from onceq.streams.source.changing import Wish, advanced
from onceq.streams.source.epochs import Begun, Timing, WhyEnded, is_succeeded


class Standing:
    """The epoch that was begun last. begun: None: there is none yet. ended: why; None: it goes on.

    needed: the lists by which it counts what is stable; own: the last of them, at first the list of
    the life. wish: for another. refused: stores that have promised more. Raises InvalidValue for
    backups that do not fit.
    """

    def __init__(self, own: StoreList, timing: Timing, backups: str = "") -> None:
        self.begun: Begun | None = None
        self.ended: WhyEnded | None = None
        self.needed: tuple[StoreList, ...] = ()
        self.own = own
        self.wish = Wish(own, timing, backups)
        self.refused: set[str] = set()

    @property
    def epoch(self) -> int:
        """Its number; 0: none was begun."""
        return 0 if self.begun is None else self.begun.epoch

    @property
    def is_sending(self) -> bool:
        """Whether it goes on."""
        return self.begun is not None and self.ended is None

    @property
    def is_settled(self) -> bool:
        """Whether no change of lists is on."""
        return self.begun is not None and self.begun.bridge.stage is Stage.SETTLED

    def begin(self, begun: Begun) -> None:
        """Begin an epoch."""
        self.begun, self.ended, self.refused = begun, None, set(begun.refused)

    def follow(self, begun: Begun) -> None:
        """Count by the lists of a stage."""
        self.begun, self.needed, self.own = begun, begun.bridge.lists, begun.bridge.lists[-1]
        self.wish.follow(self.needed)

    def advance(self, noted: Mapping[str, Stage]) -> bool:
        """Take a change of lists one stage further if enough stores are so far; return whether.

        noted: the stages that stores have.
        """
        if self.begun is None:
            return False
        bridge = advanced(self.begun.bridge, noted)
        is_further = bridge.stage is not self.begun.bridge.stage
        if is_further:
            self.follow(replace(self.begun, bridge=bridge))
        return is_further

    def refusal(self) -> WhyEnded | None:
        """Return why it ends by what stores refused; None: it does not."""
        if is_succeeded(self.needed, self.refused):
            return WhyEnded.SUCCEEDED
        return WhyEnded.OVERTAKEN if self.refused else None

    def changes(self, noted: Mapping[str, Stage], now_s: float) -> bool:
        """Whether it ends for another list: a recovery would find that it may change to that."""
        is_due = self.wish.is_due(self.own, now_s)
        settled_at = {store for store, stage in noted.items() if stage is Stage.SETTLED}
        return is_due and are_stable(self.needed, settled_at)
