"""`onceq periodic ...` and `onceq tend`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec
import pytest

import onceq

if TYPE_CHECKING:
    from tests.cli.parts import Cli

DAY_S = 86_400.0


class Order(msgspec.Struct):
    cents: int


ORDERS = onceq.Queue("orders", Order, Order)
NIGHTLY = ("periodic", "create", "nightly", "orders", "0 2 * * *", '{"cents": 7}')


@pytest.fixture
def cli(cli: Cli, qm: onceq.QueueManager) -> Cli:
    qm.declare(ORDERS)
    return cli


def test_one_is_made_shown_changed_and_removed(cli: Cli) -> None:
    made = cli.json(*NIGHTLY, "--zone", "Europe/Berlin").item
    assert (made["periodic"], made["created"]) == ("nightly", True)
    assert cli.json(*NIGHTLY, "--zone", "Europe/Berlin").item["created"] is False
    assert "zone is 'Europe/Berlin', declared 'UTC'" in cli(*NIGHTLY, code=1).err
    shown = cli.json("periodic", "show", "nightly").item
    wanted = {
        "queue": "orders",
        "schedule": "0 2 * * *",
        "zone": "Europe/Berlin",
        "missed": "last",
        "overlap": False,
        "is_paused": False,
        "body": '{"cents": 7}',
        "lag_s": 0.0,
        "error": None,
        "eid": None,
        "ticked_at": None,
    }
    assert {name: shown[name] for name in wanted} == wanted
    after = cli.json("periodic", "alter", "nightly", "--missed", "all", "--overlap").item
    assert (after["missed"], after["overlap"], after["zone"]) == ("all", True, "Europe/Berlin")
    assert after["body"] == '{"cents": 7}'
    after = cli.json("periodic", "alter", "nightly", "--body", "raw", "--raw", "--zone", "UTC").item
    assert (after["zone"], after["missed"]) == ("UTC", "all")
    assert cli.json("periodic", "alter", "nightly", "--schedule", "5 * * * *").item["body"]
    assert [one["schedule"] for one in cli.json("periodic", "list").lines] == ["5 * * * *"]
    assert cli.json("periodic", "remove", "nightly").item["removed"] is True
    assert cli.json("periodic", "list").lines == []


def test_one_is_paused_and_resumed(cli: Cli) -> None:
    cli(*NIGHTLY)
    assert cli.json("periodic", "pause", "nightly").item["changed"] is True
    assert cli.json("periodic", "pause", "nightly").item["changed"] is False
    assert "paused" in cli("periodic", "list").out
    assert cli.json("periodic", "resume", "nightly").item["changed"] is True
    assert "paused" not in cli("periodic", "list").out


def test_what_is_due_is_sent_and_served(cli: Cli, qm: onceq.QueueManager, onceq_clock: Any) -> None:
    cli(*NIGHTLY)
    assert cli.json("tend").item["sent"] == 0
    onceq_clock.advance(2 * DAY_S)
    assert " d " in cli("periodic", "list").out  # late by days
    assert cli.json("tend").item["sent"] == 1
    assert "runs" in cli("periodic", "list").out
    element = qm.dequeue("orders")
    assert element is not None
    assert ORDERS.decode_request(element.body, element.content_type) == Order(7)


def test_a_queue_that_refuses_says_so(cli: Cli, onceq_clock: Any) -> None:
    cli(*NIGHTLY)
    cli("queue", "stop", "orders")
    onceq_clock.advance(DAY_S)
    cli("tend")
    listed = cli("periodic", "list").out
    assert "refused" in listed
    assert 'queue "orders" is stopped for enqueue' in listed


@pytest.mark.parametrize(
    ("words", "code", "says"),
    [
        (("create", "nightly", "nowhere", "0 2 * * *", "1"), 3, 'queue "nowhere" does not exist'),
        (("create", "nightly", "orders", "0 2 * *", "1"), 2, "it has 4 fields"),
        (("create", "nightly", "orders", "0 2 * * *", "x"), 2, "--raw sends bytes"),
        (("create", "nightly", "orders", "0 2 * * *", "1", "--zone", "X"), 2, "tzdata"),
        (("create", "nightly", "orders", "0 2 * * *", "1", "--missed", "X"), 2, "missed is one of"),
        (("create", "a b", "orders", "0 2 * * *", "1"), 2, "is not valid"),
        (("show", "nightly"), 3, "does not exist"),
        (("alter", "nightly", "--overlap"), 3, "does not exist"),
        (("pause", "nightly"), 3, "does not exist"),
        (("resume", "nightly"), 3, "does not exist"),
        (("remove", "nightly"), 3, "does not exist"),
    ],
)
def test_what_is_wrong_is_said(cli: Cli, words: tuple[str, ...], code: int, says: str) -> None:
    assert says in cli("periodic", *words, code=code).err
