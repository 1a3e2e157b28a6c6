"""The data source `onceq-stream`: each stable message is in a batch once, and a gap is told."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from msgspec.structs import replace

from onceq.errors import InvalidValue
from onceq.spark.follow import stores as asking
from onceq.spark.follow.options import StreamOptions
from onceq.spark.follow.stores import Slice
from onceq.spark.streams import Offset, OnceqStreamSource, StreamQueryReader, StreamTableReader
from onceq.streams.bridge.epochs import Epochs
from onceq.streams.bridge.moving import hexed
from onceq.streams.bridge.reading import LOST_PIECE, VOID_PIECE, Piece
from onceq.streams.errors import DataLost, StreamReplaced
from onceq.streams.net.asker import Peer
from tests.spark.town import Town, town
from tests.streams.net.daemons import soon
from tests.streams.source.running import (
    SESSION,
    SMALL_PARTS,
    TOPIC,
    S,
    cut_short,
    is_settled,
    large,
    source,
    texts,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture
def there() -> Iterator[Town]:
    with town() as made:
        yield made


@pytest.fixture
def parted() -> Iterator[Town]:
    """A town whose messages take a number for each ten bytes."""
    with town(policy=SMALL_PARTS) as made:
        yield made


@pytest.fixture
def asked() -> Iterator[list[StreamQueryReader]]:
    """Readers that are stopped at the end."""
    made: list[StreamQueryReader] = []
    yield made
    for one in made:
        one.stop()


def options(there: Town, **given: str) -> dict[str, str]:
    return {"topic": TOPIC, "session": str(SESSION), "stores": there.addresses, **given}


def query(asked: list[StreamQueryReader], given: dict[str, str]) -> StreamQueryReader:
    made = StreamQueryReader(StreamOptions.from_spark(given))
    asked.append(made)
    return made


def bodies(reader: StreamTableReader | StreamQueryReader, slices: Any) -> list[bytes]:
    found = [batch for one in slices for batch in reader.read(one)]
    return [body for batch in found for body in batch.to_pydict()["body"]]


def positions(there: Town) -> list[int]:
    """What stores have noted of the one receiver."""
    held = [store.catalogue.of(S) for store in there.stores.stores.values()]
    return [max(one.positions.values(), default=-1) for one in held]


def test_batches_go_on_where_the_one_before_ended_and_are_acknowledged(
    there: Town, asked: list[StreamQueryReader]
) -> None:
    given = options(there, name="query", batch="1500", partitions="2")
    reader = query(asked, given)
    limit = reader.getDefaultReadLimit()
    start = reader.initialOffset()
    there.send(2_500)
    first = moved(reader, start)
    assert first == {hexed(S): [there.source._core.epoch, 1_500]}
    assert bodies(reader, reader.partitions(start, first)) == texts(1_500)
    second = moved(reader, first)
    assert positions(there) == [0] * 3, "it is registered, and has acknowledged nothing"
    reader.commit(first)
    assert positions(there) == [1_500] * 3
    again = query(asked, given)
    assert bodies(again, again.partitions(first, second)) == texts(1_000, 1_500)
    assert again.latestOffset(second, limit) == second, "there is nothing more"


def test_available_now_ends_where_it_began(there: Town, asked: list[StreamQueryReader]) -> None:
    there.send(5)
    reader = query(asked, options(there))
    reader.prepareForTriggerAvailableNow()
    there.send(5, 5)
    end = moved(reader, {})
    assert bodies(reader, reader.partitions({}, end)) == texts(5)
    assert positions(there) == [-1] * 3, "without a name it is registered nowhere"


def test_another_stream_is_refused_when_it_is_planned(
    there: Town, asked: list[StreamQueryReader]
) -> None:
    there.send(5)
    reader = query(asked, options(there))
    limit = reader.getDefaultReadLimit()
    others: tuple[dict[str, list[int]], ...] = (
        {hexed(S + 1): [there.source._core.epoch, 3]},
        {hexed(S): [there.source._core.epoch, 6]},
        {hexed(S): [there.source._core.epoch - 1, 3]},
    )
    for other in others:
        with pytest.raises(StreamReplaced):
            reader.latestOffset(other, limit)
        with pytest.raises(StreamReplaced):
            reader.partitions({}, other)


@pytest.mark.parametrize("fails", ["true", "false"])
def test_a_gap_is_an_error_unless_it_is_to_go_on(there: Town, fails: str) -> None:
    reader = StreamTableReader(StreamOptions.from_spark(options(there, failOnDataLoss=fails)))
    lost = Piece(epoch=0, begin=5, end=7, bodies=None, why=LOST_PIECE)
    void = Piece(epoch=3, begin=5, end=7, bodies=None, why=VOID_PIECE)
    refuse = reader._stores._refuse_lost
    epochs = Epochs(firsts=((3, 0),))
    its = Slice(S, 5, 9, (), is_first=False, epochs=epochs)
    accepted = replace(void, why=LOST_PIECE)
    refuse(void, its)
    refuse(lost, Slice(S, 5, 9, (), is_first=True, epochs=epochs))
    if fails == "false":
        refuse(lost, its)
    else:
        with pytest.raises(DataLost, match="failOnDataLoss"):
            refuse(lost, its)
        with pytest.raises(DataLost, match="accepted"):
            refuse(accepted, Slice(S, 5, 9, (), is_first=True, epochs=epochs))


BODIES = [large(n, parts) for n, parts in enumerate([1, 4, 1, 1, 5, 2, 1])]


def moved(reader: StreamQueryReader, start: Offset) -> Offset:
    """Return the end of the next batch, as soon as stores tell that there is one."""
    end = start
    while end == start:
        end = reader.latestOffset(start, reader.getDefaultReadLimit())
    return end


def batches(reader: StreamQueryReader, start: Offset, until: int) -> Iterator[list[bytes]]:
    """Yield what is in each batch, up to a number, and commit it."""
    while not start or start[hexed(S)][1] < until:
        end = moved(reader, start)
        yield bodies(reader, reader.partitions(start, end))
        reader.commit(end)
        start = end


@pytest.mark.parametrize("batch", [1, 2, 3, 5, 50])
@pytest.mark.parametrize("partitions", ["1", "3"])
def test_a_message_of_several_numbers_is_one_row_of_one_batch(
    parted: Town,
    asked: list[StreamQueryReader],
    monkeypatch: pytest.MonkeyPatch,
    batch: int,
    partitions: str,
) -> None:
    """Also if two batches, or two tasks, have its numbers."""
    monkeypatch.setattr(asking, "_PER_SLICE", 1)
    given = options(parted, name="query", batch=str(batch), partitions=partitions)
    parted.send_these(BODIES)
    reader = query(asked, given)
    assert [body for found in batches(reader, {}, 15) for body in found] == BODIES
    assert positions(parted) == [15] * 3
    table = StreamTableReader(StreamOptions.from_spark(given))
    assert bodies(table, table.partitions()) == BODIES


def test_a_row_has_the_last_number_of_its_message(parted: Town) -> None:
    parted.send_these(BODIES)
    table = StreamTableReader(StreamOptions.from_spark(options(parted)))
    (one,) = table.partitions()
    rows = [row for batch in table.read(one) for row in batch.to_pylist()]
    assert [row["number"] for row in rows] == [0, 4, 5, 6, 11, 13, 14]
    assert {row["stream"] for row in rows} == {hexed(S)}


@pytest.mark.parametrize("is_bound", [False, True])
def test_a_batch_ends_before_a_message_that_is_not_whole(
    parted: Town, asked: list[StreamQueryReader], monkeypatch: pytest.MonkeyPatch, *, is_bound: bool
) -> None:
    """It is left out when a later life of the source sends: nobody was told that it is stable."""
    parted.send_these(BODIES[:2])
    cut_short(monkeypatch, 3)
    parted.send_these([large(9, 5)])
    monkeypatch.undo()
    reader = query(asked, options(parted, name="query"))
    if is_bound:
        reader.prepareForTriggerAvailableNow()
    limit = reader.getDefaultReadLimit()
    end = moved(reader, {})
    assert end[hexed(S)][1] == 5
    assert bodies(reader, reader.partitions({}, end)) == BODIES[:2]
    reader.commit(end)
    assert positions(parted) == [5] * 3
    assert reader.latestOffset(end, limit) == end
    if is_bound:
        return

    async def another_life() -> None:
        async with source(parted.stores.listed(), policy=SMALL_PARTS) as one:
            await one.wait_registered(60.0)
            one.send(BODIES[4])
            await one.wait_stable(60.0)

    parted.run(another_life())
    assert [body for found in batches(reader, end, 13) for body in found] == [BODIES[4]]


def test_it_follows_lists_that_change(there: Town, asked: list[StreamQueryReader]) -> None:
    """Until no store is left of those that it was told of."""
    reader = query(asked, options(there, name="query"))
    limit = reader.getDefaultReadLimit()
    there.send(10)
    first = moved(reader, {})
    assert bodies(reader, reader.partitions({}, first)) == texts(10)

    async def change(left: str, names: str) -> None:
        if names[-1] not in there.stores.stores:
            await there.stores.start(names[-1])
        own = there.stores.listed(names)
        there.source.want(own)
        await soon(lambda: is_settled(there.source) and there.source._core.needed == (own,))
        await there.stores.end(left)
        del there.stores.stores[left]

    for left, names in (("a", "bcd"), ("b", "cde"), ("c", "def")):
        there.run(change(left, names))
        assert reader.latestOffset(first, limit) == first
    there.send(10, 10)
    second = moved(reader, first)
    assert bodies(reader, reader.partitions(first, second)) == texts(10, 10)
    reader.commit(second)
    assert positions(there) == [20] * 3


def test_a_query_that_is_idle_keeps_its_links(
    there: Town, asked: list[StreamQueryReader], monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[str] = []
    make = Peer._make

    async def counted(peer: Peer) -> None:
        made.append(peer.store)
        await make(peer)

    monkeypatch.setattr(Peer, "_make", counted)
    reader = query(asked, options(there, name="query"))
    there.send(5)
    made.clear()  # those of the source
    end = moved(reader, {})
    for _ in range(5):
        assert reader.latestOffset(end, reader.getDefaultReadLimit()) == end
    assert sorted(made) == sorted(there.addresses.split())
    again = pickle.loads(pickle.dumps(reader))
    assert again._stores._known == tuple(sorted(there.addresses.split()))


def test_options_that_cannot_be_are_refused(there: Town) -> None:
    good = options(there)
    assert StreamOptions.from_spark({**good, "session": "0x7E1"}).session == 0x7E1
    for wrong in (
        {"session": "mine"},
        {"batch": "0"},
        {"partitions": "many"},
        {"failOnDataLoss": "perhaps"},
        {"certificate": "a.pem"},
    ):
        with pytest.raises(InvalidValue):
            StreamOptions.from_spark({**good, **wrong})
    for name in ("topic", "session", "stores"):
        with pytest.raises(InvalidValue, match=name):
            StreamOptions.from_spark({key: one for key, one in good.items() if key != name})


def test_spark_reads_a_stream_and_goes_on_from_its_checkpoint(
    spark: SparkSession, there: Town, tmp_path: Path
) -> None:
    spark.dataSource.register(OnceqStreamSource)
    given = options(there, name="copy")

    def copy() -> None:
        stream = spark.readStream.format("onceq-stream").options(**given).load()
        query = (
            stream.writeStream.format("parquet")
            .option("path", str(tmp_path / "copy"))
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()

    there.send(300)
    copy()
    there.send(200, 300)
    copy()
    rows = spark.read.parquet(str(tmp_path / "copy")).orderBy("number").collect()
    assert [bytes(row.body) for row in rows] == texts(500)
    assert [row.number for row in rows] == [*range(500)]
    table = spark.read.format("onceq-stream").options(**given).load()
    assert table.count() == 500
