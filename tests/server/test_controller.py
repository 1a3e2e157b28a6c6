"""A workflow controller in a server: requests of several types in one queue, also in a batch."""

from __future__ import annotations

import msgspec
import pytest

import onceq
from onceq.errors import RequestFailed
from tests.parts import serving


class Open(msgspec.Struct, tag=True):
    owner: str


class Close(msgspec.Struct, tag=True):
    number: int


ACCOUNTS = onceq.Queue[Open | Close, str]("accounts", Open | Close, str, abort_limit=1)


def begin(one: Open, context: onceq.Context) -> str:
    return f"{context.rid}: opened for {one.owner}"


def end(one: Close, context: onceq.Context) -> str:
    if one.number < 0:
        raise LookupError(f"no account {one.number}")
    return f"{context.rid}: closed {one.number}"


@pytest.mark.parametrize("batch", [1, 10])
def test_each_request_is_dispatched_and_fails_alone(
    qm: onceq.QueueManager, conninfo: str, batch: int
) -> None:
    qm.declare(ACCOUNTS)
    handled = ACCOUNTS.handled_by({Open: begin, Close: end}, batch=batch)
    with qm.clerk("till", ACCOUNTS, window=10) as clerk:
        clerk.send_many([("a", Open("ann")), ("b", Close(-1)), ("c", Close(7))])
        with serving(conninfo, qm.repository, handled):
            replies = {reply.rid: reply for reply in (clerk.receive(timeout_s=60) for _ in "abc")}
    assert (replies["a"].value, replies["c"].value) == ("a: opened for ann", "c: closed 7")
    with pytest.raises(RequestFailed) as failed:
        _ = replies["b"].value
    assert failed.value.code == "LookupError"
