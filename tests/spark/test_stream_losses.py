"""A loss that a person accepted, as Spark is told of it: what was lost is in no batch."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.errors import PySparkException, StreamingQueryException

from onceq import streams
from onceq.spark.follow.options import StreamOptions
from onceq.spark.follow.stores import Slice
from onceq.spark.streams import Offset, OnceqStreamSource, StreamQueryReader, StreamTableReader
from onceq.streams.bridge.epochs import Epochs
from onceq.streams.bridge.moving import hexed
from onceq.streams.bridge.reading import LOST_PIECE, Piece
from onceq.streams.model.fragments import CONTINUED
from tests.streams.api.losing import lose, split, texts
from tests.streams.api.towns import RAW, SENDER, Town, town
from tests.streams.source.running import cut_short

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

    from pyspark.sql import SparkSession
    from pyspark.sql.datasource import InputPartition


@pytest.fixture
def there(tmp_path: Path) -> Iterator[Town]:
    """Stores that were split, and have not lost anything yet."""
    with town(tmp_path / "stores", names="abcd") as made:
        with streams.open(session_id=SENDER) as context:
            split(made, context)
        yield made


def lost(there: Town, **given: Any) -> None:
    with streams.open(session_id=SENDER) as context:
        lose(there, context, **given)


def options(there: Town, names: str, fails: str) -> dict[str, str]:
    own = {"topic": RAW.name, "session": str(SENDER), "failOnDataLoss": fails}
    return {**own, "stores": there.at(names)}


def table(there: Town, names: str, fails: str = "true") -> StreamTableReader:
    return StreamTableReader(StreamOptions.from_spark(options(there, names, fails)))


def asking(there: Town, names: str, slices: Iterable[InputPartition]) -> list[Slice]:
    """Slices whose stores are asked in this order."""
    stores = tuple(there.at(name) for name in names)
    return [replace(one, stores=stores) for one in slices if isinstance(one, Slice)]


def bodies(reader: StreamTableReader | StreamQueryReader, slices: Any) -> list[bytes]:
    found = [batch for one in slices for batch in reader.read(one)]
    return [body for batch in found for body in batch.to_pydict()["body"]]


def test_a_task_does_not_believe_a_store_that_is_back_with_what_was_lost(there: Town) -> None:
    lost(there)
    reader = table(there, "ad", "false")
    assert bodies(reader, asking(there, "bad", reader.partitions())) == [*texts(3), b"6"]
    fails = table(there, "ad")
    with pytest.raises(streams.DataLost, match=r"accepted.*failOnDataLoss") as raised:
        bodies(fails, asking(there, "bad", fails.partitions()))
    error = raised.value
    assert (error.first, error.last, error.why) == (3, 5, "lost")


def test_a_message_whose_rest_is_lost_is_a_loss_too(
    there: Town, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also if the rest lies behind the slice that it belongs to."""
    stores, epochs = table(there, "ad")._stores, Epochs(firsts=((1, 0), (4, 3)))
    begun = Piece(epoch=1, begin=2, end=3, bodies=(b"begun",), flags=CONTINUED)
    rest = Piece(epoch=4, begin=3, end=6, bodies=None, why=LOST_PIECE)
    monkeypatch.setattr(stores, "_pieces", lambda *_: iter([begun, rest]))
    with pytest.raises(streams.DataLost, match="3 to 5"):
        list(stores.read(Slice(7, 2, 3, (), is_first=False, epochs=epochs)))


def test_a_task_that_was_planned_before_takes_nothing_of_what_is_lost_since(there: Town) -> None:
    there.start("bc")
    reader = table(there, "abc", "false")
    slices = reader.partitions()
    assert bodies(reader, slices) == texts(6)
    there.end("bc")
    lost(there)
    with pytest.raises(streams.StreamReplaced, match="accepted while"):
        bodies(reader, asking(there, "ab", slices))
    before = [replace(one, end=3) for one in asking(there, "ab", slices)]
    assert bodies(reader, before) == texts(3)


@pytest.fixture
def asked() -> Iterator[list[StreamQueryReader]]:
    """Readers that are stopped at the end."""
    made: list[StreamQueryReader] = []
    yield made
    for one in made:
        one.stop()


def query(asked: list[StreamQueryReader], there: Town, names: str, fails: str) -> StreamQueryReader:
    made = StreamQueryReader(StreamOptions.from_spark(options(there, names, fails)))
    asked.append(made)
    return made


def moved(reader: StreamQueryReader, start: Offset) -> Offset:
    """Return the end of the next batch, as soon as stores tell that there is one."""
    end = start
    while end == start:
        end = reader.latestOffset(start, reader.getDefaultReadLimit())
    return end


@pytest.mark.parametrize("fails", ["true", "false"])
def test_a_query_ends_at_what_is_lost_unless_it_is_to_go_on(
    there: Town, asked: list[StreamQueryReader], fails: str
) -> None:
    (stream,) = there.cluster.stores["a"].catalogue.streams
    held = there.cluster.stores["a"].catalogue.of(stream)
    reader = query(asked, there, "ad", fails)
    start = {hexed(stream): [held.admitted, 3]}
    lost(there)
    end = moved(reader, start)
    assert end[hexed(stream)][1] == 7
    slices = reader.partitions(start, end)
    if fails == "false":
        assert bodies(reader, slices) == [b"6"]
        return
    with pytest.raises(streams.DataLost) as raised:
        bodies(reader, slices)
    assert raised.value.why == "lost"


def test_a_query_that_has_had_what_is_lost_is_of_another_stream(
    there: Town, asked: list[StreamQueryReader]
) -> None:
    there.start("bc")
    reader = query(asked, there, "abc", "false")
    end = moved(reader, {})
    there.end("bc")
    lost(there)
    with pytest.raises(streams.StreamReplaced):
        moved(reader, end)


def test_stores_that_show_what_was_lost_are_not_a_stream_to_go_on_with(
    there: Town, asked: list[StreamQueryReader]
) -> None:
    """b and c are a majority, of a former epoch, with other messages under the same numbers."""
    lost(there, below=3, then=(b"other", b"others"))
    end = moved(query(asked, there, "ad", "true"), {})
    there.end("ad")
    reader = query(asked, there, "bc", "true")
    assert reader.latestOffset(end, reader.getDefaultReadLimit()) == end
    with pytest.raises(streams.StreamReplaced, match="in epoch"):
        reader.partitions({}, end)
    there.start("ad")
    assert bodies(reader, reader.partitions({}, end)) == [*texts(3), b"other", b"others"]


def test_what_was_found_of_the_end_is_found_again_when_it_is_lost(
    there: Town, asked: list[StreamQueryReader], monkeypatch: pytest.MonkeyPatch
) -> None:
    """There are as many numbers as before, and the last two of them are no whole message."""
    there.start("bc")
    reader = query(asked, there, "abc", "true")
    (end,) = moved(reader, {}).values()
    assert end[1] == 6
    there.end("bc")
    cut_short(monkeypatch, 2)
    lost(there, below=3, then=(b"other", b"of three parts, not two"))
    (end,) = moved(reader, {}).values()
    assert end[1] == 4


def test_spark_ends_with_a_loss_or_goes_on_without(
    spark: SparkSession, there: Town, tmp_path: Path
) -> None:
    spark.dataSource.register(OnceqStreamSource)
    lost(there)

    def copy(fails: str) -> None:
        given = options(there, "ad", fails)
        stream = spark.readStream.format("onceq-stream").options(**given).load()
        query = (
            stream.writeStream.format("parquet")
            .option("path", str(tmp_path / "copy"))
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()

    def read(fails: str) -> list[bytes]:
        given = options(there, "ad", fails)
        rows = spark.read.format("onceq-stream").options(**given).load().orderBy("number")
        return [bytes(row.body) for row in rows.collect()]

    with pytest.raises(PySparkException, match=r"DataLost.* 3 to 5 .*accepted"):
        read("true")
    assert read("false") == [*texts(3), b"6"]
    with pytest.raises(StreamingQueryException, match=r"DataLost"):
        copy("true")
    copy("false")
    rows = spark.read.parquet(str(tmp_path / "copy")).orderBy("number").collect()
    assert [row.number for row in rows] == [0, 1, 2, 6]
