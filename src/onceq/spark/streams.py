"""The data source `onceq-stream`: the stable messages of a stream, as a stream and as a table.

A program registers it: `spark.dataSource.register(OnceqStreamSource)`. An offset is {ID: [epoch,
number]}: of the stream, and of what lies below it; {} is its beginning. Planning asks stores, and
executors read from them; neither needs a database. What a batch has read is acknowledged when Spark
has noted that it is over. A gap ends the query, unless failOnDataLoss is false.

A message that takes several numbers is a row, under its last one, of the batch that has its first;
a batch ends before one that is not yet whole. Source: spec M11, M38; streams.md 8.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Final

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

from onceq.errors import IllegalState
from onceq.model.stream_ops import StreamPosition
from onceq.spark.arrow import RecordBatch, batch_of, schema_of
from onceq.spark.follow.options import StreamOptions
from onceq.spark.follow.stores import ASK_S, REST_S, Slice, Stores
from onceq.spark.start.hung_up import say_no_hanging_up
from onceq.streams.bridge.epochs import Placed
from onceq.streams.bridge.moving import hexed, refuse_replaced
from onceq.streams.model.log import epoch_at
from onceq.streams.receiver.acknowledging import Acknowledging, acknowledge_all
from onceq.streams.receiver.delivering import Delivering
from onceq.streams.receiver.placing import Position, Registration, register

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

STREAM_SCHEMA: Final = "stream string, epoch bigint, number bigint, body binary"
_ARROW: Final = schema_of(STREAM_SCHEMA)

Offset = dict[str, list[int]]


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


class StreamTableReader(DataSourceReader):
    """Reads all that is stable when it is planned."""

    def __init__(self, options: StreamOptions) -> None:
        self._stores = Stores(options)

    def partitions(self) -> Sequence[InputPartition]:
        """Cut it into slices."""
        with self._stores as stores:
            found, end = _surely_whole(stores)
            return stores.slices(found, found.begin, end, is_first=True)

    def read(self, partition: InputPartition) -> Iterator[RecordBatch]:
        """Read a slice. Raises DataLost, StreamReplaced."""
        return _read(self._stores, partition)


class StreamQueryReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Plans micro-batches by what is stable, and acknowledges them."""

    def __init__(self, options: StreamOptions) -> None:
        self.options = options
        self.available: tuple[Placed, int] | None = None
        self._stores = Stores(options)
        self._registration: Registration | None = None

    def initialOffset(self) -> Offset:  # noqa: N802 - Spark's name
        """Return the offset before all messages; always the same."""
        return {}

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802 - Spark's name
        """At most the batch's messages."""
        return ReadMaxRows(self.options.batch)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 - Spark's name
        """From now on take only what is stable now. Raises IllegalState: too few stores answer."""
        self.available = _surely_whole(self._stores)

    def latestOffset(self, start: Offset, limit: ReadLimit) -> Offset:  # noqa: N802 - Spark's name
        """Return how far the next batch goes. Raises StreamReplaced.

        Stores of a former epoch than the offset's count as silent. A query waits for others; one
        that would end raises IllegalState: it has not had all.
        """
        at = _position(start)
        found = self._found(at.epoch)
        if found is None:
            return self._idle(start)
        refuse_replaced(self.options.name or "this query", at, found)
        self._register(found, at.number)
        begin = _first(start, found)
        whole = self._whole(found, begin)
        most = limit.max_rows if isinstance(limit, ReadMaxRows) else self.options.batch
        if whole is None or min(whole, begin + most) <= at.number:
            return self._idle(start)
        end = min(whole, begin + most)
        return {hexed(found.stream): [epoch_at(found.firsts, end - 1), end]}

    def _found(self, least: int) -> Placed | None:
        """Find the stream, in an epoch or a later one; None: too few stores have told."""
        if self.available is None:
            return self._stores.found(least=least)
        return self._stores.surely_found(least)

    def _whole(self, found: Placed, begin: int) -> int | None:
        """Return below which number messages may be taken; None: no store has told."""
        if self.available is None:
            return self._stores.whole_below(found, begin)
        if self.available[0].epoch < found.epoch:  # the stores that were asked first were behind
            self.available = _surely_whole(self._stores, found.epoch)
        return self.available[1]

    def _idle(self, start: Offset) -> Offset:
        """Wait a little: Spark would ask 90 times a second."""
        if self.available is None:
            threading.Event().wait(REST_S)
        return start

    def partitions(self, start: Offset, end: Offset) -> Sequence[InputPartition]:
        """Cut a batch into slices, however it was planned before.

        Raises StreamReplaced, before anything is read; IllegalState: too few stores answer.
        """
        to = _position(end)
        found = self._stores.surely_found(to.epoch)
        refuse_replaced(self.options.name or "this query", to, found)
        return self._stores.slices(found, _first(start, found), to.number, is_first=not start)

    def read(self, partition: InputPartition) -> Iterator[RecordBatch]:
        """Read a slice. Raises DataLost, StreamReplaced."""
        return _read(self._stores, partition)

    def _register(self, found: Position, begin: int) -> None:
        """Have stores keep what the query has not read, if it has a name; again if lists change."""
        known = None if self._registration is None else self._registration.position
        if not self.options.name or (known is not None and _is_as(known, found)):
            return
        chosen = min(begin, found.shown.high + 1)
        self._registration = self._stores.run(
            register(self.options.who, found, ASK_S, lambda _: chosen)
        )

    def commit(self, end: Offset) -> None:
        """Acknowledge what is not read again. Stores that do not hear it keep a little more."""
        registration = self._registration
        if registration is None:
            return
        found = registration.position
        core = Delivering(found.stream, registration.begin, found.lists, is_stable_only=True)
        one = Acknowledging(self.options.who, registration)
        self._stores.run(acknowledge_all(one, core, _position(end).number, ASK_S))

    def stop(self) -> None:
        """Close the links to stores."""
        self._stores.close()


def _is_as(known: Position, found: Position) -> bool:
    """Whether a stream was found in the epoch, and with the lists, that are known."""
    return (known.epoch, known.lists) == (found.epoch, found.lists)


def _surely_whole(stores: Stores, least: int = 0) -> tuple[Placed, int]:
    """Find the stream, and below which number, of what is stable, no message is unfinished."""
    while True:
        found = stores.surely_found(least)
        whole = stores.whole_below(found, found.begin)
        if whole is not None:
            return found, whole
        threading.Event().wait(REST_S)


def _read(stores: Stores, partition: InputPartition) -> Iterator[RecordBatch]:
    if not isinstance(partition, Slice):
        raise IllegalState(f"{type(partition).__name__} is no partition of this source")
    stream = hexed(partition.stream)
    with stores.again() as own:
        for piece in own.read(partition):
            bodies = piece.bodies or ()
            columns = [stream] * len(bodies), [piece.epoch] * len(bodies)
            yield batch_of((*columns, range(piece.begin, piece.end), bodies), _ARROW)


def _first(start: Offset, found: Position) -> int:
    """Return the first number behind an offset: what stores gave up before the first, is none."""
    return _position(start).number if start else found.begin


def _position(offset: Offset) -> StreamPosition:
    """Return an offset as the position that it is."""
    for stream, (epoch, number) in offset.items():
        return StreamPosition(life=0, stream=stream, epoch=epoch, number=number)
    return StreamPosition(life=0, stream=None, epoch=0, number=0)
