"""The data source `onceq-stream`: the stable messages of a stream, as a stream and as a table.

A program registers it: `spark.dataSource.register(OnceqStreamSource)`. An offset is {ID: [epoch,
number]}: of the stream, and of what lies below it; {} is its beginning. Planning asks stores, and
executors read from them; neither needs a database. What a batch has read is acknowledged when Spark
has noted that it is over. A gap ends the query, unless failOnDataLoss is false.
Source: spec M38; streams.md 8.
"""

from __future__ import annotations

import asyncio
import hashlib
import itertools
import re
import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeVar

from msgspec.structs import replace
from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    InputPartition,
)
from pyspark.sql.streaming.datasource import (
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)

from onceq.errors import IllegalState, InvalidValue
from onceq.model.stream_ops import StreamPosition
from onceq.spark.arrow import RecordBatch, batch_of, schema_of
from onceq.spark.given.options import check_given
from onceq.spark.start.hung_up import say_no_hanging_up
from onceq.streams.bridge.fetching import Reading
from onceq.streams.bridge.moving import hexed, refuse_replaced
from onceq.streams.bridge.reading import LOST_PIECE, Asked, Piece, read_some
from onceq.streams.errors import DataLost
from onceq.streams.model.choice import epoch_at
from onceq.streams.model.quorum import listed
from onceq.streams.net.tls import Certificates
from onceq.streams.receiver.acknowledging import Acknowledging, acknowledge_all
from onceq.streams.receiver.delivering import Delivering
from onceq.streams.receiver.placing import Position, Registration, Who, place, register
from onceq.streams.store.records import key_of

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

    from onceq.model.ops.base import Program

STREAM_SCHEMA: Final = "stream string, epoch bigint, number bigint, body binary"
_ARROW: Final = schema_of(STREAM_SCHEMA)
_PER_SLICE: Final = 1_000
_ASK_S: Final = 2.0
_IDLE_S: Final = 0.1
_TRIES: Final = 30
"""How often a table, or a batch that is planned again, asks stores before it gives up."""
_FILES: Final = ("certificate", "key", "authority")

Offset = dict[str, list[int]]
T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamOptions:
    """What is read. session: of the source. stores: to begin with.

    name: under which stores know how far the query is, and keep the rest; empty: they do not.
    batch: most messages in a micro-batch; partitions: most tasks that read one.
    """

    topic: str
    session: int
    stores: str
    name: str = ""
    batch: int = 50_000
    partitions: int = 2
    fails: bool = True
    certificates: Certificates | None = None

    @classmethod
    def from_spark(cls, options: Mapping[str, str]) -> StreamOptions:
        """Return the value of Spark's options. Raises InvalidValue."""
        check_given(options, ("topic", "session", "stores"), "streams")
        session = options["session"]
        if not re.fullmatch(r"0x[0-9a-fA-F]{1,16}|[0-9]{1,20}", session):
            raise InvalidValue(f"option 'session' is a number, not {session!r}")
        counts = {name: options.get(name, "1") for name in ("batch", "partitions")}
        if not all(re.fullmatch(r"[1-9][0-9]{0,8}", one) for one in counts.values()):
            raise InvalidValue("options 'batch' and 'partitions' are whole numbers above 0")
        fails = options.get("failOnDataLoss", "true").lower()
        if fails not in {"true", "false"}:
            raise InvalidValue("option 'failOnDataLoss' is true or false")
        return cls(
            topic=options["topic"],
            session=int(session, 0),
            stores=options["stores"],
            name=options.get("name", ""),
            fails=fails == "true",
            certificates=_certificates(options),
            **{name: int(options[name]) for name in counts if name in options},
        )

    @property
    def who(self) -> Who:
        """The receiver that the query is for stores: the same at each start."""
        named = hashlib.sha256(f"spark {self.name}".encode()).digest()
        own = int.from_bytes(named[:8], "little") or 1
        return Who(
            topic=self.topic,
            source=self.session,
            session=own,
            key=key_of(0, own),
            known=listed(self.stores),
        )


def _certificates(options: Mapping[str, str]) -> Certificates | None:
    given = {name: Path(options[name]) for name in _FILES if name in options}
    if not given:
        return None
    check_given(options, _FILES, "streams")
    return Certificates(**given)


@dataclass
class Slice(InputPartition):
    """Numbers `begin` to before `end`. is_first: no message was read before them."""

    stream: int
    begin: int
    end: int
    stores: tuple[str, ...]
    is_first: bool


class OnceqStreamSource(DataSource):
    """The stable messages of a stream."""

    @classmethod
    def name(cls) -> str:
        """The name for `format(...)`."""
        return "onceq-stream"

    def schema(self) -> str:
        """The columns of a message."""
        return STREAM_SCHEMA

    def reader(self, schema: StructType) -> DataSourceReader:  # noqa: ARG002 - Spark's signature
        """The reader of all that is stable now."""
        return StreamTableReader(StreamOptions.from_spark(self.options))

    def streamReader(self, schema: StructType) -> StreamQueryReader:  # noqa: N802, ARG002 - Spark's signature
        """The reader of this query, in the process where Spark plans it."""
        say_no_hanging_up()
        return StreamQueryReader(StreamOptions.from_spark(self.options))


class Stores:
    """Asks the stores of a stream, from processes that have no loop."""

    def __init__(self, options: StreamOptions) -> None:
        self.options = options

    def run(self, program: Program[T]) -> T:
        """Run a Program, on connections of its own."""

        async def run() -> T:
            async with Reading(self.options.certificates) as reading:
                return await reading.run(program)

        return asyncio.run(run())

    def found(self, tries: int) -> Position | None:
        """Find the stream; None: too few stores have answered, each time."""
        for _ in range(tries):
            found = self.run(place(self.options.who, _ASK_S))
            if found is not None:
                return found
            threading.Event().wait(_IDLE_S)
        return None

    def surely_found(self) -> Position:
        """Find the stream. Raises IllegalState if too few stores answer for too long."""
        found = self.found(_TRIES)
        if found is None:
            raise IllegalState(
                f"too few stores of topic {self.options.topic!r} answer, or have it:"
                f" {self.options.stores}; start them"
            )
        return found

    def slices(self, found: Position, begin: int, end: int, *, is_first: bool) -> list[Slice]:
        """Cut numbers into slices."""
        stores = sorted({store for one in found.lists for store in one.stores})
        count = max(1, min(self.options.partitions, (end - begin) // _PER_SLICE))
        cuts = [begin + (end - begin) * n // count for n in range(count + 1)]
        return [
            Slice(found.stream, low, high, (*stores,), is_first and low == begin)
            for low, high in itertools.pairwise(cuts)
            if low < high
        ]

    def read(self, partition: InputPartition) -> Iterator[RecordBatch]:
        """Read a slice. Raises DataLost."""
        if not isinstance(partition, Slice):
            raise IllegalState(f"{type(partition).__name__} is no partition of this source")
        asked = Asked(
            stream=partition.stream,
            begin=partition.begin,
            end=partition.end,
            stores=partition.stores,
        )
        with asyncio.Runner() as runner:
            reading = Reading(self.options.certificates)
            try:
                while asked.begin < asked.end:
                    pieces = runner.run(reading.run(read_some(asked)))
                    for piece in pieces:
                        self._refuse_lost(piece, partition)
                        if piece.bodies is not None:
                            yield _batch(partition.stream, piece)
                    asked = replace(asked, begin=pieces[-1].end)
            finally:
                runner.run(reading.__aexit__())

    def _refuse_lost(self, piece: Piece, of: Slice) -> None:
        is_new = of.is_first and piece.begin == of.begin
        if piece.why != LOST_PIECE or is_new or not self.options.fails:
            return
        raise DataLost(
            f"no store has numbers {piece.begin} to {piece.end - 1} of topic"
            f" {self.options.topic!r} any more: to go on without them, say failOnDataLoss=false",
            first=piece.begin,
            last=piece.end - 1,
            why=piece.why,
        )


def _batch(stream: int, piece: Piece) -> RecordBatch:
    bodies = piece.bodies or ()
    count = len(bodies)
    numbers = range(piece.begin, piece.end)
    return batch_of(([hexed(stream)] * count, [piece.epoch] * count, numbers, bodies), _ARROW)


class StreamTableReader(DataSourceReader):
    """Reads all that is stable when it is planned."""

    def __init__(self, options: StreamOptions) -> None:
        self._stores = Stores(options)

    def partitions(self) -> Sequence[InputPartition]:
        """Cut it into slices."""
        found = self._stores.surely_found()
        return self._stores.slices(found, found.begin, found.stable, is_first=True)

    def read(self, partition: InputPartition) -> Iterator[RecordBatch]:
        """Read a slice."""
        return self._stores.read(partition)


class StreamQueryReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Plans micro-batches by what is stable, and acknowledges them."""

    def __init__(self, options: StreamOptions) -> None:
        self.options = options
        self.bound: int | None = None
        self._stores = Stores(options)
        self._registration: Registration | None = None

    def initialOffset(self) -> Offset:  # noqa: N802 - Spark's name
        """Return the offset before all messages; always the same."""
        return {}

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802 - Spark's name
        """At most the batch's messages."""
        return ReadMaxRows(self.options.batch)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 - Spark's name
        """From now on take only what is stable now."""
        self.bound = self._stores.surely_found().stable

    def latestOffset(self, start: Offset, limit: ReadLimit) -> Offset:  # noqa: N802 - Spark's name
        """Return how far the next batch goes. Raises StreamReplaced."""
        found = self._stores.found(1)
        if found is None:
            return self._idle(start)
        at = _position(start)
        refuse_replaced(self.options.name or "this query", at, found)
        self._register(found, at.number)
        stable = found.stable if self.bound is None else min(found.stable, self.bound)
        most = limit.max_rows if isinstance(limit, ReadMaxRows) else self.options.batch
        end = min(stable, _first(start, found) + most)
        if end <= at.number:
            return self._idle(start)
        return {hexed(found.stream): [epoch_at(found.firsts, end - 1), end]}

    def _idle(self, start: Offset) -> Offset:
        """Wait a little: Spark would ask 90 times a second."""
        if self.bound is None:
            threading.Event().wait(_IDLE_S)
        return start

    def partitions(self, start: Offset, end: Offset) -> Sequence[InputPartition]:
        """Cut a batch into slices. Raises StreamReplaced, before anything is read."""
        found = self._stores.surely_found()
        refuse_replaced(self.options.name or "this query", _position(end), found)
        begin = _first(start, found)
        return self._stores.slices(found, begin, _position(end).number, is_first=not start)

    def read(self, partition: InputPartition) -> Iterator[RecordBatch]:
        """Read a slice. Raises DataLost."""
        return self._stores.read(partition)

    def _register(self, found: Position, begin: int) -> None:
        """Have stores keep what the query has not read, if it has a name."""
        if self.options.name and self._registration is None:
            chosen = min(begin, found.shown.high + 1)
            self._registration = self._stores.run(
                register(self.options.who, found, _ASK_S, lambda _: chosen)
            )

    def commit(self, end: Offset) -> None:
        """Acknowledge what is not read again. Stores that do not hear it keep a little more."""
        registration = self._registration
        if registration is None:
            return
        found = registration.position
        core = Delivering(found.stream, registration.begin, found.lists, is_stable_only=True)
        one = Acknowledging(self.options.who, registration)
        self._stores.run(acknowledge_all(one, core, _position(end).number, _ASK_S))

    def stop(self) -> None:
        """Nothing stays open between two calls."""


def _first(start: Offset, found: Position) -> int:
    """Return the first number behind an offset: what stores gave up before the first, is none."""
    return _position(start).number if start else found.begin


def _position(offset: Offset) -> StreamPosition:
    """Return an offset as the position that it is."""
    for stream, (epoch, number) in offset.items():
        return StreamPosition(life=0, stream=stream, epoch=epoch, number=number)
    return StreamPosition(life=0, stream=None, epoch=0, number=0)
