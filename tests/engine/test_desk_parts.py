"""The parts of a desk: its arrivals, its bell, and its thread."""

from __future__ import annotations

import os
import secrets
import signal
import socket
import threading
import time
from typing import TYPE_CHECKING, Any

import pytest

import onceq
from onceq.engine.desk.arrivals import Arrivals, joined
from onceq.engine.wake.desk_bell import MANY, DeskBell
from onceq.errors import CannotConnect, IllegalState
from onceq.model import desk_ops, ops
from tests.parts import serving

if TYPE_CHECKING:
    from collections.abc import Generator

RAW = onceq.Queue("raw", bytes, bytes, backoff_ms=0)


def send(n: int, **fields: Any) -> ops.Send:
    given: dict[str, Any] = {"queue": "raw", "send_no": n, "ack": [], **fields}
    return ops.Send(
        who=ops.Identity(registrant_id=n, epoch=1),
        request=ops.Request(rid=str(n), body=b""),
        **given,
    )


def receive(n: int) -> ops.Receive:
    who = ops.Identity(registrant_id=n, epoch=1)
    return ops.Receive(who=who, skip=[], s_rid=None, s_no=0)


def numbers(group: list[Any]) -> list[int]:
    return [asked.number for asked in group]


def test_who_came_first_takes_along_who_may() -> None:
    arrivals: Arrivals[None] = Arrivals()
    for n in range(3):
        arrivals.add(send(n), None)
        arrivals.add(receive(n), None)
    arrivals.add(send(3, queue="other"), None)
    arrivals.add(send(4, ack=["a", "b"]), None)
    arrivals.add(send(5, keep=1), None)
    assert numbers(arrivals.take()) == [0, 2, 4, 8]
    assert numbers(arrivals.take()) == [1, 3, 5]
    assert [numbers(arrivals.take()) for _ in range(2)] == [[6], [7]]
    assert not arrivals


def test_a_group_is_bounded_and_in_order() -> None:
    arrivals: Arrivals[None] = Arrivals()
    for n in range(250):
        arrivals.add(send(n), None)
    sizes = []
    while arrivals:
        group = arrivals.take()
        assert numbers(group) == sorted(numbers(group))
        sizes.append(len(group))
    assert sizes == [desk_ops.GROUP_MAX, desk_ops.GROUP_MAX, 50]


def test_who_falls_out_goes_next_and_alone() -> None:
    arrivals: Arrivals[None] = Arrivals()
    for n in range(3):
        arrivals.add(send(n), None)
    group = arrivals.take()
    arrivals.add(send(3), None)
    arrivals.put_back(group[1:])
    assert [numbers(arrivals.take()) for _ in range(3)] == [[1], [2], [3]]
    arrivals.put_back([])
    assert not arrivals


def test_who_has_no_answer_goes_next_and_alone() -> None:
    arrivals: Arrivals[None] = Arrivals()
    for n in range(3):
        arrivals.add(send(n), None)
    group = arrivals.take()
    told = arrivals.answered(group, {1: "a", 3: "c"})
    assert [(asked.number, answer) for asked, answer in told] == [(0, "a"), (2, "c")]
    assert numbers(arrivals.take()) == [1]


def test_who_waits_no_longer_is_left_out() -> None:
    arrivals: Arrivals[None] = Arrivals()
    asked = [arrivals.add(send(n), None) for n in range(3)]
    asked[1].is_dropped = True
    assert numbers(arrivals.take()) == [0, 2]
    arrivals.add(send(3), None).is_dropped = True
    assert arrivals.take() == []
    assert not arrivals


def test_one_alone_is_its_own_op() -> None:
    arrivals: Arrivals[None] = Arrivals()
    arrivals.add(send(0), None)
    assert isinstance(joined(arrivals.take()), ops.Send)


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
    tokens = {name: bell.add(lambda name=name: rung.append(name)) for name in "abc"}
    ring(bell, tokens["b"])
    assert not bell.hear()
    assert rung == ["b"]
    bell.remove(tokens["b"])
    ring(bell, tokens["b"])
    assert bell.hear(), "all of it was rubbish"
    assert (rung, bell.rubbish) == (["b"], 1)
    ring(bell, bytes.fromhex(bell.text().split(" ")[3]))
    bell.hear()
    assert rung == ["b", "a", "c"], "whoever cannot say whom rings all"


def test_more_than_a_bell_can_hold_rings_all(bell: DeskBell) -> None:
    rung: list[str] = []
    one, _ = (bell.add(lambda name=name: rung.append(name)) for name in "ab")
    ring(bell, one, MANY)
    bell.hear()
    assert rung == [*["a"] * MANY, "a", "b"]


def test_rubbish_rings_nobody(bell: DeskBell) -> None:
    rung: list[str] = []
    bell.add(lambda: rung.append("a"))
    for size in (0, 1, 15, 16, 17, 100):
        ring(bell, secrets.token_bytes(size))
    assert bell.hear()
    assert (rung, bell.rubbish) == ([], 6)


def test_threads_share_a_desk(qm: onceq.QueueManager) -> None:
    qm.declare(RAW)
    values: dict[str, bytes] = {}

    def work(clerk: onceq.Clerk[bytes, bytes], name: str) -> None:
        with clerk:
            for n in range(3):
                values[f"{name}-{n}"] = clerk.transceive(str(n), name.encode(), timeout_s=30).value

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
        timer.start()
        began = time.monotonic()
        with pytest.raises(KeyboardInterrupt):
            cut.receive(timeout_s=20)
        assert time.monotonic() - began < 10
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
