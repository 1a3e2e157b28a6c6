"""The stores of a source's lists as it feeds them: what each has, and what is on its way. Pure."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import Final

from onceq.streams.model import asks
from onceq.streams.model.choice import Stage
from onceq.streams.model.quorum import StoreList
from onceq.streams.source.epochs import Begun, SourceLife, Timing, admission, must_wait
from onceq.streams.source.retaining import Block, Retention

ON_ITS_WAY_MAX: Final = 8 << 20
"""Bytes that a store has not answered for; with more, it is sent nothing."""
SILENT: Final = "it has not answered for what was sent"
UNADMITTED: Final = "it does not take part: it stands still, or copies first what it lacks"
"""What is told of a store."""
UNTOLD: Final = -1
"""A store that was told nothing is told what is stable, though that is nothing."""


class Fed:
    """A store in an epoch. stage: that it has noted; None: it is not admitted to the epoch.

    is_greeted: it said so on the link that there is, and heeds the frames that come on it. end: it
    has everything before, synced; while it is not admitted, it will begin there. sent: everything
    before was sent on this link. told: it was told that everything before is stable. since_s: when
    it last answered for more, or was first sent what it has not answered for. ask_s: it is not
    asked before, or was then; rests_s: nor before this, on whatever link. is_noting: it keeps no
    messages, and counts for no stability. was_full: it had no room in this epoch. full_s: since
    when it takes nothing; None: it takes what it is sent. full: what it said then, if that is to be
    told.
    """

    __slots__ = (
        "_sizes",
        "ask_s",
        "asked",
        "beat_s",
        "end",
        "full",
        "full_s",
        "is_full",
        "is_greeted",
        "is_linked",
        "is_noting",
        "is_responsive",
        "on_its_way",
        "rests_s",
        "sent",
        "since_s",
        "stage",
        "told",
        "was_full",
    )

    def __init__(self) -> None:
        self.stage: Stage | None = None
        self.end = self.sent = self.told = 0
        self.is_linked = self.is_greeted = self.is_noting = self.is_full = False
        self.was_full = False
        self.full: asks.Full | None = None
        self.full_s: float | None = None
        self.is_responsive = True
        self.asked: asks.Admit | None = None
        self.ask_s = self.rests_s = self.since_s = self.beat_s = 0.0
        self.on_its_way = 0
        self._sizes: deque[tuple[int, int]] = deque()

    def open(self) -> None:
        """Note that there is a link."""
        self.is_linked, self.ask_s = True, 0.0

    def lose(self) -> None:
        """Note that there is none any more."""
        self.is_linked = self.is_greeted = False
        self.asked = None

    def begin(self, stage: Stage | None, end: int, now_s: float) -> None:
        """Begin an epoch in which the store has noted a stage; None: it is not yet admitted."""
        self.stage, self.end, self.told = stage, end, 0
        self.asked, self.ask_s, self.rests_s, self.is_noting = None, 0.0, 0.0, False
        self.is_greeted, self.was_full = stage is not None, False
        self.is_linked = self.is_linked or self.is_greeted
        self.is_responsive = True
        self.rewind(end, now_s)

    def admit(self, stage: Stage, end: int, now_s: float) -> None:
        """Note that the store is admitted, and has everything before `end`.

        It may have started anew, and knows of nothing that it is stable.
        """
        self.stage, self.is_greeted, self.is_responsive = stage, True, True
        self.end, self.told = max(self.end, end), 0
        self.rewind(end, now_s)

    def rewind(self, sent: int, now_s: float) -> None:
        """Send again from a number on."""
        self.sent, self.since_s = sent, now_s
        self.on_its_way, self.is_full = 0, False
        self._sizes.clear()

    def send(self, block: Block, size: int, now_s: float) -> None:
        """Note that a block is on its way."""
        if not self._sizes:
            self.since_s = now_s
        self._sizes.append((block.end, size))
        self.on_its_way += size
        self.sent = block.end

    def hear(self, end: int, now_s: float) -> None:
        """Note that the store has everything before `end`; it may have said so before."""
        while self._sizes and self._sizes[0][0] <= end:
            self.on_its_way -= self._sizes.popleft()[1]
        if end > self.end:
            self.end, self.since_s, self.full_s = end, now_s, None
            self.sent = max(self.sent, end)
            self.is_responsive = True
        elif not self.is_waited_for:
            self.is_responsive = True

    def refuse(self, said: asks.Full, now_s: float) -> None:
        """Note that the store had no room for what was sent, and heeded nothing of that."""
        if self.full_s is None:
            self.full, self.full_s = said, now_s
        self.is_responsive, self.told = True, 0
        self.rewind(self.end, now_s)
        self.is_full = self.was_full = True

    @property
    def is_admitted(self) -> bool:
        """Whether it heeds the frames that are sent to it now."""
        return self.is_greeted and self.stage is not None

    @property
    def has_room(self) -> bool:
        """Whether more may be sent to it."""
        return self.is_admitted and not self.is_full and self.on_its_way < ON_ITS_WAY_MAX

    @property
    def is_waited_for(self) -> bool:
        """Whether something is on its way that it has not answered for."""
        return self.is_admitted and not self.is_noting and self.sent > self.end

    def is_kept_waiting(self, now_s: float, within_s: float) -> bool:
        """Whether it was asked to take part in the epoch, and has not answered for too long."""
        return self.asked is not None and not self.is_admitted and now_s >= self.ask_s + within_s

    @property
    def answers(self) -> bool:
        """Whether what is sent to it now may become stable there."""
        return self.is_admitted and self.is_responsive and not self.is_noting


class Feeding:
    """The stores of the lists of an epoch, by their addresses, and all others that have a link.

    admitted: all that were admitted to the epoch, also those that are in no list any more.
    """

    def __init__(self, timing: Timing) -> None:
        self.timing = timing
        self.stores: dict[str, Fed] = {}
        self.admitted: set[str] = set()
        self._links: dict[str, Fed] = {}
        self._begun_s = 0.0

    def of(self, store: str) -> Fed:
        """Return a store, of these lists or not."""
        return self._links.setdefault(store, Fed())

    def begin(self, begun: Begun, now_s: float) -> None:
        """Begin an epoch: all stores of its lists are to get what the chosen log lacks."""
        self.choose(begun)
        self.admitted, self._begun_s = set(begun.noted), now_s
        for store, fed in self.stores.items():
            is_noted = store in begun.noted
            fed.begin(begun.noted.get(store), begun.ends.get(store, begun.log.end), now_s)
            fed.is_noting = is_noted and store not in begun.ends
            if store in begun.unable:  # it would say that it forgot, which ends an epoch
                fed.rests_s = now_s + self.timing.room_s

    def choose(self, begun: Begun) -> None:
        """Feed the stores of the lists, and no others."""
        stores = sorted({store for one in begun.bridge.lists for store in one.stores})
        self.stores = {store: self.of(store) for store in stores}

    def admit(self, store: str, stage: Stage, end: int, now_s: float) -> None:
        """Note that a store is admitted, and has everything before `end`."""
        self.admitted.add(store)
        self.of(store).admit(stage, end, now_s)

    def dismiss(self, store: str) -> None:
        """Note that a store is not admitted to the epoch."""
        self.admitted.discard(store)
        self.of(store).stage = None

    @property
    def noted(self) -> dict[str, Stage]:
        """The stages that stores have noted in this epoch."""
        return {store: fed.stage for store, fed in self.stores.items() if fed.stage is not None}

    @property
    def responsive(self) -> set[str]:
        """The stores that answer."""
        return {store for store, fed in self.stores.items() if fed.answers}

    @property
    def answering(self) -> set[str]:
        """The stores of which it is not known that they do not answer."""
        return {store for store, fed in self.stores.items() if fed.is_responsive}

    @property
    def silent(self) -> set[str]:
        """The stores that do not answer, or are not admitted."""
        fed = self.stores.items()
        return {store for store, one in fed if not (one.is_admitted and one.is_responsive)}

    def stable_below(self, needed: tuple[StoreList, ...], known: int) -> int:
        """Return below which number a stable set of every list has everything; at least `known`."""
        ends = {store: fed.end for store, fed in self.stores.items() if not fed.is_noting}
        responsive = self.responsive
        for end in sorted({end for end in ends.values() if end > known}, reverse=True):
            having = {store for store, its in ends.items() if its >= end}
            if all(one.is_stable(having, responsive) for one in needed):
                return end
        return known

    def lacking(self, end: int) -> frozenset[str]:
        """The stores that are to keep messages, and have not all before a number, or are away."""
        stores = self.stores.items()
        return frozenset(
            store
            for store, fed in stores
            if not (fed.is_noting or (fed.is_admitted and fed.end >= end))
        )

    def needs(self, stable: int) -> int:
        """Return from which number on a store that is there may need what was sent."""
        keeping = (fed for fed in self.stores.values() if not fed.is_noting)
        return min([stable, *(one.end for one in keeping if one.is_linked)])

    def lacks(self, begin: int, now_s: float) -> bool:
        """Whether a store that heeds frames lacks what lies before a number.

        One that had no room may have none yet, and does not count before the epoch is so old.
        """
        is_old = now_s >= self._begun_s + self.timing.room_s
        return any(
            fed.is_admitted and not fed.is_noting and fed.sent < begin
            for fed in self.stores.values()
            if is_old or not fed.was_full
        )

    def asked(self, life: SourceLife, begun: Begun, now_s: float) -> Iterator[tuple[str, Fed]]:
        """Yield the stores that must be asked now: to be admitted, to note a stage, or who sends.

        Those that may have forgotten wait until enough others are admitted.
        """
        for store, fed in self.stores.items():
            is_done = fed.is_greeted and fed.stage is begun.bridge.stage
            waits = must_wait(begun.log, begun.bridge, store, self.admitted)
            is_due = now_s >= max(fed.ask_s, fed.rests_s)
            is_free = fed.is_linked and fed.asked is None and is_due
            if is_free and not is_done and not waits:
                fed.asked, fed.ask_s = admission(life, begun, store), now_s
                yield store, fed

    def blocks(self, retention: Retention) -> Iterator[tuple[str, Fed, Block]]:
        """Yield what is to be sent now, and to whom."""
        for store, fed in self.stores.items():
            if fed.is_noting:
                fed.sent = max(fed.sent, retention.begin)
            while fed.has_room and (block := retention.at(fed.sent)) is not None:
                yield store, fed, block

    def untold(self, stable: int, *, is_last: bool = False) -> Iterator[tuple[str, Fed]]:
        """Yield the stores that were not told that what they have is stable, as far as it is.

        One that is full must know it, for it gives up nothing else. is_last: nothing is told later;
        what was sent counts, though nobody has answered.
        """
        for store, fed in self.stores.items():
            has = fed.sent if is_last or fed.is_noting else fed.end
            if fed.is_admitted and fed.told < min(has, stable):
                fed.told = min(has, stable)
                yield store, fed

    def _beat(self, fed: Fed, now_s: float) -> None:
        """Have a store told again, after a while, that the source is there: by what is stable."""
        beat_s = self.timing.beat_s
        if beat_s and now_s >= fed.beat_s + beat_s:
            fed.beat_s, fed.told = now_s, UNTOLD

    def crowded(self, now_s: float) -> Iterator[tuple[str, asks.Full]]:
        """Yield each store that has had no room for too long, and what it says; until it has: once.

        It answers, and so counts as one that does.
        """
        for store, fed in self.stores.items():
            is_long = fed.full_s is not None and now_s >= fed.full_s + self.timing.unresponsive_s
            if is_long and fed.full is not None:
                yield store, fed.full
                fed.full = None

    def tick(self, now_s: float) -> Iterator[tuple[str, str]]:
        """Let be sent again what nobody answered for; yield who does not answer, and what for."""
        for store, fed in self.stores.items():
            self._beat(fed, now_s)
            waited_s = now_s - fed.since_s
            if fed.is_full and waited_s >= self.timing.retry_s:
                fed.rewind(fed.end, now_s)
            elif fed.is_waited_for:
                if waited_s >= self.timing.unresponsive_s:
                    yield store, SILENT
                if waited_s >= self.timing.resend_s:
                    fed.rewind(fed.end, now_s)
            elif fed.is_kept_waiting(now_s, self.timing.unresponsive_s):
                yield store, UNADMITTED
