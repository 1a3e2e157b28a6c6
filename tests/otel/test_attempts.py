"""What is executed again, or sent again, as spans tell of it: aborts, batches, kill -9 (Q14)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

import onceq
from onceq.engine.perform import together
from tests.cli.parts import Cli
from tests.cli.test_serve import service
from tests.lives import living
from tests.otel.app import ORDERS as SERVED
from tests.otel.app import VARIABLE
from tests.otel.parts import ATTEMPT, Exported, attributes, linked, parent, span_id
from tests.parts import LIMIT_S, serving, wait_until

if TYPE_CHECKING:
    from pathlib import Path

    import pytest

ORDERS = onceq.Queue("orders", str, str, backoff_ms=0, abort_limit=3)
APP = "tests.otel.app:server"


def test_each_attempt_has_a_span_that_is_linked_to_the_send(
    exported: Exported, qm: onceq.QueueManager, conninfo: str
) -> None:
    def handle(request: str, context: onceq.Context) -> str:
        if context.attempt == 1:
            raise ValueError(request)
        if context.attempt == 2:
            context.connection.execute("select 1/0")
        raise onceq.Reject("never")

    with (
        serving(conninfo, qm.repository, ORDERS.handled_by(handle)),
        qm.clerk("till", ORDERS) as clerk,
    ):
        clerk.send("1", "x")
        clerk.receive(timeout_s=LIMIT_S)
        exported.wait_for("abort", 3)
    sent = exported.one("send")
    processed, aborted = exported.of("process"), exported.of("abort")
    assert [attributes(one)[ATTEMPT] for one in processed] == [1, 2, 3]
    errors = ["ValueError", "StatementRefused", "Reject"]
    assert [attributes(one)["error.type"] for one in processed] == errors
    assert [attributes(one).get("messaging.onceq.last_abort") for one in processed] == [
        None,
        *errors[:2],
    ]
    assert [attributes(one)["messaging.onceq.charge"] for one in aborted] == [
        "charge",
        "charge",
        "reject",
    ]
    for one in (*exported.of("claim"), *processed, *aborted):
        assert linked(one) == [span_id(sent)]
    assert [parent(one) for one in aborted] == [span_id(one) for one in processed]


def test_a_batch_settles_many_and_each_is_linked_to_its_own_send(
    exported: Exported,
    qm: onceq.QueueManager,
    conninfo: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(together, "LASTS_S", LIMIT_S)
    qm.declare(ORDERS)
    sends = {str(n): qm.enqueue(ORDERS, "x", rid=str(n)) for n in range(4)}
    ids = {rid: span_id(exported.one("enqueue", rid=rid)) for rid in sends}

    def handle(request: str, context: onceq.Context) -> str:
        if context.rid == "2" and context.attempt == 1:
            raise ValueError(request)
        return request

    with serving(conninfo, qm.repository, ORDERS.handled_by(handle, batch=10)):
        wait_until(lambda: len(qm.find(queue="orders")) == 4)
        wait_until(lambda: bool(exported.of("process", rid="2", **{ATTEMPT: 2})))
        wait_until(lambda: bool(exported.of("finish", rid="2")))
    for rid, sent in ids.items():
        processed = exported.of("process", rid=rid)
        assert {link for one in processed for link in linked(one)} == {sent}
    claimed = exported.one("claim", **{"messaging.batch.message_count": 4})
    assert linked(claimed) == list(ids.values())
    finished = exported.one("finish", **{"messaging.batch.message_count": 2})
    assert linked(finished) == [ids["0"], ids["1"]]
    assert parent(finished) is None
    assert [attributes(one).get("error.type") for one in exported.of("process", rid="2")] == [
        "ValueError",
        "ValueError",
        None,
    ]


def test_what_is_sent_again_keeps_the_first_context(
    exported: Exported, qm: onceq.QueueManager, conninfo: str
) -> None:
    """As a client does that does not know whether its send was committed."""
    qm.declare(ORDERS)
    for state in ("new", "queued"):
        with qm.clerk("till", ORDERS, window=3) as clerk:
            assert clerk.send("1", "x").state == state
    with qm.clerks() as clerks, clerks.clerk("till", ORDERS, window=3) as clerk:
        assert clerk.send("1", "x").state == "queued"
    with qm.clerk("till", ORDERS, window=3) as many:
        many.send_many([("1", "x"), ("2", "y")])
    first, *again = exported.of("send")
    assert len(again) == 3
    with living(conninfo, qm.repository) as life:
        elements = life.claim("orders", 2)
        assert {one.rid: one.properties for one in elements} == {"1": None, "2": None}
        traces = {one.rid: one.trace or "" for one in elements}
        assert f"{span_id(first):016x}" in traces["1"]
        assert f"{span_id(again[-1]):016x}" in traces["2"]


def test_what_is_redriven_is_linked_to_the_first_send(
    exported: Exported, qm: onceq.QueueManager, conninfo: str
) -> None:
    def handle(request: str, context: onceq.Context) -> str:
        if context.rid == "1":
            raise onceq.Reject("not now")
        return request

    with (
        serving(conninfo, qm.repository, ORDERS.handled_by(handle)),
        qm.clerk("till", ORDERS) as clerk,
    ):
        clerk.send("1", "x")
        clerk.receive(timeout_s=LIMIT_S)
        (held,) = qm.held(queue="orders")
        redriven = qm.redrive(held.eid)
        assert redriven is not None
        (again,) = exported.wait_for("process", rid=redriven[1])
    assert linked(again) == [span_id(exported.one("send"))]


def test_kill_9_in_the_middle_and_a_second_attempt(
    exported: Exported,
    qm: onceq.QueueManager,
    conninfo: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The first attempt is a span of its claim: its process had no time for more."""
    monkeypatch.setenv(VARIABLE, f"at-once {tmp_path / 'spans'}")
    cli = Cli(conninfo, qm.repository)
    qm.declare(SERVED)
    with service(cli, APP) as running, qm.clerk("till", SERVED) as clerk:
        clerk.send("1", str(tmp_path / "killed"))
        clerk.receive(timeout_s=LIMIT_S)
        assert running.stop() == 0
    sent = span_id(exported.one("send"))
    spans = spans_in(tmp_path / "spans")
    claims, processed = of(spans, "claim"), of(spans, "process")
    assert [one["attributes"][ATTEMPT] for one in claims] == [1, 2]
    assert [one["attributes"][ATTEMPT] for one in processed] == [2]
    assert processed[0]["attributes"]["messaging.onceq.last_abort"] == "server_died"
    assert len(of(spans, "finish")) == 1
    for one in spans:
        assert [int(link["context"]["span_id"], 16) for link in one["links"]] == [sent]


def test_a_stop_of_the_service_exports_what_was_to_be(
    qm: onceq.QueueManager, conninfo: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its processes end at once after it, and a batch would have waited for five seconds."""
    monkeypatch.setenv(VARIABLE, f"in-batches {tmp_path / 'spans'}")
    qm.declare(SERVED)
    with service(Cli(conninfo, qm.repository), APP) as running:
        with qm.clerk("till", SERVED) as clerk:
            clerk.transceive("1", "", timeout_s=LIMIT_S)
        assert running.stop() == 0
    assert len(of(spans_in(tmp_path / "spans"), "process")) == 1


def spans_in(file: Path) -> list[dict[str, Any]]:
    return [msgspec.json.decode(line) for line in file.read_bytes().splitlines()]


def of(spans: list[dict[str, Any]], name: str) -> list[dict[str, Any]]:
    return [one for one in spans if one["name"] == f"{name} orders"]
