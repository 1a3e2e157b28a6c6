"""What sources are called at stores: by a number of their own, by one that is given, or a session.

The names are those of UM's examples: ume-example-src-2 has a static RegID, src-3 saves the one that
it was given, rcv-2 makes its own of the source's.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from onceq import streams
from onceq.errors import InvalidValue
from tests.streams.api.towns import RAW, READER, SENDER, WITHIN_S, Heard, Shows, read, soon, town

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from tests.streams.api.towns import Town


@pytest.fixture(scope="module")
def shared() -> Iterator[Town]:
    with town() as stores:
        yield stores


def topic_of(request: pytest.FixtureRequest) -> streams.Topic[bytes]:
    """A stream of the test's own in the stores that all share."""
    return streams.Topic(request.node.name)


def named(stores: Town, regid: int, names: str = "abc") -> str:
    return " ".join(f"{stores.at(name)}/{regid}" for name in names)


def life(
    topic: streams.Topic[bytes], stores: str, count: int
) -> tuple[int, Mapping[str, int], Heard]:
    """One life of a source without a session: where it began, its RegIDs, and what it heard."""
    heard = Heard()
    with (
        streams.open() as context,
        context.source(topic, stores=stores, on_event=heard) as source,
    ):
        begin = source.next_number
        for number in range(count):
            source.send(b"%d" % (begin + number))
        source.wait_stable(WITHIN_S)
        soon(lambda: len(source.statistics().regids) == len(stores.split()))
        regids = source.statistics().regids
    return begin, regids, heard


def test_ume_example_src_2_has_a_static_regid(request: pytest.FixtureRequest, shared: Town) -> None:
    topic, stores = topic_of(request), named(shared, 1_000)
    begin, regids, heard = life(topic, stores, 3)
    assert begin == 0
    assert set(regids.values()) == {1_000}
    told = heard.of(streams.StoreRegistered)
    assert {(one.regid, one.old) for one in told} == {(1_000, False)}
    begin, regids, heard = life(topic, stores, 2)
    assert begin == 3
    assert set(regids.values()) == {1_000}
    assert {(one.regid, one.old) for one in heard.of(streams.StoreRegistered)} == {(1_000, True)}
    with streams.open(session_id=READER) as context:
        shows = read(context, topic, 4, at=shared.at("b"))
    assert [bytes(value) for value in shows.values()] == [b"0", b"1", b"2", b"3", b"4"]


def test_ume_example_src_3_saves_the_regid_that_it_was_given(
    request: pytest.FixtureRequest, shared: Town, tmp_path: Path
) -> None:
    topic, saved = topic_of(request), tmp_path / "regids"

    def stores() -> str:
        return saved.read_text() if saved.exists() else named(shared, 0)

    begins: list[int] = []
    given: list[Mapping[str, int]] = []
    for _ in range(2):
        begin, regids, heard = life(topic, stores(), 4)
        begins.append(begin)
        told = {one.store: one.regid for one in heard.of(streams.StoreRegistered)}
        assert told.items() <= regids.items()
        given.append(regids)
        saved.write_text(" ".join(f"{store}/{regid}" for store, regid in sorted(regids.items())))
    assert begins == [0, 4]
    assert given[0] == given[1]
    assert all(given[0].values())
    begin, regids, _ = life(topic, named(shared, 0), 1)
    assert begin == 0, "who asks for a new one has a new stream"
    assert not regids.items() & given[0].items()


def test_a_store_alone_finds_the_stream_of_a_regid(
    request: pytest.FixtureRequest, shared: Town
) -> None:
    """The others are then found by what that one says."""
    topic = topic_of(request)
    _, regids, _ = life(topic, named(shared, 0), 4)
    a, *others = shared.at().split()
    assert life(topic, " ".join((f"{a}/{regids[a]}", *others)), 1)[:2] == (4, regids)


def test_two_sources_have_not_the_same_regid_at_a_store(
    request: pytest.FixtureRequest, shared: Town
) -> None:
    topic = topic_of(request)
    life(topic, named(shared, 77), 1)
    heard = Heard()
    other: streams.Topic[bytes] = streams.Topic(f"{topic.name} too")
    with (
        streams.open() as context,
        context.source(other, stores=named(shared, 77), on_event=heard, within_s=0.0) as source,
    ):
        soon(lambda: bool(heard.of(streams.RegistrationError)))
        with pytest.raises(streams.NotRegistered):
            source.send(b"never")
    store = heard.of(streams.RegistrationError)[0]
    assert "another source has this RegID there: give another, or 0" in store.why


@pytest.mark.parametrize("names", ["abc", "a"])
def test_a_second_source_with_regids_that_are_in_use_is_refused(
    request: pytest.FixtureRequest, shared: Town, names: str
) -> None:
    """Also if it gives one of them: the other stores hear the first one, too."""
    topic = topic_of(request)
    with streams.open() as context:
        with context.source(topic, stores=named(shared, 0)) as source:
            source.send(b"0")
            source.wait_stable(WITHIN_S)
            soon(lambda: len(source.statistics().regids) == 3)
            regids = source.statistics().regids
            its = " ".join(
                f"{shared.at(name)}/{regids[shared.at(name)]}" if name in names else shared.at(name)
                for name in "abc"
            )
            with (
                pytest.raises(streams.RegistrationInUse, match=r"RegIDs .*, is in use.*End"),
                context.source(topic, stores=its, within_s=None),
            ):
                pytest.fail("it came in")
            source.send(b"1")
            source.wait_stable(WITHIN_S)
        with context.source(topic, stores=its) as source:
            assert source.next_number == 2


def test_stores_give_a_source_with_a_session_its_regids(
    request: pytest.FixtureRequest, shared: Town
) -> None:
    topic = topic_of(request)
    found: list[Mapping[str, int]] = []
    with streams.open(session_id=SENDER) as context:
        for _ in range(2):
            with context.source(topic, stores=shared.at()) as source:
                source.send(b"one")
                source.wait_stable(WITHIN_S)
                soon(lambda: len(source.statistics().regids) == 3)
                assert source.statistics().session_id == SENDER
                found.append(source.statistics().regids)
        assert found[0] == found[1]
        assert set(found[0]) == set(shared.at().split())
        assert all(found[0].values())
        with pytest.raises(InvalidValue, match="leave one out"):
            context.source(topic, stores=named(shared, 5), session_id=SENDER)
        with (
            context.source(topic, stores=shared.at()) as source,
            pytest.raises(InvalidValue, match="is no address"),
        ):
            source.want(named(shared, 5))


def test_ume_example_rcv_2_makes_its_regid_of_the_source_s(
    request: pytest.FixtureRequest, shared: Town
) -> None:
    topic, seen = topic_of(request), list[streams.SourceRegistration]()
    _, regids, _ = life(topic, named(shared, 20_000), 6)

    def mine(source: streams.SourceRegistration) -> int:
        seen.append(source)
        return max(source.regids.values()) + 1

    at = shared.at("c")
    with streams.open() as context:
        assert read(context, topic, 2, at=at, regid=mine).numbers() == [0, 1, 2]
        again = read(context, topic, 5, at=at, regid=mine)
        assert again.numbers() == [3, 4, 5]
        assert set(again.receiver.statistics().regids.values()) == {20_001}
        with pytest.raises(InvalidValue, match="regid is 0"):
            read(context, topic, 5, at=at, regid=lambda _: 0)
    assert all(one.regids.items() <= regids.items() for one in seen)
    assert len({one.session_id for one in seen}) == 1


def test_with_asyncio_too(shared: Town) -> None:
    heard = Heard()

    async def one(count: int) -> int:
        async with (
            streams.open_async() as context,
            context.source(RAW, stores=named(shared, 31), on_event=heard) as source,
        ):
            begin = source.next_number
            for number in range(count):
                await source.send(b"%d" % number)
            await source.wait_stable(WITHIN_S)
            assert set(source.statistics().regids.values()) == {31}
            return begin

    async def shown() -> list[int]:
        shows = Shows(stop_at=4)
        async with streams.open_async() as context:
            shows.receiver = context.receiver(RAW, shows, at=shared.at("a"), regid=lambda _: 32)
            await shows.receiver.run()
        return shows.numbers()

    assert [asyncio.run(one(3)), asyncio.run(one(2))] == [0, 3]
    assert {one.regid for one in heard.of(streams.StoreRegistered)} == {31}
    assert asyncio.run(shown()) == [0, 1, 2, 3, 4]
