"""The plain case goes its short way, and whatever is rare goes the general one (ADR 26)."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest
from msgspec.structs import replace

import onceq
from onceq.errors import ClaimLost, HandlerMisuse, StatementRefused
from onceq.model import ops
from onceq.model.element import Charge
from onceq.testing.repositories import EMPTY
from tests.lives import Life, living
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


# --- finishes -----------------------------------------------------------------------------------

SOON = timedelta(seconds=0.05)


def finish_op(life: Life, seq: int, queue_id: int, **fields: Any) -> ops.Finish:
    """Returns a finish of one element, with the next claim."""
    given: dict[str, Any] = {
        "seqs": [seq],
        "replies": [b"reply"],
        "n": 1,
        "sleep": [queue_id],
        "turn": 1,
    }
    return ops.Finish(
        incarnation=life.incarnation,
        content_type=None,
        token="test",
        queue_id=queue_id,
        alone=True,
        slot=life.slot,
        **{**given, **fields},
    )


def nothing(_: onceq.QueueManager) -> None:
    """Leaves the queue empty."""


def fresh(qm: onceq.QueueManager) -> None:
    qm.enqueue(RAW, b"next", rid="next")
    qm.enqueue(RAW, b"after", rid="after")


def urgent(qm: onceq.QueueManager) -> None:
    fresh(qm)
    qm.enqueue(RAW, b"urgent", rid="urgent", priority=9)


def due(qm: onceq.QueueManager) -> None:
    fresh(qm)
    qm.enqueue(RAW, b"due", rid="due", not_before=datetime.now(UTC) - SOON)


def delayed(qm: onceq.QueueManager) -> None:
    fresh(qm)
    qm.enqueue(RAW, b"delayed", rid="delayed", not_before=LATER)


def expired(qm: onceq.QueueManager) -> None:
    qm.enqueue(RAW, b"late", rid="late", expires_at=datetime.now(UTC) - SOON)
    fresh(qm)


def all_expired(qm: onceq.QueueManager) -> None:
    qm.enqueue(RAW, b"late", rid="late", expires_at=datetime.now(UTC) - SOON)


def stopped(qm: onceq.QueueManager) -> None:
    fresh(qm)
    qm.stop("raw", enqueue=False)


WAITING = (nothing, fresh, urgent, due, delayed, expired, all_expired, stopped)
FIELDS: dict[str, dict[str, Any]] = {
    "awake": {},
    "drowsy": {"drowsy": True},
    "claiming nothing": {"n": 0},
    "sleepless": {"sleep": None},
    "due first": {"turn": 2},
}
STATE = """
select rid, role::text, lane, claimed_by is not null, body, outcome::text from {0}.element
union all
select rid, role::text, null, null, reply, outcome::text from {0}.history order by 1, 2, 3
"""
ASLEEP = "select classid::regclass::text, mode from pg_locks where locktype = 'advisory'\
    and pid = %s and mode = 'ShareLock' and classid <> '{}.server'::regclass order by 1"


@pytest.mark.parametrize("owes_reply", [False, True], ids=["datagram", "request"])
@pytest.mark.parametrize("fields", FIELDS.values(), ids=FIELDS)
@pytest.mark.parametrize("waiting", WAITING, ids=lambda one: one.__name__)
def test_a_finish_of_one_does_what_the_general_functions_do(
    qm: onceq.QueueManager,
    conninfo: str,
    repository: str,
    waiting: Callable[[onceq.QueueManager], None],
    fields: dict[str, Any],
    *,
    owes_reply: bool,
) -> None:
    """What is claimed next, what is where, and on what the session sleeps."""
    found = []
    for is_plain in (True, False):
        with plain(conninfo) as connection:
            connection.execute(EMPTY.format(repository).encode())
        qm.declare(RAW)
        with living(conninfo, repository) as life:
            if not is_plain:
                life.driver._statements._plain[ops.Finish] = life.driver._statements._table[
                    ops.Finish
                ]
            if owes_reply:
                with driving(conninfo, repository) as client:
                    client.perform(send_op(client.perform(ops.Connect(name="till"))))
            else:
                qm.enqueue(RAW, b"x", rid="1")
            element = life.claim_one("raw")
            waiting(qm)
            life.begin(element)
            op = finish_op(life, element.seq, element.queue_id, **fields)
            finished = life.driver.perform(op)
            life.commit()
            pid = life.driver.connection.info.backend_pid
            claimed = [
                (one.rid, one.body, one.lane, one.priority, one.role, one.owes_reply, one.aborts)
                for one in finished.following
            ]
            state = rows(conninfo, STATE.format(repository))
            found.append((claimed, state, rows(conninfo, ASLEEP.format(repository), pid)))
    assert found[0] == found[1]


@pytest.mark.parametrize("drowsy", [False, True])
def test_a_plain_finish_needs_no_other_function(
    qm: onceq.QueueManager, conninfo: str, repository: str, *, drowsy: bool
) -> None:
    qm.declare(RAW)
    with driving(conninfo, repository) as client, living(conninfo, repository) as life:
        client.perform(send_op(client.perform(ops.Connect(name="till"))))
        element = life.claim_one("raw")
        fresh(qm)
        for name in ("finish", "claim", "conclude_one", "conclude_batch"):
            close_general_way(conninfo, repository, name)
        life.begin(element)
        op = finish_op(life, element.seq, element.queue_id, drowsy=drowsy)
        (following,) = life.driver.perform(op).following
        life.commit()
    assert following.rid == "next"
    reply = f"select body from {repository}.element where role = 'reply'"
    assert rows(conninfo, reply) == [(b"reply",)]


@pytest.mark.parametrize(
    "fields",
    [{"batch": True}, {"n": 2}, {"seqs": [-1, -2], "replies": [b"", b""]}],
    ids=["of a batch", "claiming several", "several"],
)
def test_a_finish_in_a_batch_is_general(
    qm: onceq.QueueManager, conninfo: str, repository: str, fields: dict[str, Any]
) -> None:
    qm.declare(RAW)
    qm.enqueue(RAW, b"x")
    with living(conninfo, repository) as life:
        element = life.claim_one("raw")
        close_general_way(conninfo, repository, "finish")
        life.begin(element)
        with pytest.raises(StatementRefused, match=GENERAL):
            life.driver.perform(finish_op(life, element.seq, element.queue_id, **fields))
        life.rollback()


def test_a_plain_finish_is_fenced_and_knows_its_transaction(
    qm: onceq.QueueManager, conninfo: str, repository: str
) -> None:
    qm.declare(RAW)
    qm.enqueue(RAW, b"x")
    with living(conninfo, repository) as life:
        element = life.claim_one("raw")
        op = finish_op(life, element.seq, element.queue_id)
        life.begin(element)
        with pytest.raises(HandlerMisuse):
            life.driver.perform(replace(op, token="another"))
        life.rollback()
        assert life.abort(element, Charge.RELEASE) is not None
        life.begin(element)
        with pytest.raises(ClaimLost):
            life.driver.perform(op)
        life.rollback()
    assert scalar(conninfo, f"select count(*) from {repository}.history") == 0


def test_a_batch_holds_all_of_its_own(
    qm: onceq.QueueManager, conninfo: str, repository: str
) -> None:
    """What is lost takes the batch with it."""
    qm.declare(RAW)
    qm.enqueue_many(RAW, [b"1", b"2"])
    with living(conninfo, repository) as server, living(conninfo, repository) as other:
        elements = server.claim("raw", 2)
        server.begin(elements[0])
        other.driver.perform(ops.Kill(eid=elements[1].eid))
        with pytest.raises(ClaimLost):
            server.finish_all(elements, [b"a", b"b"])
        server.rollback()
    assert (
        scalar(conninfo, f"select count(*) from {repository}.history where outcome = 'done'") == 0
    )


def test_a_clerk_that_sleeps_is_rung_by_a_plain_finish(
    qm: onceq.QueueManager, conninfo: str, repository: str
) -> None:
    """And one that is awake is not."""
    qm.declare(RAW)
    bells: list[set[str]] = []
    for sleep in (True, False):
        with driving(conninfo, repository) as client, living(conninfo, repository) as life:
            client.connection.execute("set onceq_setting.bell = 'host 1 channel token'")
            life.driver.connection.execute("set onceq_setting.host = 'host'")
            connected = client.perform(ops.Connect(name=str(sleep)))
            client.perform(replace(send_op(connected), sleep=sleep))
            life.begin(element := life.claim_one("raw"))
            life.driver.perform(finish_op(life, element.seq, element.queue_id, n=0))
            bells.append(set(life.driver._to_ring))
            life.commit()
    assert bells == [{"host 1 channel token"}, set()]
