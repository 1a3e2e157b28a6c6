"""`onceq queue ...`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

import onceq

if TYPE_CHECKING:
    from tests.cli.parts import Cli


def test_create_shows_lists_and_destroys(cli: Cli) -> None:
    options = ("--abort-limit", "7", "--backoff-ms", "5", "--keep-body", "--no-durable")
    assert cli.json("queue", "create", "orders", *options).item["created"] is True
    assert cli.json("queue", "create", "orders", *options).item["created"] is False
    shown = cli.json("queue", "show", "orders").item
    assert shown["settings"]["abort_limit"] == 7
    assert shown["settings"]["backoff_ms"] == 5
    assert shown["settings"]["keep_body"] is True
    assert shown["settings"]["durable"] is False
    assert (shown["depth"], shown["open"]) == (0, "enqueue+dequeue")
    assert [one["name"] for one in cli.json("queue", "list").lines] == ["orders", "orders.error"]
    assert cli.json("queue", "destroy", "orders").item["destroyed"] is True
    assert cli.json("queue", "list").lines == []


def test_create_with_other_settings_is_a_mismatch(cli: Cli) -> None:
    cli("queue", "create", "orders")
    answer = cli("queue", "create", "orders", "--abort-limit", "9", code=1)
    assert "abort_limit is 5, declared 9" in answer.err
    assert answer.out == ""


def test_alter_changes_only_what_is_given(cli: Cli) -> None:
    cli("queue", "create", "orders", "--backoff-ms", "50")
    after = cli.json("queue", "alter", "orders", "--abort-limit", "2", "--keep-body").item
    assert (after["abort_limit"], after["backoff_ms"], after["keep_body"]) == (2, 50, True)
    assert "backoff_max_ms" in cli("queue", "alter", "orders", "--backoff-max-ms", "1", code=2).err


def test_limits(cli: Cli, qm: onceq.QueueManager) -> None:
    """Made, changed one by one, shown, and taken away; what goes over is refused."""
    cli("queue", "create", "orders", "--depth-max", "1", "--bytes-max", "100")
    assert cli.json("queue", "list").lines[0]["settings"]["limits"] == {"depth": 1, "bytes": 100}
    qm.enqueue(onceq.Queue("orders", bytes, bytes), b"x")
    with pytest.raises(onceq.QueueFull):
        qm.enqueue(onceq.Queue("orders", bytes, bytes), b"x")
    after = cli.json("queue", "alter", "orders", "--depth-max", "7").item
    assert after["limits"] == {"depth": 7, "bytes": 100}
    assert cli.json("queue", "alter", "orders", "--abort-limit", "7").item["limits"]["depth"] == 7
    after = cli.json("queue", "alter", "orders", "--no-limits", "--bytes-max", "9").item
    assert after["limits"] == {"depth": None, "bytes": 9}
    for bad in ("0", "-1", "1000000000001"):
        assert (
            "limits: depth is an int"
            in cli("queue", "alter", "orders", "--depth-max", bad, code=2).err
        )


def test_how_long_history_is_kept(cli: Cli) -> None:
    cli("queue", "create", "orders", "--history-days", "30")
    assert cli.json("queue", "show", "orders").item["settings"]["history_days"] == 30
    after = cli.json("queue", "alter", "orders", "--history-days", "7").item
    assert after["history_days"] == 7
    assert cli.json("queue", "alter", "orders", "--abort-limit", "7").item["history_days"] == 7
    assert cli.json("queue", "alter", "orders", "--no-retention").item["history_days"] is None
    for bad in ("0", "36501"):
        assert "history_days" in cli("queue", "alter", "orders", "--history-days", bad, code=2).err
        assert "history_days" in cli("queue", "create", "x", "--history-days", bad, code=2).err


def test_start_and_stop(cli: Cli, qm: onceq.QueueManager) -> None:
    queue = onceq.Queue("orders", bytes, bytes)
    qm.declare(queue)
    stopped = cli.json("queue", "stop", "orders").item
    assert (stopped["enqueue_started"], stopped["dequeue_started"]) == (False, False)
    started = cli.json("queue", "start", "orders", "--enqueue").item
    assert (started["enqueue_started"], started["dequeue_started"]) == (True, False)
    assert cli.json("queue", "show", "orders").item["open"] == "enqueue"
    assert qm.enqueue(queue, b"x") is not None


def test_a_queue_that_is_not_empty_is_not_destroyed(cli: Cli, qm: onceq.QueueManager) -> None:
    queue = onceq.Queue("orders", bytes, bytes)
    qm.declare(queue)
    qm.enqueue(queue, b"x")
    assert "not empty" in cli("queue", "destroy", "orders", code=1).err


def test_for_people(cli: Cli) -> None:
    cli("queue", "create", "a-queue-with-a-long-name-that-no-table-may-cut-in-a-pipe")
    listed = cli("queue", "list").out.splitlines()
    assert listed[0].split()[:3] == ["name", "kind", "depth"]
    assert listed[1].split()[0] == "a-queue-with-a-long-name-that-no-table-may-cut-in-a-pipe"
    assert "abort_limit" in cli("queue", "show", listed[1].split()[0]).out


def test_scan_shows_what_is_there_and_leaves_it(cli: Cli, qm: onceq.QueueManager) -> None:
    queue = onceq.Queue("orders", bytes, bytes)
    qm.declare(queue)
    eids = [str(qm.enqueue(queue, b"one", rid="1")), str(qm.enqueue(queue, b"two", rid="2"))]
    lines = cli.json("queue", "scan", "orders").lines
    assert [(one["eid"], one["state"], one["body_bytes"]) for one in lines] == [
        (eid, "queued", 3) for eid in eids
    ]
    assert lines[0].keys().isdisjoint({"body", "seq", "lane", "queue_id"})
    (first,) = cli.json("queue", "scan", "orders", "--limit", "1", "--body").lines
    assert (first["rid"], first["body"]) == ("1", "b25l")
    table = cli("queue", "scan", "orders").out
    assert [line.split()[:3] for line in table.splitlines()[1:]] == [
        [eids[0], "1", "queued"],
        [eids[1], "2", "queued"],
    ]
    assert cli.json("queue", "scan", "orders.error").lines == []
    assert "does not exist" in cli("queue", "scan", "nowhere", code=3).err
    assert cli("queue", "scan", "orders", "--limit", "0", code=2).out == ""
    assert qm.show("orders").ready == 2
