"""The stores of a stream, as Spark's processes ask them: where it is, and what it has.

The links are kept from call to call, and so are the stores: those of the lists that were found
last are asked first. What is pickled is neither. Source: spec M38.
"""

from __future__ import annotations

import asyncio
import itertools
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final, Self, TypeVar

from msgspec.structs import replace
from pyspark.sql.datasource import InputPartition

from onceq.errors import IllegalState
from onceq.model.ops.base import Program
from onceq.spark.follow.options import StreamOptions
from onceq.streams.bridge.epochs import Epochs, Placed, find, lacking, stores_of
from onceq.streams.bridge.fetching import Reading
from onceq.streams.bridge.reading import LOST_PIECE, Asked, Piece, Unread, read_once
from onceq.streams.bridge.waiting import Waiting
from onceq.streams.bridge.whole import Tail, Wholes, tail_of
from onceq.streams.errors import DataLost, StreamReplaced
from onceq.streams.model.quorum import StoreList
from onceq.streams.receiver.placing import Who

ASK_S: Final = 2.0
REST_S: Final = 0.1
"""How long it waits before stores are asked again."""
_TRIES: Final = 30
"""How often a table, or a batch that is planned again, asks stores before it gives up."""
_PER_SLICE: Final = 1_000
_BEHIND: Final = 64
"""So many numbers behind a slice are asked for at once, for the rest of its last message."""
T = TypeVar("T")


@dataclass
class Slice(InputPartition):
    """Messages that begin at `begin` to before `end`. is_first: no message was read before them.

    None of them is unfinished, so that the last one is read to its end, behind these numbers too.
    epochs: of the log, as it was known when this was planned.
    """

    stream: int
    begin: int
    end: int
    stores: tuple[str, ...]
    is_first: bool
    epochs: Epochs


class Stores:
    """Asks the stores of a stream, from processes that have no loop. Its end closes the links.

    known: where the stream was found last; None: it has not been.
    """

    def __init__(self, options: StreamOptions, known: tuple[str, ...] | None = None) -> None:
        self.options = options
        self._known = known
        self._epochs: Epochs | None = None
        self._tail = Tail(0, 0)
        self._kept: tuple[asyncio.Runner, Reading] | None = None
        self._unplaced = Waiting(options.name or "onceq-stream", options.topic)
        self._unread = Waiting(options.name or "onceq-stream", options.topic)

    def run(self, program: Program[T]) -> T:
        """Run a Program, on the links that there are, or that it makes."""
        if self._kept is None:
            self._kept = asyncio.Runner(), Reading(self.options.certificates)
        runner, reading = self._kept
        return runner.run(reading.run(program))

    def close(self) -> None:
        """Close the links; idempotent, and the next call makes others."""
        if self._kept is not None:
            (runner, reading), self._kept = self._kept, None
            with runner:
                runner.run(reading.__aexit__())

    def again(self) -> Stores:
        """Return one that asks the same stores, on links of its own."""
        return Stores(self.options, self._known)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __reduce__(self) -> tuple[type[Stores], tuple[StreamOptions, tuple[str, ...] | None]]:
        return Stores, (self.options, self._known)

    # where the stream is

    def _who(self) -> Who:
        who = self.options.who
        return who if self._known is None else replace(who, known=StoreList(groups=(self._known,)))

    def found(self, tries: int = 1, least: int = 0) -> Placed | None:
        """Find the stream; None: too few stores have answered, each time.

        Lists change: the stores of those that were found last are asked, and if they do not tell,
        those that the options name. What is of a former epoch than it was found in is not believed,
        nor what is of a former one than `least`. For whom it waits, the log is told.
        """
        for number in range(tries):
            if number:
                threading.Event().wait(REST_S)
            found = self.run(find(self._who(), ASK_S, self._epochs, least))
            if found is not None:
                if found.epochs != self._epochs:  # what was found of its end may be lost
                    self._tail = Tail(0, 0)
                self._known, self._epochs = stores_of(found), found.epochs
                self._unplaced.over()
                return found
            self._known = None
            if self._unplaced.is_due():
                self._unplaced.tell(self._why(least))
        return None

    def surely_found(self, least: int = 0) -> Placed:
        """Find the stream, as `found`. Raises IllegalState if too few stores have told for long."""
        found = self.found(_TRIES, least)
        if found is None:
            why = self._why(least)
            self._unplaced.tell(why)
            said = "; ".join(f"{store}: {one}" for store, one in why.items())
            said = said or self.options.stores
            raise IllegalState(
                f"too few stores of topic {self.options.topic!r} tell what it has now. {said}."
                " Start those of its list, or give the option 'stores' the list that it has now"
            )
        return found

    def _why(self, least: int) -> Mapping[str, str]:
        """Ask why stores do not tell where the stream is."""
        known = 0 if self._epochs is None else self._epochs.last
        return self.run(lacking(self._who(), ASK_S, max(least, known)))

    def _waits(self, unread: Unread) -> None:
        self._unread.note(unread.why)

    def whole_below(self, found: Placed, begin: int) -> int | None:
        """Return below which number, of what is stable, no message is unfinished.

        begin: what lies before is not looked at. None: no store has told.
        """
        if self._tail.end != found.stable:
            asked = Asked(
                stream=found.stream,
                begin=begin,
                end=found.stable,
                stores=stores_of(found),
                epochs=found.epochs,
            )
            tail = self.run(tail_of(asked, self._tail, self._waits))
            if tail is None:
                return None
            self._unread.over()
            self._tail = tail
        return self._tail.whole

    # what it has

    def slices(self, found: Placed, begin: int, end: int, *, is_first: bool) -> list[Slice]:
        """Cut numbers into slices."""
        stores = stores_of(found)
        count = max(1, min(self.options.partitions, (end - begin) // _PER_SLICE))
        cuts = [begin + (end - begin) * n // count for n in range(count + 1)]
        return [
            Slice(found.stream, low, high, stores, is_first and low == begin, found.epochs)
            for low, high in itertools.pairwise(cuts)
            if low < high
        ]

    def read(self, partition: Slice) -> Iterator[Piece]:
        """Read the messages of a slice. Raises DataLost, StreamReplaced."""
        wholes = Wholes(partition.end)
        for piece in self._pieces(partition, wholes):
            if piece.begin < partition.end or wholes.is_open:
                self._refuse_lost(piece, partition)
            yield from wholes.take(piece)

    def _pieces(self, of: Slice, wholes: Wholes) -> Iterator[Piece]:
        """Yield what stores have, in order, until all messages of a slice are whole."""
        asked = Asked(
            stream=of.stream, begin=of.begin, end=of.end, stores=of.stores, epochs=of.epochs
        )
        while asked.begin < of.end or wholes.is_open:
            pieces = self.run(read_once(asked))
            if isinstance(pieces, tuple):
                self._unread.over()
                yield from pieces
                at = pieces[-1].end
                asked = replace(asked, begin=at, end=of.end if at < of.end else at + _BEHIND)
                continue
            if pieces is not None:
                self._waits(pieces)
            asked = self._again(of, asked)

    def _again(self, of: Slice, asked: Asked) -> Asked:
        """Wait, and return what is asked next: lists may have changed meanwhile.

        Raises StreamReplaced if what was read, or comes next, is of another epoch by now: it was
        stable, so that a person has accepted that it is lost.
        """
        threading.Event().wait(REST_S)
        self._known, self._epochs = self._known or asked.stores, self._epochs or asked.epochs
        found = self.found()
        if found is None:
            return asked
        if found.epochs.replaces(of.epochs, max(of.end, asked.begin + 1)):
            raise StreamReplaced(
                f"a loss of topic {self.options.topic!r} was accepted while numbers {of.begin} to"
                f" {of.end - 1} were read: what was read of them may be void; begin again"
            )
        return replace(asked, stores=stores_of(found), epochs=found.epochs)

    def _refuse_lost(self, piece: Piece, of: Slice) -> None:
        is_new = of.is_first and piece.begin == of.begin and not piece.is_void
        if piece.why != LOST_PIECE or is_new or not self.options.fails:
            return
        text = "are lost: a person accepted that" if piece.is_void else "are in no store any more"
        raise DataLost(
            f"numbers {piece.begin} to {piece.end - 1} of topic {self.options.topic!r} {text}:"
            " to go on without them, say failOnDataLoss=false",
            first=piece.begin,
            last=piece.end - 1,
            why=piece.why,
        )
