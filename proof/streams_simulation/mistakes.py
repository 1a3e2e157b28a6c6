"""Functions of what ships as they would be with a mistake. `variants` puts them in their place."""

from __future__ import annotations

from collections.abc import Generator, Iterator, Mapping
from collections.abc import Set as AbstractSet
from typing import Any, Final

from msgspec.structs import replace

from onceq.streams.model import asks
from onceq.streams.model.choice import Promised
from onceq.streams.model.quorum import StoreList
from onceq.streams.receiver.delivering import Delivering
from onceq.streams.receiver.ops import Shown
from onceq.streams.source import acts
from onceq.streams.source.changing import Wish
from onceq.streams.source.feeding import Feeding
from onceq.streams.source.recovering import Past
from onceq.streams.source.sending_epochs import Epochs
from onceq.streams.store import limits
from onceq.streams.store.catalogue import Catalogue, Needs, Step, serving
from onceq.streams.store.memory_store import MemoryStore
from onceq.streams.store.programs import Programs
from onceq.streams.store.records import Held, Trimmed

# sources

_ADMITTED: Final = Epochs.__dict__["_admitted"]
_ANSWERED: Final = Epochs.__dict__["_answered"]


def greatest_end(self: Feeding, _: tuple[StoreList, ...], known: int) -> int:
    """Return what one store has, instead of what a stable set has."""
    return max([known, *(fed.end for fed in self.stores.values() if not fed.is_noting)])


def admitted_with_all(self: Epochs, given: acts.Answered) -> Iterator[acts.Act]:
    """Believe that a store which is admitted has all that was sent."""
    if isinstance(given.answer, asks.Holding):
        answer = replace(given.answer, end=self.retention.sealed)
        given = replace(given, answer=answer)
    yield from _ADMITTED(self, given)


def any_answer_counts(self: Epochs, store: str, answer: asks.Answer) -> Iterator[acts.Act]:
    """Take an answer for one of this epoch."""
    if isinstance(answer, asks.Holding):
        answer = replace(answer, epoch=self.epoch)
    yield from _ANSWERED(self, store, answer)


class Later(frozenset[int]):
    """Epochs, among which all later ones count."""

    def __contains__(self, epoch: object) -> bool:
        return isinstance(epoch, int) and epoch >= max(self, default=0)

    def __or__(self, other: AbstractSet[Any]) -> Later:
        return Later({*self, *other})


def past_of_greater_epochs(**given: Any) -> Past:
    """Return a past by which any later epoch was the life's own."""
    epochs = Later(given.pop("epochs", ()))
    return Past(epochs=epochs, **given)


def addable_by_those_added(
    wanted: StoreList, old: StoreList, promised: Mapping[str, Promised], *, keeps: bool
) -> bool:
    """Whether all stores that a change adds have promised, however few of the others."""
    del keeps
    return wanted != old and wanted.stores - old.stores <= promised.keys()


def wanted_until_it_begins(self: Wish, lists: tuple[StoreList, ...]) -> None:
    """Want a list no more as soon as a change to it has begun."""
    if lists[-1] == self.wanted:
        self.wanted = None


# receivers

_INFORM: Final = Delivering.inform
_NOTE: Final = Delivering.__dict__["_note"]


def ahead_is_kept(self: Delivering, known: asks.Information) -> list[Shown]:
    """Follow an epoch, with frames of the former one still to be shown."""
    kept, size = vars(self)["_ahead"], vars(self)["_ahead_bytes"]
    shown = _INFORM(self, known)
    vars(self).update(_ahead=kept, _ahead_bytes=size)
    return shown


def followed_is_noted(self: Delivering, epoch: int, *, is_lost: bool = False) -> None:
    """Note that what is shown is of the epoch that is followed."""
    del epoch
    _NOTE(self, self.epoch, is_lost=is_lost)


# stores

_ADMIT: Final = MemoryStore.__dict__["_admitted"]


def all_readable(self: Catalogue, ask: asks.Read) -> range:
    """Return all that is there, stable or not."""
    held = self.of(ask.stream)
    return range(max(ask.begin, held.begin), min(ask.end, held.end))


def all_copies_count(self: MemoryStore, local: int, below: int, end: int) -> None:
    """Be admitted with copies that lie beyond the log."""
    del end
    _ADMIT(self, local, below, 1 << 62)


def registered_in_any_epoch(self: Catalogue, ask: asks.Register) -> Step:
    """Note a receiver, in whatever epoch the store is."""
    return self.register(replace(ask, epoch=serving(self.of(ask.stream))))


def trimmed_when_stable(held: Held, want: int, _: int) -> Trimmed | None:
    """Give up what is stable, as if everybody had acknowledged it."""
    return limits.trimmed(held, want, held.stable)


def copied_beside(_: Programs, *given: Any) -> Generator[Any, None, Needs]:
    """Let an admission copy, whoever else does."""
    yield from ()
    needs: Needs = given[-1]
    return needs
