"""The data source `onceq-stream`: each stable message is in a batch once, and a gap is told."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from onceq.errors import InvalidValue
from onceq.spark.streams import (
    OnceqStreamSource,
    Slice,
    StreamOptions,
    StreamQueryReader,
    StreamTableReader,
)
from onceq.streams.bridge.moving import hexed
from onceq.streams.bridge.reading import LOST_PIECE, VOID_PIECE, Piece
from onceq.streams.errors import DataLost, StreamReplaced
from tests.spark.town import Town, town
from tests.streams.source.running import SESSION, TOPIC, S, texts

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture
def there() -> Iterator[Town]:
    with town() as made:
        yield made


def options(there: Town, **given: str) -> dict[str, str]:
    return {"topic": TOPIC, "session": str(SESSION), "stores": there.addresses, **given}


def bodies(reader: StreamTableReader | StreamQueryReader, slices: Any) -> list[bytes]:
    found = [batch for one in slices for batch in reader.read(one)]
    return [body for batch in found for body in batch.to_pydict()["body"]]


def positions(there: Town) -> list[int]:
    """What stores have noted of the one receiver."""
    held = [store.catalogue.of(S) for store in there.stores.stores.values()]
    return [max(one.positions.values(), default=-1) for one in held]


def test_batches_go_on_where_the_one_before_ended_and_are_acknowledged(there: Town) -> None:
    given = options(there, name="query", batch="1500", partitions="2")
    reader = StreamQueryReader(StreamOptions.from_spark(given))
    limit = reader.getDefaultReadLimit()
    start = reader.initialOffset()
    there.send(2_500)
    first = reader.latestOffset(start, limit)
    assert first == {hexed(S): [there.source._core.epoch, 1_500]}
    assert bodies(reader, reader.partitions(start, first)) == texts(1_500)
    second = reader.latestOffset(first, limit)
    assert positions(there) == [0] * 3, "it is registered, and has acknowledged nothing"
    reader.commit(first)
    assert positions(there) == [1_500] * 3
    again = StreamQueryReader(StreamOptions.from_spark(given))
    assert bodies(again, again.partitions(first, second)) == texts(1_000, 1_500)
    assert again.latestOffset(second, limit) == second, "there is nothing more"


def test_available_now_ends_where_it_began(there: Town) -> None:
    there.send(5)
    reader = StreamQueryReader(StreamOptions.from_spark(options(there)))
    reader.prepareForTriggerAvailableNow()
    there.send(5, 5)
    end = reader.latestOffset({}, reader.getDefaultReadLimit())
    assert bodies(reader, reader.partitions({}, end)) == texts(5)
    assert positions(there) == [-1] * 3, "without a name it is registered nowhere"


def test_another_stream_is_refused_when_it_is_planned(there: Town) -> None:
    there.send(5)
    reader = StreamQueryReader(StreamOptions.from_spark(options(there)))
    limit = reader.getDefaultReadLimit()
    others: tuple[dict[str, list[int]], ...] = (
        {hexed(S + 1): [5, 3]},
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
    its = Slice(S, 5, 9, (), is_first=False)
    refuse(void, its)
    refuse(lost, Slice(S, 5, 9, (), is_first=True))
    if fails == "false":
        refuse(lost, its)
    else:
        with pytest.raises(DataLost, match="failOnDataLoss"):
            refuse(lost, its)


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
