"""`onceq request show`, `error list`, `redrive`, `kill`."""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING

import pytest

import onceq
from onceq.cli.held import where_in
from onceq.model import ops
from tests.parts import linked, serving, wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.cli.parts import Cli

ORDERS = onceq.Queue("orders", bytes, bytes, abort_limit=2, backoff_ms=1)


def handler(request: bytes, context: onceq.Context) -> bytes:
    """Fails what is bad, but for the second time that an operator has it run."""
    if request == b"bad" and context.correlation_id is None:
        raise ValueError("it is bad")
    return request


@pytest.fixture
def failed(cli: Cli, qm: onceq.QueueManager) -> Iterator[uuid.UUID]:
    """The eid of a request "2" that failed; "1" is done; a server runs."""
    qm.declare(ORDERS)
    with (
        serving(cli.url, cli.repository, ORDERS.handled_by(handler)),
        qm.clerk("till", ORDERS, window=2) as clerk,
    ):
        clerk.send("1", b"good")
        sent = clerk.send("2", b"bad")
        assert clerk.receive(rid="2", timeout_s=60).outcome is onceq.RequestOutcome.FAILED
        clerk.receive(rid="1", timeout_s=60)
        yield sent.eid


def test_show_tells_every_place(cli: Cli, failed: uuid.UUID) -> None:
    places = cli.json("request", "show", "2").lines
    assert sorted(one["state"] for one in places) == ["finished", "held", "replied"]
    finished = next(one for one in places if one["state"] == "finished")
    assert finished["eid"] == str(failed)
    assert (finished["attempts"], finished["code"], finished["error"]) == (
        2,
        "ValueError",
        "it is bad",
    )
    assert finished["enqueued_at"] < finished["finished_at"]
    by_eid = cli.json("request", "show", str(failed)).lines
    assert {one["rid"] for one in by_eid} == {"2"}
    assert "ValueError" in cli("request", "show", "2", "--client", "till").out
    cli("request", "show", "2", "--client", "nobody", code=3)
    assert "no request '99'" in cli("request", "show", "99", code=3).err


def test_show_tells_every_abort(cli: Cli, failed: uuid.UUID) -> None:
    rows = cli.json("request", "show", str(failed)).lines
    finished = next(one for one in rows if one["state"] == "finished")
    assert len(finished["aborted"]) == finished["attempts"]
    last = finished["aborted"][-1]
    assert (last["code"], last["charge"]) == ("ValueError", "charge")
    assert last["pid"] or last["server"]
    assert 'File "' in last["traceback"]
    shown = cli("request", "show", str(failed)).out
    assert "abort 1" in shown
    assert shown.count('    raise ValueError("it is bad")') == len(
        rows
    )  # once each, not once an abort


def test_find_shows_what_has_ended_the_latest_first(cli: Cli, qm: onceq.QueueManager) -> None:
    qm.declare(ORDERS)
    for number in range(7):
        qm.kill(qm.enqueue(ORDERS, b"x", rid=f"r{number}"))
    found = cli.json("request", "find", "--queue", "orders", "--outcome", "cancelled").lines
    assert [one["rid"] for one in found] == [f"r{number}" for number in reversed(range(7))]
    assert found[0]["v"] == 1
    assert (found[0]["code"], found[0]["waited_s"]) == ("killed", None)
    since = cli.json("request", "find", "--since", found[2]["finished_at"]).lines
    assert since == found[:3]
    words = ("--until", found[2]["finished_at"], "--limit", "2")
    assert cli.json("request", "find", *words).lines == found[3:5]
    assert "r6" in cli("request", "find", "--limit", "1").out
    cli("request", "find", "--registrant", "nobody", code=3)
    assert "is a time like" in cli("request", "find", "--since", "noon", code=2).err


def test_show_tells_the_server_of_what_runs(cli: Cli, qm: onceq.QueueManager) -> None:
    qm.declare(ORDERS)
    assert cli.json("request", "show", "x", code=3).lines == []
    qm.enqueue(ORDERS, b"good", rid="x")
    (queued,) = cli.json("request", "show", "x").lines
    assert (queued["state"], queued["attempts"], queued["server_pid"]) == ("queued", 0, None)
    with linked(cli.url, cli.repository) as link:
        opening = ops.OpenIncarnation(process=uuid.uuid4(), host="far", pid=7)
        claim = ops.Claim(
            incarnation=link.perform(opening).incarnation,
            queue_id=qm.show("orders").queue_id,
            n=1,
            turn=1,
            alone=True,
        )
        assert len(link.perform(claim)) == 1
        (running,) = cli.json("request", "show", "x").lines
    assert (running["state"], running["attempts"]) == ("executing", 0)
    assert (running["server_host"], running["server_pid"]) == ("far", 7)


def test_errors_are_listed_and_redriven(cli: Cli, failed: uuid.UUID) -> None:
    (held,) = cli.json("error", "list").lines
    assert (held["eid"], held["queue"], held["code"]) == (str(failed), "orders.error", "ValueError")
    assert held["where"].startswith("test_requests.py:")
    assert held["where"].endswith(" in handler")
    assert held["where"] in cli("error", "list").out
    assert held["traceback"].endswith("ValueError: it is bad\n")
    assert cli.json("error", "list", "--queue", "orders").lines == [held]
    assert cli.json("error", "list", "--queue", "orders.error").lines == [held]
    (new,) = cli.json("redrive", str(failed)).lines
    assert new["old_eid"] == str(failed) != new["eid"]
    wait_until(lambda: _outcomes(cli, new["rid"]) == ["done"])
    assert cli.json("error", "list").lines == []
    assert "not held" in cli("redrive", str(failed), code=3).err


AT = """Traceback (most recent call last):
  File "/srv/shop/orders.py", line 21, in book
    row = context.connection.execute(
"""
IN_A_PACKAGE = (
    '  File "/srv/env/lib/python3.11/site-packages/psycopg/connection.py", line 304, in f\n'
)
IN_THE_LIBRARY = '  File "/usr/lib/python3.11/json/decoder.py", line 355, in raw_decode\n'
FROZEN = '  File "<frozen importlib._bootstrap>", line 1, in g\n'


@pytest.mark.parametrize(
    ("traceback", "where"),
    [
        (AT, "orders.py:21 in book"),
        (AT + IN_A_PACKAGE, "orders.py:21 in book"),
        (AT + IN_THE_LIBRARY + FROZEN, "orders.py:21 in book"),
        (IN_THE_LIBRARY, "decoder.py:355 in raw_decode"),
        ("nothing", None),
        (None, None),
    ],
)
def test_where_is_the_last_line_in_the_users_own_code(
    traceback: str | None, where: str | None
) -> None:
    assert where_in(traceback) == where


def test_all_of_a_queue_is_redriven(cli: Cli, failed: uuid.UUID) -> None:
    (new,) = cli.json("redrive", "--queue", "orders", "--all").lines
    assert new["old_eid"] == str(failed)
    nothing = cli.json("redrive", "--queue", "orders.error", "--all")
    assert nothing.lines == []
    assert "nothing was there to redrive" in nothing.err


@pytest.mark.parametrize("words", [(), ("--all",), ("--queue", "orders"), ("EID", "--all")])
def test_redrive_asks_which(cli: Cli, words: tuple[str, ...]) -> None:
    assert "give an EID; or which are meant (--queue, " in cli("redrive", *words, code=2).err


def test_kill(cli: Cli, qm: onceq.QueueManager) -> None:
    qm.declare(ORDERS)
    eid = qm.enqueue(ORDERS, b"x", rid="r")
    assert cli.json("kill", "r").item["answer"] == "KILLED"
    assert cli.json("kill", str(eid)).item["answer"] == "KILLED"
    assert cli.json("kill", str(uuid.uuid4()), code=3).item["answer"] == "NOT_FOUND"
    qm.enqueue(ORDERS, b"x", rid="twice")
    qm.enqueue(ORDERS, b"x", rid="twice")
    assert "give an eid" in cli("kill", "twice", code=2).err


def test_kill_too_late(cli: Cli, failed: uuid.UUID) -> None:
    assert cli.json("kill", str(failed), code=1).item["answer"] == "TOO_LATE"


def _outcomes(cli: Cli, rid: str) -> list[str]:
    return [one["outcome"] for one in cli.json("request", "show", rid).lines]
