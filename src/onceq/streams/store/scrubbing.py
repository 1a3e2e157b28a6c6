"""Looking through the log of a store that has one, piece by piece: one segment, then the next.

Pure but for what the store does, which it is given.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final, Protocol

from onceq.streams.errors import StoreFull
from onceq.streams.store.healing import Harmed, Looked
from onceq.streams.store.log.entries import HEAD_BYTES, Entry, Unproven
from onceq.streams.store.log.scrub import Survey

if TYPE_CHECKING:
    from onceq.streams.store.catalogue import Catalogue
    from onceq.streams.store.log.entries import Geometry
    from onceq.streams.store.log.segments import Files
    from onceq.streams.store.log.writing import Log

PIECE_BYTES: Final = 256 << 10


class Scrubbed(Protocol):
    """A store with a log that can be looked through: of DiskStore, what that takes."""

    catalogue: Catalogue
    files: Files
    geometry: Geometry
    log: Log

    def survey(self, segment: int, /) -> tuple[Survey, Iterator[Entry | Unproven]]:
        """Return a survey of a segment that is still to take what is found in it."""
        ...

    def note_survey(self, segment: int, survey: Survey, /) -> object:
        """Note what a survey found. Raises StoreFull."""

    def note_lacking(self, last_segment: int, /) -> None:
        """Note as damaged what is nowhere."""

    def repair(self, stream: int, data: bytes, /) -> bool:
        """Write a damaged frame again; whether it was taken. Raises StoreFull."""
        ...


class Scrubbing:
    """Where the look through a log has come to. own: the store's address, as the lists have it.

    rounds: how often all segments were looked through.
    """

    def __init__(self, store: Scrubbed, own: str) -> None:
        self._store = store
        self.own = own
        self._segment: int | None = None
        self._left: Iterator[Entry | Unproven] = iter(())
        self._survey = Survey(0)
        self.rounds = 0

    def step(self) -> Looked:
        """Look through the next piece. What is found harmed in a segment is no more served."""
        size = HEAD_BYTES
        for one in self._left:
            self._survey.take(one)
            size += one.end - one.position
            if size >= PIECE_BYTES:
                return Looked(size=size)
        self._note()
        rounds = self.rounds
        self._begin()
        return Looked(size=size, harmed=tuple(self._harmed()), is_round=self.rounds > rounds)

    def mend(self, stream: int, data: bytes) -> bool:
        """Write a damaged frame again; whether it was taken. On a full disk: not now."""
        try:
            return self._store.repair(stream, data)
        except StoreFull:
            return False

    def _note(self) -> None:
        with contextlib.suppress(StoreFull):  # its snapshot is written anew in the next round
            if self._segment is not None:
                self._store.note_survey(self._segment, self._survey)

    def _begin(self) -> None:
        """Go on with the next segment, or begin again with the first."""
        numbers, last = self._store.files.numbers(), self._segment
        following = [number for number in numbers if last is None or number > last]
        if not following:
            self.rounds += 1
            self._store.note_lacking(self._store.geometry.number(self._store.log.synced))
        self._segment = min(following or numbers, default=None)
        if self._segment is not None:
            self._survey, self._left = self._store.survey(self._segment)

    def _harmed(self) -> Iterator[Harmed]:
        for held in self._store.catalogue.streams.values():
            if held.damaged and held.bridge is not None:
                stores = {store for one in held.bridge.lists for store in one.stores}
                yield Harmed(
                    stream=held.stream,
                    numbers=held.damaged,
                    stores=tuple(sorted(stores - {self.own})),
                )
