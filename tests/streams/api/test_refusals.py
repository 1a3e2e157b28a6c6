"""What cannot be is refused before anything is begun, and says what to do instead."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from onceq import streams
from onceq.errors import IllegalState, InvalidName, InvalidValue, TooLarge
from onceq.streams.api.given import BESIDE, BESIDE_SOURCE, ReceiverOptions, SourceOptions
from onceq.streams.model.options import OPTIONS, Scope
from tests.streams.api.towns import BARS, RAW, Bar, read, town

if TYPE_CHECKING:
    from collections.abc import Iterator

AT = "127.0.0.1:7401"


@pytest.fixture(scope="module")
def context() -> Iterator[streams.StreamContext]:
    with streams.open(session_id=1) as made:
        yield made


def no_handler(_: streams.Message[Any]) -> None:
    raise AssertionError("nothing is shown")


async def chooses(_: streams.RecoveryInfo) -> int:
    raise AssertionError("nobody awaits it")


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"stores": ""}, "has no store: write addresses"),
        ({"stores": "a:1 ; ; b:1"}, "has no store"),
        ({"stores": f"{AT} {AT}"}, "is listed twice"),
        ({"stores": "here"}, "'here' is no address: write host:port"),
        ({"stores": "127.0.0.1:99999"}, "is no address"),
        ({"stores": f"{AT}/x"}, "behind the / stands the RegID"),
        ({"stores": f"{AT}/-1"}, "behind the / stands the RegID"),
        ({"stores": f"{AT}/4294967296"}, "a whole number up to 4294967295"),
        ({"stores": f"{AT}/5", "session_id": 1}, "session_id and RegIDs in stores"),
        ({"late_join": 0}, "late_join is 0: give True or False"),
        ({"stores": "10.1.2.3:7401"}, "without TLS anybody.*give certificates"),
        ({"stores": None}, "stores is None: give a text such as"),
        ({"listen": "7500"}, "is no address"),
        ({"listen": "10.1.2.3:7500"}, "give certificates"),
        ({"listen": 7500}, "listen is 7500: give a text"),
        ({"flight": 5}, "'flight' is no option of a source; there are: .*flight_size"),
        ({"flight_size": 0.5}, "flight_size is 0.5: give a whole number of at least 0"),
        ({"flight_size_behavior": "wait"}, "give one of 'block', 'notify'"),
        ({"registration_interval_ms": 0}, "is 0: give a whole number of at least 1"),
        ({"registration_interval_ms": 0.5}, "is 0.5: give a whole number of at least 1"),
        ({"retention_intragroup_stability_behavior": "most"}, "give one of 'quorum', 'all'"),
        ({"explicit_ack_only": True}, "no option of a source"),
        ({"session_id": 0}, "session_id is 0: give a whole number from 1 to 0xffff"),
        ({"session_id": "7"}, "session_id is '7'"),
        ({"session_id": True}, "session_id is True"),
        ({"within_s": "x"}, "within_s is 'x': give seconds, or None"),
        ({"within_s": True}, "within_s is True: give seconds"),
        ({"within_s": float("nan")}, "within_s is nan: give seconds"),
        ({"on_event": "x"}, "on_event is 'x': give a function that is called with each event"),
    ],
)
def test_a_source_is_refused(
    context: streams.StreamContext, given: dict[str, Any], says: str
) -> None:
    own: Any
    for own in (context, streams.open_async(session_id=1)):
        with pytest.raises(InvalidValue, match=says):
            own.source(RAW, **{"stores": AT, **given})


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"at": "here"}, "'here' is no address"),
        ({"at": "10.1.2.3:7500"}, "give certificates"),
        ({"at": None}, "at is None: give a text"),
        ({"deliver": "all"}, "deliver is 'all': give 'stable' or 'live'"),
        ({"flight_size": 5}, "no option of a receiver"),
        ({"explicit_ack_only": 1}, "explicit_ack_only is 1: give True or False"),
        ({"ack_batching_interval_ms": 0}, "at least 1"),
        ({"explicit_ack_only": True, "ack_batching_interval_ms": 9}, "leave one out"),
        ({"use_late_join": False, "choose": max}, "asks for nothing of before"),
        ({"use_late_join": False, "retransmit_request_maximum": 1}, "or choose do"),
        ({"regid": 1, "session_id": 1}, "session_id and regid"),
        ({"regid": 0}, "regid is 0: give a whole number from 1"),
        ({"source_session_id": -1}, "source_session_id is -1"),
        ({"choose": 5}, "choose is 5: give a function that is called with what is known"),
        ({"choose": chooses}, "choose is `async def`, and nobody awaits it here"),
        ({"on_event": "x"}, "on_event is 'x': give a function that is called with each event"),
        ({"show": "x"}, "show is 'x': give a function that is called with each message"),
        ({"show": None}, "show is None: give a function"),
    ],
)
def test_a_receiver_is_refused(
    context: streams.StreamContext, given: dict[str, Any], says: str
) -> None:
    own: Any
    for own in (context, streams.open_async(session_id=1)):
        with pytest.raises(InvalidValue, match=says):
            own.receiver(RAW, **{"show": no_handler, "at": AT, **given})


def test_an_address_that_receivers_cannot_be_told_is_refused() -> None:
    some = streams.Certificates(certificate=__file__, key=__file__, authority=__file__)  # type: ignore[arg-type] # never read
    with streams.open(session_id=1, certificates=some) as context:
        for listen in ("0.0.0.0:7500", "[::]:7500"):
            with pytest.raises(InvalidValue, match="listen at one that they can reach"):
                context.source(RAW, stores=AT, listen=listen)


def test_without_a_session_there_is_no_source_and_no_receiver() -> None:
    with streams.open() as context:
        with pytest.raises(InvalidValue, match="has no session: give open"):
            context.source(RAW, stores=AT)
        with pytest.raises(InvalidValue, match="has no session, and no regid"):
            context.receiver(RAW, no_handler, at=AT)
    with pytest.raises(InvalidValue, match="session_id is -5"):
        streams.open(session_id=-5)
    with pytest.raises(InvalidValue, match="session_id is -5"):
        streams.open_async(session_id=-5)


@pytest.mark.parametrize("name", ["", "x" * 201, "a\nb", 5])
def test_a_topic_has_a_name(name: Any) -> None:
    with pytest.raises(InvalidName):
        streams.Topic(name)


def test_a_topic_is_a_topic_and_its_values_are_of_its_type(context: streams.StreamContext) -> None:
    with pytest.raises(InvalidName, match=r"'bars' is no topic: give streams.Topic"):
        context.source("bars", stores=AT)  # type: ignore[arg-type] # that is the point
    with pytest.raises(InvalidValue, match="the values of topic 'bars'"):
        streams.Topic("bars", object())  # type: ignore[call-overload] # that is the point
    with pytest.raises(InvalidValue, match="value for topic 'bars'"):
        BARS.encode("no bar")  # type: ignore[arg-type] # that is the point
    with pytest.raises(InvalidValue, match="value of topic 'bars'"):
        BARS.decode(b"{}")
    bar = Bar("1985-10-26", "IBM", "122.5", "1.21")
    assert BARS.decode(BARS.encode(bar)) == bar
    assert streams.Topic("raw") == RAW
    assert RAW.encode(b"as it is") == RAW.decode(b"as it is") == b"as it is"


def test_keywords_are_those_of_the_table() -> None:
    rows = {scope: {one.name for one in OPTIONS if scope in one.scopes} for scope in Scope}
    assert set(SourceOptions.__annotations__) == rows[Scope.SOURCE] | BESIDE_SOURCE
    assert set(ReceiverOptions.__annotations__) == rows[Scope.RECEIVER] | BESIDE


def test_what_is_sent_is_refused_and_nothing_happened() -> None:
    with (
        town(names="a") as stores,
        streams.open(session_id=1) as context,
        context.source(BARS, stores=stores.at("a"), listen="127.0.0.1:0") as source,
        context.source(RAW, stores=stores.at("a")) as raw,
    ):
        with pytest.raises(InvalidValue, match="value for topic 'bars'"):
            source.send(5)  # type: ignore[arg-type] # that is the point
        with pytest.raises(TooLarge):
            raw.send(bytes((16 << 20) + 1))
        assert source.next_number == raw.next_number == 0
        for at in (source.address, stores.at("a")):
            with pytest.raises(InvalidValue, match="no one stream of topic 'raw' of session 0x5"):
                read(context, RAW, 0, at=at, source_session_id=5)


WAITS: list[Any] = ["x", True, float("nan"), b"1"]


@pytest.mark.parametrize("given", WAITS)
def test_waits_are_seconds(given: Any) -> None:
    says = "timeout_s is .*: give seconds"

    async def live(at: str) -> None:
        async with (
            streams.open_async(session_id=2) as own,
            own.source(RAW, stores=at) as source,
        ):
            for wait in (source.wait_stable, source.wait_registered):
                with pytest.raises(InvalidValue, match=says):
                    await wait(given)
            with pytest.raises(InvalidValue, match=says):
                await own.deregister(RAW, stores=at, timeout_s=given)

    with (
        town(names="a") as stores,
        streams.open(session_id=1) as context,
        context.source(RAW, stores=stores.at("a")) as source,
    ):
        for wait in (source.wait_stable, source.wait_registered):
            with pytest.raises(InvalidValue, match=says):
                wait(given)
            wait(float("inf"))
        with pytest.raises(InvalidValue, match=says):
            context.deregister(RAW, stores=stores.at("a"), timeout_s=given)
        asyncio.run(live(stores.at("a")))


@pytest.mark.parametrize("given", ["x", -1, 0.5, True, None, 2**63])
def test_a_number_that_is_given_up_is_one(given: Any) -> None:
    says = "number is .*: give that of a message, as `send` returned"

    async def live(at: str) -> None:
        async with (
            streams.open_async(session_id=2) as own,
            own.source(RAW, stores=at) as source,
        ):
            with pytest.raises(InvalidValue, match=says):
                await source.give_up(given)

    with (
        town(names="a") as stores,
        streams.open(session_id=1) as context,
        context.source(RAW, stores=stores.at("a")) as source,
    ):
        with pytest.raises(InvalidValue, match=says):
            source.give_up(given)
        asyncio.run(live(stores.at("a")))


def test_each_is_used_once_and_not_when_its_context_is_closed() -> None:
    with town(names="a") as stores:
        with streams.open(session_id=1) as context:
            with context.source(RAW, stores=stores.at("a")) as source:
                source.send(b"1")
                source.wait_stable(60)
            with pytest.raises(IllegalState, match="closed"):
                source.send(b"2")
            shows = read(context, RAW, 0, at=stores.at("a"))
            with pytest.raises(IllegalState, match="once"):
                shows.receiver.run()
        for make in (
            lambda: context.source(RAW, stores=stores.at("a")),
            lambda: context.receiver(RAW, no_handler, at=stores.at("a")),
        ):
            with pytest.raises(IllegalState, match="the context is closed"):
                make()

    async def closed() -> None:
        async with streams.open_async(session_id=1) as own:
            pass
        with pytest.raises(IllegalState, match="the context is closed"):
            own.source(RAW, stores=AT)

    asyncio.run(closed())
