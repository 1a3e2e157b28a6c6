"""A loss that a person accepted, as Spark is told of it: what was lost is in no batch."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.errors import PySparkException, StreamingQueryException

from onceq import streams
from onceq.errors import IllegalState
from onceq.spark.follow import stores as asking_stores
from onceq.spark.follow.options import StreamOptions
from onceq.spark.follow.stores import Slice
from onceq.spark.streams import Offset, OnceqStreamSource, StreamQueryReader, StreamTableReader
from onceq.streams import logged
from onceq.streams.bridge import waiting
from onceq.streams.bridge.epochs import Epochs, find
from onceq.streams.bridge.moving import hexed
from onceq.streams.bridge.reading import LOST_PIECE, Piece
from onceq.streams.model.fragments import CONTINUED
from tests.events import emits
from tests.streams.api.losing import lose, split, texts
from tests.streams.api.towns import RAW, SENDER, Town, town
from tests.streams.source.running import cut_short

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

    from pyspark.sql import SparkSession
    from pyspark.sql.datasource import InputPartition

    from tests.events import Events


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


@pytest.fixture
def had(there: Town, asked: list[StreamQueryReader], monkeypatch: pytest.MonkeyPatch) -> Offset:
    """What a query had of stores that are down now, while b and c are back.

    Those are a majority, of a former epoch, with other messages under the same numbers.
    """
    monkeypatch.setattr(asking_stores, "_TRIES", 3)
    monkeypatch.setattr(waiting, "FIRST_S", 0.0)
    lost(there, below=3, then=(b"other", b"others"))
    end = moved(query(asked, there, "ad", "true"), {})
    there.end("ad")
    return end


def former(there: Town, had: Offset, name: str) -> str:
    """What is said of a store that was given up."""
    ((epoch, _),) = had.values()
    (held,) = there.cluster.stores[name].catalogue.streams.values()
    return f"it is in epoch {held.admitted}, and {epoch} or a later one is expected"


def at(stream: Offset, number: int) -> Offset:
    return {name: [epoch, number] for name, (epoch, _) in stream.items()}


@emits(logged.BridgeLacksStore)
def test_a_query_waits_for_others_than_stores_of_a_former_epoch_and_says_so(
    there: Town, asked: list[StreamQueryReader], had: Offset, events: Events
) -> None:
    reader = query(asked, there, "bc", "true")
    start = at(had, 4)
    assert reader.latestOffset(start, reader.getDefaultReadLimit()) == start
    told = {one["store"]: one for one in events.of(logged.BridgeLacksStore)}
    assert told.keys() == {*there.at("abc").split()}, "b and c know of a, and not of d"
    for name in "bc":
        one = told[there.at(name)]
        assert (one["bridge"], one["topic"]) == ("onceq-stream", RAW.name)
        assert former(there, had, name) in one["why"]
    assert told[there.at("a")]["why"] == "it does not answer"
    there.start("ad")
    assert moved(reader, start) == at(had, 5)


def test_a_batch_that_is_planned_again_waits_for_others_than_stores_of_a_former_epoch(
    there: Town,
    asked: list[StreamQueryReader],
    had: Offset,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with pytest.raises(IllegalState, match="Start those") as raised:
        query(asked, there, "bc", "true").partitions({}, had)
    assert f"{there.at('b')}: {former(there, had, 'b')}" in str(raised.value)
    found: list[int] = []

    def then_others(*given: Any) -> Any:
        if found:
            there.start("ad")
        found.append(0)
        return find(*given)

    monkeypatch.setattr(asking_stores, "find", then_others)
    reader = query(asked, there, "bc", "true")
    assert bodies(reader, reader.partitions({}, had)) == [*texts(3), b"other", b"others"]
    assert len(found) == 2


def test_available_now_does_not_end_well_on_stores_of_a_former_epoch(
    there: Town, asked: list[StreamQueryReader], had: Offset
) -> None:
    """Nor does it go by what those told of the end, when others are there again."""
    reader = query(asked, there, "bc", "true")
    reader.prepareForTriggerAvailableNow()
    limit = reader.getDefaultReadLimit()
    for number in (4, 5):
        with pytest.raises(IllegalState) as raised:
            reader.latestOffset(at(had, number), limit)
        assert former(there, had, "b") in str(raised.value)
    there.start("ad")
    assert reader.latestOffset(at(had, 4), limit) == at(had, 5)
    assert reader.latestOffset(at(had, 5), limit) == at(had, 5)


def test_available_now_does_not_end_well_when_too_few_stores_answer(
    there: Town, asked: list[StreamQueryReader], had: Offset
) -> None:
    there.start("ad")
    reader = query(asked, there, "ad", "true")
    reader.prepareForTriggerAvailableNow()
    there.end("ad")
    with pytest.raises(IllegalState, match="it does not answer"):
        reader.latestOffset(at(had, 4), reader.getDefaultReadLimit())


@emits(logged.BridgeLacksStore)
def test_a_task_that_waits_says_for_which_stores(there: Town, had: Offset, events: Events) -> None:
    there.start("ad")
    reader = table(there, "ad")
    slices = reader.partitions()
    assert bodies(reader, asking(there, "b", slices)) == [*texts(3), b"other", b"others"]
    (one,) = events.of(logged.BridgeLacksStore)
    assert one["store"] == there.at("b")
    ((epoch, _),) = had.values()
    assert f"does not know of the loss that was accepted in epoch {epoch}" in one["why"]


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


def test_a_query_of_spark_that_reaches_only_stores_of_a_former_epoch_does_not_end_well(
    spark: SparkSession, there: Town, tmp_path: Path
) -> None:
    spark.dataSource.register(OnceqStreamSource)
    lost(there, below=3, then=(b"other", b"others"))

    def copy(names: str) -> None:
        given = options(there, names, "true")
        stream = spark.readStream.format("onceq-stream").options(**given).load()
        query = (
            stream.writeStream.format("parquet")
            .option("path", str(tmp_path / "copy"))
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()

    copy("ad")
    there.end("ad")
    with pytest.raises(StreamingQueryException, match=r"or a later one is expected"):
        copy("bc")
    there.start("ad")
    copy("bc")
    rows = spark.read.parquet(str(tmp_path / "copy")).orderBy("number").collect()
    assert [bytes(row.body) for row in rows] == [*texts(3), b"other", b"others"]


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
