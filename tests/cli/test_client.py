"""`onceq client list` and `onceq client forget`; what `onceq queue list` says of late."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

import onceq
from onceq.errors import IllegalState
from tests.parts import serving, wait_until

if TYPE_CHECKING:
    from tests.cli.parts import Cli

RAW = onceq.Queue("raw", bytes, bytes)


@pytest.fixture(autouse=True)
def _declared(qm: onceq.QueueManager) -> None:
    qm.declare(RAW)


@pytest.fixture
def till(qm: onceq.QueueManager) -> None:
    """A client that has sent two requests and gone away."""
    with qm.clerk("till", RAW, window=2) as clerk:
        clerk.connect()
        clerk.send("1", b"x")
        clerk.send("2", b"x")


@pytest.mark.usefixtures("till")
def test_clients_are_listed(cli: Cli) -> None:
    (row,) = cli.json("client", "list").lines
    assert (row["name"], row["state"], row["s_rid"]) == ("till", "connected", "2")
    assert (row["outstanding"], row["replies"], row["seen_at"]) == (2, 0, row["sent_at"])
    header, line = cli("client", "list", "till").out.splitlines()
    assert header.split()[:7] == [
        "name",
        "thread",
        "state",
        "epoch",
        "outstanding",
        "replies",
        "waits",
    ]
    assert line.split()[:7] == ["till", "-", "connected", "2", "2", "0", "no"]
    assert "'ann'" in cli("client", "list", "ann", code=3).err


@pytest.mark.usefixtures("till")
def test_a_connected_client_is_only_forgotten_by_force(cli: Cli, qm: onceq.QueueManager) -> None:
    refused = cli("client", "forget", "till", code=1)
    assert refused.out == ""
    assert 'client "till" is connected, with 2 request(s)' in refused.err
    assert qm.show("raw").depth == 2
    gone = cli.json("client", "forget", "till", "--force").item
    assert (gone["name"], gone["cancelled"], gone["s_rid"]) == ("till", 2, "2")
    assert qm.show("raw").depth == 0
    assert cli.json("client", "forget", "till").item["cancelled"] == 0
    (row,) = cli.json("client", "list").lines
    assert (row["state"], row["outstanding"]) == ("disconnected", 0)


def test_who_was_never_here_is_not_found(cli: Cli) -> None:
    assert "`onceq client list`" in cli("client", "forget", "ann", code=3).err


def test_a_queue_tells_its_oldest_and_its_rate(cli: Cli, qm: onceq.QueueManager) -> None:
    eids = [qm.enqueue(RAW, b"x") for _ in range(3)]
    waiting = {row["name"]: row for row in cli.json("queue", "list").lines}
    assert waiting["raw"]["oldest_age_s"] >= 0
    assert waiting["raw"]["done_per_minute"] == 0
    assert waiting["raw.error"]["oldest_age_s"] is None
    assert waiting["raw.error"]["done_per_minute"] is None
    with serving(cli.url, cli.repository, RAW.handled_by(lambda request, _: request)):
        wait_until(lambda: all(qm.lookup(eid=eid, state="finished") for eid in eids))
    lines = {line.split()[0]: line.split() for line in cli("queue", "list").out.splitlines()}
    assert lines["name"][-3:] == ["oldest", "done/min", "open"]
    assert lines["raw"][-3:] == ["-", "3", "enqueue+dequeue"]
    assert cli.json("queue", "show", "raw").item["done_per_minute"] == 3


@pytest.mark.usefixtures("till")
def test_reply_queues_are_hidden_unless_asked_for(cli: Cli) -> None:
    assert [row["kind"] for row in cli.json("queue", "list").lines] == ["request", "error"]
    assert "reply" in {row["kind"] for row in cli.json("queue", "list", "--all").lines}


@pytest.mark.usefixtures("till")
def test_a_closed_name_is_refused(cli: Cli, qm: onceq.QueueManager) -> None:
    assert 'client "till" is connected' in cli("client", "close", "till", code=1).err
    assert cli.json("client", "close", "till", "--force").item["cancelled"] == 2
    assert cli.json("client", "list").item["state"] == "closed"
    closed = pytest.raises(IllegalState, match="closed")
    with closed, qm.clerk("till", RAW) as clerk:
        clerk.connect()
    assert "nobody" in cli("client", "close", "nobody", code=3).err
