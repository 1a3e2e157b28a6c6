"""Streams of requests and replies: sent ahead, acknowledged, resumed, in bounded memory (C6)."""

from __future__ import annotations

import asyncio
import itertools
from typing import TYPE_CHECKING

import pytest

import onceq
from onceq.clerk import streaming
from onceq.errors import InvalidValue, QueueStopped, ReceiveTimeout
from onceq.model.client_state import ClientState
from tests.lives import living
from tests.parts import LIMIT_S, scalar, serving

if TYPE_CHECKING:
    from collections.abc import Iterator

    from onceq import Context

RAW = onceq.Queue("raw", bytes, bytes)


@pytest.fixture(autouse=True)
def _declared(qm: onceq.QueueManager) -> None:
    qm.declare(RAW)


def echo(request: bytes, _: Context) -> bytes:
    return request


def requests(start: int, stop: int) -> Iterator[tuple[str, bytes]]:
    return ((str(n), str(n).encode()) for n in range(start, stop))


def after(clerk: onceq.Clerk[bytes, bytes], stop: int) -> Iterator[tuple[str, bytes]]:
    """Returns the requests that were not sent yet."""
    return requests(0 if clerk.last_sent is None else int(clerk.last_sent) + 1, stop)


@pytest.mark.parametrize("window", [1, 2, 7, 50])
def test_every_request_of_a_stream_gets_its_reply_once(
    qm: onceq.QueueManager, conninfo: str, repository: str, window: int
) -> None:
    with (
        serving(conninfo, repository, RAW.handled_by(echo, batch=5)),
        qm.clerk("till", RAW, window=window) as clerk,
    ):
        found = [(one.rid, one.value) for one in clerk.stream(requests(0, 60), timeout_s=LIMIT_S)]
        assert sorted(found) == sorted(requests(0, 60))
        assert clerk.state is ClientState.CONNECTED
        assert clerk.outstanding == clerk.unacknowledged == []
        assert list(clerk.stream(requests(0, 60), timeout_s=LIMIT_S)) == []  # all were done
        found = [(one.rid, one.value) for one in clerk.stream(requests(0, 63), timeout_s=LIMIT_S)]
        assert sorted(found) == sorted(requests(60, 63))
        assert list(clerk.stream([])) == []
        clerk.disconnect()
    assert scalar(conninfo, f"select count(*) from {repository}.element") == 0


def test_a_stream_goes_on_where_a_former_life_was_cut_short(
    qm: onceq.QueueManager, conninfo: str, repository: str
) -> None:
    """At least once each, the same reply, and what was not acknowledged again."""
    seen: list[tuple[str, bytes]] = []
    with serving(conninfo, repository, RAW.handled_by(echo)):
        for life in range(1, 7):
            with qm.clerk("till", RAW, window=10) as clerk:
                replies = clerk.stream(after(clerk, 60), timeout_s=LIMIT_S)
                seen += [(one.rid, one.value) for one in itertools.islice(replies, 5 * life)]
        with qm.clerk("till", RAW, window=10) as clerk:
            replies = clerk.stream(after(clerk, 60), timeout_s=LIMIT_S)
            seen += [(one.rid, one.value) for one in itertools.islice(replies, 3)]
            again = list(clerk.stream(after(clerk, 60), timeout_s=LIMIT_S))  # in the same life
            seen += [(reply.rid, reply.value) for reply in again]
            clerk.disconnect()
    assert set(seen) == set(requests(0, 60))
    assert scalar(conninfo, f"select count(*) from {repository}.history") == 60


def test_a_stream_is_bounded_on_both_sides(
    qm: onceq.QueueManager, conninfo: str, repository: str
) -> None:
    """Taken from when there is room; elements and rids are at most the window, and what is kept."""
    taken = 0
    most = 0

    def counted() -> Iterator[tuple[str, bytes]]:
        nonlocal taken
        for one in requests(0, 400):
            taken += 1
            yield one

    with (
        serving(conninfo, repository, RAW.handled_by(echo, batch=10)),
        qm.clerk("till", RAW, window=20, keep=5) as clerk,
    ):
        for number, _ in enumerate(clerk.stream(counted(), timeout_s=LIMIT_S)):
            assert taken - number <= 20
            assert len(clerk.outstanding) + len(clerk.unacknowledged) <= 20
            if number % 40 == 0:
                most = max(most, scalar(conninfo, f"select count(*) from {repository}.element"))
        assert taken == 400
        assert most <= 25
        assert scalar(conninfo, f"select count(*) from {repository}.element") == 5
        assert {clerk.rereceive(str(n)).rid for n in range(400) if _kept(qm, str(n))} == {
            one.rid for one in qm.lookup(state="kept")
        }


def _kept(qm: onceq.QueueManager, rid: str) -> bool:
    return any(one.state == "kept" for one in qm.lookup(rid))


def test_what_a_stream_has_taken_and_not_yielded_comes_with_the_next(
    qm: onceq.QueueManager, conninfo: str, repository: str
) -> None:
    """It takes up to half a window at once; here its consumer stops at the first of two."""
    with living(conninfo, repository) as life, qm.clerk("till", RAW, window=4) as clerk:
        clerk.send_many(list(requests(0, 4)))
        for element in life.claim("raw", 4):
            life.run(element, element.body)
        (first,) = itertools.islice(clerk.stream([], timeout_s=LIMIT_S), 1)
        assert (first.rid, clerk.unacknowledged) == ("0", ["0", "1"])
        assert [one.rid for one in clerk.stream([], timeout_s=LIMIT_S)] == ["0", "1", "2", "3"]


def test_a_stream_sends_in_pieces(
    monkeypatch: pytest.MonkeyPatch, qm: onceq.QueueManager, conninfo: str, repository: str
) -> None:
    monkeypatch.setattr(streaming, "SENT_AT_ONCE", 3)
    with (
        serving(conninfo, repository, RAW.handled_by(echo)),
        qm.clerk("till", RAW, window=10) as clerk,
    ):
        found = [one.rid for one in clerk.stream(requests(0, 25), timeout_s=LIMIT_S)]
    assert sorted(found, key=int) == [str(n) for n in range(25)]


def test_a_stream_that_waits_in_vain_loses_nothing(
    qm: onceq.QueueManager, conninfo: str, repository: str
) -> None:
    with qm.clerk("till", RAW, window=4) as clerk:
        late: list[list[str]] = []

        def wait(_: ReceiveTimeout) -> bool:
            late.append(clerk.outstanding)
            return len(late) < 2

        with pytest.raises(ReceiveTimeout):
            next(iter(clerk.stream(requests(0, 9), timeout_s=0.01, on_timeout=wait)))
        assert late == [["0", "1", "2", "3"]] * 2
        with serving(conninfo, repository, RAW.handled_by(echo)):
            found = [one.rid for one in clerk.stream(after(clerk, 9), timeout_s=LIMIT_S)]
        assert sorted(found) == [str(n) for n in range(9)]


def test_a_stream_says_what_is_wrong(qm: onceq.QueueManager) -> None:
    with qm.clerk("till", RAW, window=4) as clerk:
        with pytest.raises(InvalidValue, match="are a list"):
            clerk.stream("12")  # type: ignore[arg-type] # on purpose
        with pytest.raises(InvalidValue, match="end_user"):
            list(clerk.stream([("1", b"x", None, None)]))  # type: ignore[list-item] # on purpose
        qm.stop("raw", dequeue=False)
        with pytest.raises(QueueStopped):
            list(clerk.stream(requests(0, 3)))
        qm.start("raw")
        assert clerk.last_sent is None
        with pytest.raises(ReceiveTimeout):
            list(clerk.stream(after(clerk, 3), timeout_s=0))
        assert clerk.outstanding == ["0", "1", "2"]


def test_the_async_twin_streams(conninfo: str, repository: str, qm: onceq.QueueManager) -> None:
    qm.declare(onceq.Queue("alerts", bytes, bytes))

    async def main() -> None:
        async with onceq.open_async(conninfo, repository=repository) as opened:
            clerk = opened.clerk("till", RAW, window=8, keep=2)
            async with clerk:
                late: list[list[str]] = []

                async def alert(_: ReceiveTimeout) -> bool:
                    late.append(await clerk.alert_late("alerts", late_s=0))
                    return False

                replies = clerk.stream(requests(0, 5), timeout_s=0.01, on_timeout=alert)
                with pytest.raises(ReceiveTimeout):
                    await anext(replies)
                assert late == [["0", "1", "2", "3", "4"]]
                assert getattr(await clerk.where("0"), "state", None) == "queued"
                with serving(conninfo, repository, RAW.handled_by(echo)):
                    found = [
                        reply.rid
                        async for reply in clerk.stream(requests(5, 30), timeout_s=LIMIT_S)
                    ]
                assert sorted(found, key=int) == [str(n) for n in range(30)]
                assert (await clerk.rereceive(found[-1])).rid == found[-1]
                assert [one.thread for one in await clerk.threads()] == [""]
                assert await opened.threads("till") == await clerk.threads()
                assert clerk.room == 8

    asyncio.run(main())
