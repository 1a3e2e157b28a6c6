"""Many requests of one client: kept replies, late replies, fencing, threads, where, alerts."""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
from functools import partial
from typing import TYPE_CHECKING

import pytest

import onceq
from onceq.clerk import receiving
from onceq.errors import Fenced, IllegalState, ReceiveTimeout, ReplyGone, WindowFull
from onceq.model.client_state import ClientState
from tests.lives import living
from tests.parts import LIMIT_S, Background, serving

if TYPE_CHECKING:
    from collections.abc import Callable

    from onceq import Clerk, Context
    from tests.lives import Life

RAW = onceq.Queue("raw", bytes, bytes)
ALERTS = onceq.Queue("alerts", bytes, bytes)


@pytest.fixture(autouse=True)
def _declared(qm: onceq.QueueManager) -> None:
    qm.declare(RAW)


def echo(request: bytes, _: Context) -> bytes:
    return request


def answer_all(life: Life) -> None:
    """Executes what waits; each reply is its request."""
    for element in life.claim("raw", 100):
        life.run(element, element.body)


def pairs(*rids: str) -> list[tuple[str, bytes]]:
    return [(rid, rid.encode()) for rid in rids]


def test_rereceive_of_any_unacknowledged_rid_is_identical(
    qm: onceq.QueueManager, conninfo: str, repository: str
) -> None:
    with living(conninfo, repository) as life, qm.clerk("till", RAW, window=5, keep=1) as clerk:
        clerk.send_many(pairs("1", "2", "3", "4"))
        with pytest.raises(IllegalState, match="not received"):
            clerk.rereceive("1")
        answer_all(life)
        replies = {reply.rid: reply for reply in clerk.receive_many(3)}
        for _ in range(2):
            assert [clerk.rereceive(rid) for rid in replies] == list(replies.values())
        clerk.acknowledge(["1", "2"])
        assert clerk.rereceive("2") == replies["2"]
        assert clerk.rereceive("3") == replies["3"]
        with pytest.raises(ReplyGone):
            clerk.rereceive("1")
        clerk.connect()
        assert clerk.rereceive("2") == replies["2"]
        assert (clerk.outstanding, clerk.unacknowledged) == (["3", "4"], [])
        assert [reply.rid for reply in clerk.receive_many(5)] == ["3", "4"]


def test_a_full_window_refuses_and_says_how_much_room_there_is(
    qm: onceq.QueueManager, conninfo: str, repository: str
) -> None:
    with living(conninfo, repository) as life, qm.clerk("till", RAW, window=3) as clerk:
        clerk.send_many(pairs("1", "2"))
        assert clerk.room == 1
        with pytest.raises(WindowFull) as full:
            clerk.send_many(pairs("3", "4"))
        assert (full.value.room, full.value.outcome) == (1, onceq.Outcome.NOTHING_HAPPENED)
        clerk.send("3", b"3")
        answer_all(life)
        clerk.receive_many(2)
        with pytest.raises(WindowFull):
            clerk.send("4", b"4")
        clerk.acknowledge(["1"])
        assert (clerk.room, clerk.send("4", b"4").state) == (1, "new")


@pytest.mark.parametrize("few", [0, 100])
def test_a_reply_that_commits_late_is_received(
    monkeypatch: pytest.MonkeyPatch,
    qm: onceq.QueueManager,
    conninfo: str,
    repository: str,
    few: int,
) -> None:
    """It has a smaller seq than one that was handed out before it could be seen."""
    monkeypatch.setattr(receiving, "FEW", few)
    with (
        living(conninfo, repository) as slow,
        living(conninfo, repository) as quick,
        qm.clerk("till", RAW, window=5) as clerk,
    ):
        clerk.send_many(pairs("1", "2", "3"))
        late = slow.claim_one("raw")
        slow.begin(late)
        slow.finish(late, b"late")
        quick.run(quick.claim_one("raw"), b"2")
        assert clerk.receive(timeout_s=LIMIT_S).rid == "2"
        slow.commit()
        assert clerk.receive(timeout_s=0).value == b"late"
        quick.run(quick.claim_one("raw"), b"3")
        assert clerk.receive(timeout_s=LIMIT_S).rid == "3"
        assert clerk.outstanding == []


def test_replies_received_by_rid_and_in_order_come_once(
    monkeypatch: pytest.MonkeyPatch, qm: onceq.QueueManager, conninfo: str, repository: str
) -> None:
    """Also where those that were handed out are too many to be looked past at each receive."""
    monkeypatch.setattr(receiving, "FEW", 0)
    rids = [str(n) for n in range(10, 30)]
    with living(conninfo, repository) as life, qm.clerk("till", RAW, window=50) as clerk:
        clerk.send_many(pairs(*rids))
        answer_all(life)
        found = [clerk.receive(rid=rid, timeout_s=LIMIT_S).rid for rid in ("29", "12", "20")]
        assert found == ["29", "12", "20"]
        found += [clerk.receive(b"c", timeout_s=LIMIT_S).rid for _ in range(6)]
        found += [clerk.receive(rid="25", timeout_s=LIMIT_S).rid]
        clerk.acknowledge(["29", "10"], checkpoint=b"some")
        assert clerk.send("20", b"20").state == "replied"  # so it is received again
        found += [reply.rid for reply in clerk.receive_many(50)]
        while clerk.outstanding:
            found += [reply.rid for reply in clerk.receive_many(50)]
        assert sorted(found) == sorted([*rids, "20"])
        clerk.connect()
        clerk.receive(b"here", rid="28", timeout_s=LIMIT_S)
        clerk.connect()
        again = [clerk.receive(timeout_s=LIMIT_S).rid for _ in range(17)]
        assert sorted([*again, "28"]) == sorted(set(rids) - {"29", "10"})


CALLS: dict[str, Callable[[Clerk[bytes, bytes]], object]] = {
    "send": lambda clerk: clerk.send("9", b""),
    "send_many": lambda clerk: clerk.send_many(pairs("9")),
    "receive": lambda clerk: clerk.receive(timeout_s=0),
    "receive with a checkpoint": lambda clerk: clerk.receive(b"c", timeout_s=0),
    "receive_many": lambda clerk: clerk.receive_many(2, timeout_s=0),
    "rereceive": lambda clerk: clerk.rereceive(),
    "rereceive by rid": lambda clerk: clerk.rereceive("1"),
    "acknowledge": lambda clerk: clerk.acknowledge(["1"]),
    "stream": lambda clerk: list(clerk.stream(pairs("9"))),
    "where": lambda clerk: clerk.where("1"),
    "alert_late": lambda clerk: clerk.alert_late("raw", late_s=0),
    "threads": lambda clerk: clerk.threads(),
    "cancel": lambda clerk: clerk.cancel_last_request(),
    "recover": lambda clerk: clerk.recover(),
}


@pytest.mark.parametrize("call", CALLS)
def test_an_older_life_is_fenced_at_every_call(
    qm: onceq.QueueManager, conninfo: str, repository: str, call: str
) -> None:
    with living(conninfo, repository) as life, qm.clerk("till", RAW, window=9) as old:
        old.send_many(pairs("1", "2"))
        answer_all(life)
        old.receive(rid="1", timeout_s=LIMIT_S)
        before = qm.lookup()
        with qm.clerk("till", RAW, window=9) as new:
            with pytest.raises(Fenced):
                CALLS[call](old)
            for every in CALLS.values():  # once it knows, whatever its state would say
                with pytest.raises(Fenced):
                    every(old)
            assert qm.lookup() == before
            assert {reply.rid for reply in new.receive_many(9)} == {"1", "2"}
        assert old.connect().state is ClientState.REQ_SENT


RACED = [f"r{n}" for n in range(320)]


class Race:
    """What lives of one client did, and when: (time, epoch) of connects and of calls."""

    def __init__(self) -> None:
        self.connects: list[tuple[float, int]] = []
        self.calls: list[tuple[float, int, list[str]]] = []

    def play(self, clerk: Clerk[bytes, bytes]) -> None:
        for _ in range(6):
            with contextlib.suppress(Fenced):
                self._live(clerk)

    def _live(self, clerk: Clerk[bytes, bytes]) -> None:
        clerk.connect()  # which the other may fence before it has returned
        epoch = clerk._session.who.epoch  # pyright: ignore[reportPrivateUsage] # a clerk tells nobody else its epoch
        self.connects.append((time.monotonic(), epoch))
        for _ in range(4):
            self._some(clerk, epoch)

    def _some(self, clerk: Clerk[bytes, bytes], epoch: int) -> None:
        sent = unsent(clerk)[: clerk.room]
        self._call(epoch, lambda: [one.state for one in clerk.send_many(pairs(*sent))])
        found = self._call(
            epoch, lambda: [one.rid for one in clerk.receive_many(5, timeout_s=LIMIT_S)]
        )
        self._call(epoch, lambda: [str(clerk.acknowledge(found))])

    def _call(self, epoch: int, call: Callable[[], list[str]]) -> list[str]:
        began = time.monotonic()
        answer = call()
        self.calls.append((began, epoch, answer))
        return answer


def unsent(clerk: Clerk[bytes, bytes]) -> list[str]:
    return RACED if clerk.last_sent is None else RACED[int(clerk.last_sent[1:]) + 1 :]


def test_two_that_race_by_one_name_never_mix(
    qm: onceq.QueueManager, conninfo: str, repository: str
) -> None:
    """What a life began after a newer one had connected never succeeds; nothing is lost."""
    race = Race()
    with serving(conninfo, repository, RAW.handled_by(echo)):
        clerks = [qm.clerk("till", RAW, window=10) for _ in range(2)]
        players = [Background(partial(race.play, clerk)) for clerk in clerks]
        for player in players:
            player.result()
        with qm.clerk("till", RAW, window=10) as clerk:
            for _ in clerk.stream(pairs(*unsent(clerk)), timeout_s=LIMIT_S):
                pass
            clerk.disconnect()
        for one in clerks:
            one.close()
    assert len(race.calls) > len(race.connects)
    for at, epoch, found in race.calls:
        newer = [other for then, other in race.connects if then < at and other > epoch]
        assert not newer, f"epoch {epoch} got {found} after {newer} had connected"
    outcomes = {one.rid: one.outcome for one in qm.lookup(registrant="till", limit=1000)}
    assert outcomes == dict.fromkeys(RACED, "done")


def test_the_threads_of_a_client_are_told_together_and_fenced_alone(
    qm: onceq.QueueManager, conninfo: str, repository: str
) -> None:
    with (
        living(conninfo, repository) as life,
        qm.clerk("till", RAW, thread="a") as one,
        qm.clerk("till", RAW, thread="b", window=3) as two,
    ):
        one.send("1", b"x")
        answer_all(life)
        one.receive(b"of a", timeout_s=LIMIT_S)
        two.send_many(pairs("1", "2"))
        told = qm.threads("till")
        assert [(tags.thread, tags.s_rid, tags.r_rid, tags.ckpt) for tags in told] == [
            ("a", "1", "1", b"of a"),
            ("b", "2", None, None),
        ]
        assert [tags.state for tags in told] == [ClientState.REPLY_RECVD, ClientState.REQ_SENT]
        assert [tags.outstanding for tags in told] == [0, 2]
        assert two.threads() == told
        with qm.clerk("till", RAW, thread="a"):
            with pytest.raises(Fenced):
                one.threads()
            assert len(two.threads()) == 2
        one.connect().disconnect()
        assert qm.threads("till")[0].state is ClientState.DISCONNECTED
        assert qm.threads("nobody") == []


def test_where_a_request_is(qm: onceq.QueueManager, conninfo: str, repository: str) -> None:
    with living(conninfo, repository) as life, qm.clerk("till", RAW) as clerk:
        assert clerk.where() is None
        clerk.send("1", b"x")
        queued = clerk.where()
        assert queued is not None
        assert (queued.state, queued.rid, queued.server_pid) == ("queued", "1", None)
        element = life.claim_one("raw")
        claimed = clerk.where("1")
        assert claimed is not None
        assert (claimed.state, claimed.server_host, claimed.begun_at) == ("executing", "test", None)
        life.begin(element)
        running = clerk.where("1")
        assert running is not None
        assert running.begun_at is not None
        assert running.begun_at >= running.sent_at
        life.finish(element, b"")
        life.commit()
        assert getattr(clerk.where("1"), "state", None) == "replied"
        clerk.receive(timeout_s=LIMIT_S)
        clerk.acknowledge(["1"])
        finished = clerk.where("1")
        assert finished is not None
        assert (finished.state, finished.outcome) == ("finished", onceq.RequestOutcome.DONE)
        assert clerk.where("2") is None


def test_what_is_done_when_a_reply_does_not_come_in_time(
    qm: onceq.QueueManager, conninfo: str, repository: str
) -> None:
    """A function that may wait on, and an alert that is enqueued once."""
    qm.declare(ALERTS)
    with living(conninfo, repository) as life, qm.clerk("till", RAW, window=2) as clerk:
        sent = clerk.send_many(pairs("1", "2"))
        late: list[list[str]] = []

        def alert(error: ReceiveTimeout) -> bool:
            assert error.outcome is onceq.Outcome.NOTHING_HAPPENED
            late.append(clerk.alert_late("alerts", late_s=0.0))
            if len(late) == 3:
                answer_all(life)
            return len(late) < 4

        assert clerk.receive(timeout_s=0.01, on_timeout=alert).rid == "1"
        assert late == [["1", "2"], [], []]
        alerts = [json.loads(one.body) for one in iter(lambda: qm.dequeue("alerts"), None)]
        assert [(one["client"], one["rid"], one["queue"]) for one in alerts] == [
            ("till", "1", "raw"),
            ("till", "2", "raw"),
        ]
        assert [one["eid"] for one in alerts] == [str(one.eid) for one in sent]
        clerk.receive(timeout_s=LIMIT_S)
        clerk.acknowledge(["1", "2"])
        clerk.send("3", b"3")
        with pytest.raises(ReceiveTimeout):
            clerk.receive(timeout_s=0.01, on_timeout=lambda _: None)
        clerk.connect()
        assert clerk.alert_late("alerts", late_s=0.0, rid="3") == ["3"]
        clerk.connect()
        assert clerk.alert_late("alerts", late_s=0.0) == []
        assert qm.dequeue("alerts") is not None
        assert clerk.alert_late("alerts", late_s=0.0) == []  # also when the alert was taken


def test_an_async_clerk_is_told_of_what_is_late_by_a_plain_def_too(
    qm: onceq.QueueManager, conninfo: str, repository: str
) -> None:
    """As handlers are: sync or async. What is given to wait on is asked each time."""
    qm.declare(RAW)
    asked: list[str] = []

    def plain(_: ReceiveTimeout) -> bool:
        asked.append("plain")
        return asked.count("plain") % 2 == 1

    async def awaited(_: ReceiveTimeout) -> bool:
        asked.append("awaited")
        return asked.count("awaited") % 2 == 1

    async def main() -> None:
        async with (
            onceq.open_async(conninfo, repository=repository) as opened,
            opened.clerk("till", RAW, window=4) as clerk,
        ):
            await clerk.send("1", b"1")
            for rid, ask in (("2", plain), ("3", awaited)):
                with pytest.raises(ReceiveTimeout):
                    await clerk.receive(timeout_s=0.01, on_timeout=ask)
                with pytest.raises(ReceiveTimeout):
                    await anext(clerk.stream([(rid, b"x")], timeout_s=0.01, on_timeout=ask))

    asyncio.run(main())
    assert asked == ["plain"] * 4 + ["awaited"] * 4
