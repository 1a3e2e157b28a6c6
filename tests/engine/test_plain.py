"""The plain case goes its short way, and whatever is rare goes the general one (ADR 24)."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest
from msgspec.structs import replace

import onceq
from onceq.errors import StatementRefused
from onceq.model import ops
from tests.lives import living
from tests.parts import driving, install_variant, plain, rows, scalar

if TYPE_CHECKING:
    from collections.abc import Callable

    from onceq.engine.perform.driver import PostgresDriver

RAW = onceq.Queue("raw", bytes, bytes, backoff_ms=0)
VOLATILE = onceq.Queue("volatile", bytes, bytes, durable=False)
LATER = datetime.now(UTC) + timedelta(days=1)
GENERAL = "the general function"


def close_general_way(conninfo: str, repository: str, name: str) -> None:
    """Lets a general function refuse: what succeeds did not need it."""
    refusal = f"\nbegin\n    raise exception '{GENERAL}';\n"
    install_variant(conninfo, repository, name, ("\nbegin\n", refusal))


# --- sends --------------------------------------------------------------------------------------


def send_op(life: ops.Connection, rid: str = "1", **request: Any) -> ops.Send:
    return ops.Send(
        who=life.who,
        queue="raw",
        request=ops.Request(rid=rid, body=b"x", **request),
        send_no=1,
        ack=[],
    )


PLAIN: dict[str, Callable[[ops.Send], ops.Send]] = {
    "as it is": lambda op: op,
    "with properties": lambda op: replace(op, request=replace(op.request, properties={"a": 1})),
    "asleep": lambda op: replace(op, sleep=True),
    "acknowledging": lambda op: replace(op, ack=["0"]),
    "acknowledging, and keeping": lambda op: replace(op, ack=["0"], keep=1),
}
RARE: dict[str, Callable[[ops.Send], ops.Send]] = {
    "due later": lambda op: replace(op, request=replace(op.request, not_before=LATER)),
    "expiring": lambda op: replace(op, request=replace(op.request, expires_at=LATER)),
    "in a lane that is not open": lambda op: replace(op, request=replace(op.request, priority=9)),
    "with no priority": lambda op: replace(op, request=replace(op.request, priority=10)),
    "to a volatile queue": lambda op: replace(op, queue="volatile"),
    "to no queue": lambda op: replace(op, queue="nowhere"),
    "to a stopped queue": lambda op: replace(op, queue="stopped"),
    "to a reply queue": lambda op: replace(op, queue=f"reply-{op.who.registrant_id}"),
    "too large": lambda op: replace(op, queue="small"),
    "sent before": lambda op: replace(op, request=replace(op.request, rid="0")),
    "of a life that is over": lambda op: replace(op, who=replace(op.who, epoch=op.who.epoch - 1)),
    "in another's transaction": lambda op: replace(op, own_transaction=False),
}


def sent(
    qm: onceq.QueueManager, driver: PostgresDriver, change: Callable[[ops.Send], ops.Send]
) -> ops.Send:
    """Returns a send to be tried, where "0" was sent and answered."""
    qm.declare(RAW)
    qm.declare(VOLATILE)
    qm.declare(onceq.Queue("small", bytes, bytes, body_bytes_max=1))
    qm.declare(onceq.Queue("stopped", bytes, bytes))
    qm.stop("stopped", dequeue=False)
    life = driver.perform(ops.Connect(name="till"))
    driver.perform(send_op(life, "0"))
    op = change(replace(send_op(life), send_no=2))
    body = b"xy" if op.queue == "small" else b"x"
    return replace(op, request=replace(op.request, body=body))


@pytest.mark.parametrize("change", PLAIN.values(), ids=PLAIN)
def test_a_plain_send_needs_no_other_function(
    qm: onceq.QueueManager,
    conninfo: str,
    repository: str,
    change: Callable[[ops.Send], ops.Send],
) -> None:
    with driving(conninfo, repository, lean=True) as driver:
        op = sent(qm, driver, change)
        with living(conninfo, repository) as server:
            server.run(server.claim_one("raw"), b"reply")
        close_general_way(conninfo, repository, "send")
        answer = driver.perform(op)
    assert answer.state == "new"
    row = f"select e.rid, e.send_no, e.ack_rid, e.lane, e.body, e.properties, q.name,\
        e.sha256 = sha256(e.body) from {repository}.element e join {repository}.queue q\
        using (queue_id) where e.eid = %s"
    found = rows(conninfo, row, answer.eid)
    ack = op.ack[0] if op.ack else None
    assert found == [("1", 2, ack, 5, b"x", op.request.properties, "raw", True)]
    kept = f"select lane from {repository}.element where role = 'reply'"
    assert rows(conninfo, kept) == ([(13,)] if op.keep else [] if op.ack else [(0,)])


@pytest.mark.parametrize("change", RARE.values(), ids=RARE)
def test_what_is_rare_in_a_send_is_decided_by_the_general_function(
    qm: onceq.QueueManager,
    conninfo: str,
    repository: str,
    change: Callable[[ops.Send], ops.Send],
) -> None:
    with driving(conninfo, repository, lean=True) as driver:
        op = sent(qm, driver, change)
        close_general_way(conninfo, repository, "send")
        with pytest.raises(StatementRefused, match=GENERAL):
            driver.perform(op)
    assert scalar(conninfo, f"select count(*) from {repository}.element") == 1


@pytest.mark.parametrize(
    "setting",
    [
        "onceq_setting.lean = off",
        "synchronous_commit = off",
        "default_transaction_isolation = 'repeatable read'",
    ],
)
def test_a_session_with_other_settings_goes_the_general_way(
    qm: onceq.QueueManager, conninfo: str, repository: str, setting: str
) -> None:
    with driving(conninfo, repository, lean=True) as driver:
        op = sent(qm, driver, PLAIN["as it is"])
        close_general_way(conninfo, repository, "send")
        driver.connection.execute(f"set {setting}".encode())
        with pytest.raises(StatementRefused, match=GENERAL):
            driver.perform(op)


def test_only_a_clerks_session_is_lean(qm: onceq.QueueManager, conninfo: str) -> None:
    """Others run statements that need other plans."""
    shown = "select current_setting('enable_seqscan'), current_setting('plan_cache_mode')"
    with qm.clerk("till", RAW) as clerk:
        qm.declare(RAW)
        clerk.connect()
        found = clerk._link.connection.execute(shown).fetchone()
        assert found == ("off", "force_generic_plan")
    with plain(conninfo) as connection:
        assert connection.execute(shown).fetchone() == ("on", "auto")
