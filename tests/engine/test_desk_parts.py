"""The parts of a desk: its arrivals, its bell, and its thread."""

from __future__ import annotations

import asyncio
import operator
import os
import secrets
import signal
import socket
import threading
import time
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest

import onceq
from onceq.engine.desk.arrivals import REST_S, Arrivals, joined
from onceq.engine.desk.sleeper import AsyncSleeper, Ends
from onceq.engine.wake.desk_bell import FIRST_S, LOOKS_PER_S, TRUSTED_S, DeskBell
from onceq.engine.wake.waiting import RUNG, RUNG_PACES, pace_of
from onceq.errors import (
    CannotConnect,
    DeadlineExceeded,
    IllegalState,
    InDoubt,
    InvalidValue,
    OnceqError,
)
from onceq.model import desk_ops, ops
from tests.parts import serving

if TYPE_CHECKING:
    from collections.abc import Generator

RAW = onceq.Queue("raw", bytes, bytes, backoff_ms=0)


def send(n: int, body: bytes = b"", **fields: Any) -> ops.Send:
    given: dict[str, Any] = {"queue": "raw", "send_no": n, "ack": [], **fields}
    return ops.Send(
        who=ops.Identity(registrant_id=n, epoch=1),
        request=ops.Request(rid=str(n), body=body),
        **given,
    )


def receive(n: int) -> ops.Receive:
    who = ops.Identity(registrant_id=n, epoch=1)
    return ops.Receive(who=who, skip=[], s_rid=None, s_no=0)


def numbers(group: list[Any]) -> list[int]:
    return [asked.number for asked in group]


def arrived(*each: ops.Op[Any]) -> Arrivals[None]:
    arrivals: Arrivals[None] = Arrivals()
    for op in each:
        arrivals.add(op, None)
    return arrivals


def taken(arrivals: Arrivals[None], times: int = 1, now: float = 0.0) -> list[list[int]]:
    return [numbers(arrivals.take(now)) for _ in range(times)]


def test_who_came_first_takes_along_who_may() -> None:
    mixed = [op for n in range(3) for op in (send(n), receive(n))]
    others = (send(3, queue="other"), send(4, ack=["a", "b"]), send(5, keep=1))
    arrivals = arrived(*mixed, *others)
    assert taken(arrivals, 4) == [[0, 2, 4, 8], [1, 3, 5], [6], [7]]
    assert not arrivals
    assert taken(arrivals) == [[]]


def test_a_group_is_bounded_and_in_order() -> None:
    arrivals = arrived(*(send(n) for n in range(250)))
    sizes: list[int] = []
    while arrivals:
        (group,) = taken(arrivals)
        assert group == sorted(group)
        sizes.append(len(group))
    assert sizes == [desk_ops.GROUP_MAX, desk_ops.GROUP_MAX, 50]


def test_a_group_has_no_more_bytes_than_one_message_may() -> None:
    half = bytes(desk_ops.BYTES_MAX // 2)
    sizes = [half, half, b"1", half + half + b"1", b"1", b"2"]
    arrivals = arrived(*(send(n, body) for n, body in enumerate(sizes)))
    assert taken(arrivals, 4) == [[0, 1], [2], [3], [4, 5]]


def test_who_falls_out_of_a_group_comes_again_before_others_and_one_at_a_time() -> None:
    arrivals = arrived(*(send(n) for n in range(4)))
    group = arrivals.take(0.0)
    arrivals.add(send(4), None)
    told = arrivals.answered(group, {1: "a", 4: "d"})
    assert [(asked.number, answer) for asked, answer in told] == [(0, "a"), (3, "d")]
    again = arrivals.take(0.0)
    assert numbers(again) == [1]
    assert taken(arrivals, 2) == [[4], []], "another connection leaves the second to this one"
    assert arrivals.answered(again, "b") == [(again[0], "b")]
    assert taken(arrivals) == [[2]]
    assert not arrivals


def test_who_met_a_lock_rests_and_lets_others_go_first() -> None:
    arrivals = arrived(send(0), send(1, queue="other"))
    assert arrivals.failed(arrivals.take(0.0), DeadlineExceeded("a lock"), 10.0) == []
    assert taken(arrivals, 2, now=10.0) == [[1], []]
    arrivals.add(send(2), None)
    (later,) = taken(arrivals, now=10.0 + REST_S)
    assert later == [2], "it has a new number"
    assert taken(arrivals, now=10.0 + REST_S / 2) == [[3]]


def test_whose_own_time_is_over_is_told_of_the_lock() -> None:
    arrivals: Arrivals[None] = Arrivals()
    arrivals.add(send(0), None, until=10.0)
    error = DeadlineExceeded("a lock")
    assert arrivals.failed(arrivals.take(0.0), error, 9.9) == []
    group = arrivals.take(9.9 + REST_S)
    assert arrivals.failed(group, error, 10.0) == [(group[0], error)]
    assert not arrivals


@pytest.mark.parametrize("error", [InDoubt("x"), CannotConnect("x")])
def test_what_is_unknown_is_told_to_each_of_a_group(error: OnceqError) -> None:
    arrivals = arrived(*(send(n) for n in range(3)))
    group = arrivals.take(0.0)
    told = arrivals.failed(group, error, 0.0)
    assert [asked for asked, _ in told] == group
    assert [(type(one), str(one)) for _, one in told] == [(type(error), "x")] * 3
    assert len({id(one) for _, one in told}) == 3
    assert not arrivals


def test_a_group_that_is_refused_comes_again_one_by_one() -> None:
    arrivals = arrived(*(send(n) for n in range(3)))
    assert arrivals.failed(arrivals.take(0.0), InvalidValue("x"), 0.0) == []
    for n in range(3):
        again = arrivals.take(0.0)
        assert numbers(again) == [n]
        arrivals.answered(again, "in")
    assert not arrivals


def test_who_waits_no_longer_is_left_out() -> None:
    arrivals: Arrivals[None] = Arrivals()
    asked = [arrivals.add(send(n), None) for n in range(3)]
    arrivals.drop(asked[1])
    group = arrivals.take(0.0)
    assert numbers(group) == [0, 2]
    arrivals.drop(group[1])
    assert arrivals.answered(group, {1: "a"}) == [(asked[0], "a")]
    arrivals.drop(asked[0])
    arrivals.drop(arrivals.add(send(3), None))
    assert not arrivals, "whose answer nobody waits for comes no more"


def test_one_alone_is_its_own_op() -> None:
    assert isinstance(joined(arrived(send(0)).take(0.0)), ops.Send)


@pytest.fixture
def bell() -> Generator[DeskBell]:
    one = DeskBell("onceq_test", lambda: None)
    yield one
    one.close()


def ring(bell: DeskBell, token: bytes, times: int = 1) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as ringer:
        for _ in range(times):
            ringer.sendto(token, ("127.0.0.1", bell.port))


def test_a_bell_rings_whom_the_token_names(bell: DeskBell) -> None:
    rung: list[str] = []
    tokens = {name: bell.add(partial(rung.append, name)) for name in "abc"}
    ring(bell, tokens["b"])
    assert not bell.hear()
    assert rung == ["b"]
    bell.remove(tokens["b"])
    ring(bell, tokens["b"])
    assert not bell.hear(), "one that has left is no reason to be deaf"
    assert (rung, bell.rubbish) == (["b"], 1)
    ring(bell, bytes.fromhex(bell.text().split(" ")[3]))
    bell.hear()
    assert rung == ["b", "a", "c"], "whoever cannot say whom rings all"


def test_what_a_bell_could_not_hold_is_noticed(bell: DeskBell) -> None:
    """However much the system keeps of a flood: the ring that is lost is one of a clerk's."""
    rung: list[str] = []
    one, last = (bell.add(partial(rung.append, name)) for name in "ab")
    gone = bell.add(lambda: None)
    bell.remove(gone)
    for _ in range(20):
        ring(bell, gone, 5)
        ring(bell, one, bell.many)
    ring(bell, last)
    while "b" not in rung:
        before = len(rung)
        bell.hear()
        assert len(rung) > before, "it was lost, and nobody noticed"


def test_more_than_a_bell_can_hold_rings_all(bell: DeskBell) -> None:
    rung: list[str] = []
    one, _ = (bell.add(partial(rung.append, name)) for name in "ab")
    ring(bell, one, bell.many - 1)
    bell.hear()
    assert rung == ["a"] * (bell.many - 1), "as many as it holds is nothing unusual in a crowd"
    ring(bell, one, bell.many)
    bell.hear()
    assert rung[bell.many - 1 :] == [*["a"] * bell.many, "a", "b"]


def test_rubbish_rings_nobody(bell: DeskBell) -> None:
    rung: list[str] = []
    bell.add(lambda: rung.append("a"))
    for size in (0, 1, 15, 16, 17, 100):
        ring(bell, secrets.token_bytes(size))
    assert not bell.hear()
    assert (rung, bell.rubbish) == ([], 6)
    ring(bell, secrets.token_bytes(16), bell.many)
    assert bell.hear(), "so much is a reason to be deaf for a while"


def test_who_is_rung_looks_late_and_a_crowd_seldom(bell: DeskBell) -> None:
    rung: list[str] = []
    token = bell.add(partial(rung.append, "a"))
    keys = ("reply", "receive", "environment")
    op, received, other = (ops.Wait(key=key, first=True) for key in keys)
    now = time.monotonic()
    new = bell.pace(op, now)
    assert new == RUNG_PACES["reply"]
    ring(bell, token)
    bell.hear()
    heard = bell.pace(op, now)
    assert heard.first_s == FIRST_S > new.first_s, "datagrams get here: a look sees nothing"
    assert bell.pace(op, time.monotonic() + TRUSTED_S) == new, "it is long ago"
    assert bell.pace(received, now) == RUNG, "it may have been rung before"
    for _ in range(5 * LOOKS_PER_S):
        bell.add(partial(rung.append, "b"))
    assert bell.pace(op, now).longest_s == pytest.approx(5, rel=0.01)
    assert bell.pace(other, now) == pace_of("environment", is_rung=True)


def test_waits_end_in_time_and_those_of_one_tick_together() -> None:
    long: list[str] = []

    async def run() -> None:
        loop, ends = asyncio.get_running_loop(), Ends(lambda: long.append("long"))

        async def wait(timeout_s: float) -> float:
            one, began = loop.create_future(), loop.time()
            ends.add(one, timeout_s)
            assert await one
            return loop.time() - began

        given = [0.002, *[0.05] * 20, 0.3]
        took = await asyncio.gather(*map(wait, given))
        assert all(late_s > -0.001 for late_s in map(operator.sub, took, given))
        told = len(long)
        assert 2 <= told <= 4, "one timer, and one word that datagrams may not get here"
        rung = loop.create_future()
        ends.add(rung, 0.02)
        rung.set_result(True)
        await asyncio.sleep(0.1)
        assert len(long) == told, "who was rung has not waited in vain"

    asyncio.run(run())


def test_a_ring_ends_a_wait_or_the_next_one(bell: DeskBell) -> None:
    first, later = (
        ops.Wait(key="receive", first=True, timeout_s=60.0),
        ops.Wait(key="receive", first=False),
    )

    async def run() -> None:
        sleeper = AsyncSleeper(bell, Ends(lambda: None))
        sleeper()
        assert await sleeper.wait(first), "it was rung before"
        waiting = asyncio.ensure_future(sleeper.wait(later))
        bell.ring_all()
        assert waiting.done()
        sleeper.close()
        assert await sleeper.wait(later), "nobody rings: it ends by itself"
        assert not await sleeper.wait(ops.Wait(key="receive", first=True, timeout_s=0.0))

    asyncio.run(run())


def test_threads_share_a_desk(qm: onceq.QueueManager) -> None:
    qm.declare(RAW)
    values: dict[str, bytes] = {}

    def work(clerk: onceq.Clerk[bytes, bytes], name: str) -> None:
        with clerk:
            for n in range(3):
                values[f"{name}-{n}"] = clerk.transceive(str(n), name.encode(), timeout_s=60).value

    with (
        serving(qm.located.conninfo, qm.repository, RAW.handled_by(lambda body, _: body)),
        qm.clerks(connections=2) as clerks,
    ):
        names = [f"c{n}" for n in range(8)]
        threads = [
            threading.Thread(target=work, args=(clerks.clerk(name, RAW), name)) for name in names
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
    assert values == {f"{name}-{n}": name.encode() for name in names for n in range(3)}
    with pytest.raises(CannotConnect, match="closed"):
        clerks.clerk("c0", RAW).connect()


def test_ctrl_c_in_a_call_leaves_the_desk_to_the_others(qm: onceq.QueueManager) -> None:
    qm.declare(RAW)
    with qm.clerks(connections=1) as clerks:
        cut, other = clerks.clerk("cut", RAW).connect(), clerks.clerk("other", RAW).connect()
        cut.send("1", b"x")
        timer = threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT))

        def receive_and_be_struck() -> None:
            timer.start()
            cut.receive(timeout_s=200)

        began = time.monotonic()
        with pytest.raises(KeyboardInterrupt):
            receive_and_be_struck()
        assert time.monotonic() - began < 100
        assert other.send("1", b"x").state == "new"
        cut.connect()
        assert cut.last_sent == "1"


def test_a_desk_is_of_one_process(qm: onceq.QueueManager) -> None:
    qm.declare(RAW)
    with qm.clerks(connections=1) as clerks:
        clerk = clerks.clerk("one", RAW).connect()
        child = os.fork()
        if child == 0:
            try:
                clerk.send("1", b"x")
            except IllegalState:
                os._exit(7)
            os._exit(1)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
        assert clerk.send("1", b"x").state == "new"
