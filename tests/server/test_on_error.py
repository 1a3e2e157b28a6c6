"""`Server(on_error=...)`: told of each abort once, with the exception; it harms nothing."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

import pytest

import onceq
from onceq import telemetry
from onceq.errors import InvalidValue
from onceq.model.element import Charge
from onceq.server import reporting
from tests.events import emits
from tests.parts import LIMIT_S, serving, wait_until
from tests.server.holder import HELD, holding

if TYPE_CHECKING:
    from tests.events import Events

RAW = onceq.Queue("raw", str, str, abort_limit=2, backoff_ms=1)


class Empty(KeyError):
    """An error that is false, as a list of complaints is that has none."""

    def __len__(self) -> int:
        return 0


def handle(request: str, context: onceq.Context) -> str:
    """Fails as the request says."""
    if request == "raise":
        raise Empty(request)
    if request == "reject":
        raise onceq.Reject("never")
    if request == "sql":
        context.connection.execute("select 1 / 0")
    return request


async def handle_async(request: str, context: onceq.AsyncContext) -> str:
    """The same."""
    if request == "sql":
        await context.connection.execute("select 1 / 0")
    return handle(request, context)  # type: ignore[arg-type] # what is left uses no connection


HANDLERS: dict[str, Any] = {
    "sync": RAW.handled_by(handle),
    "batch": RAW.handled_by(handle, batch=8),
    "async": RAW.handled_by(handle_async),
}


@pytest.mark.parametrize("kind", HANDLERS)
def test_it_is_told_of_each_abort_with_the_exception(
    qm: onceq.QueueManager, conninfo: str, repository: str, kind: str
) -> None:
    told: list[tuple[onceq.Abort, int]] = []

    def on_error(abort: onceq.Abort) -> None:
        told.append((abort, len(qm.attempts(abort.eid))))

    with (
        serving(conninfo, repository, HANDLERS[kind], on_error=on_error),
        qm.clerk("till", RAW) as clerk,
    ):
        eids = {one: clerk.send(one, one).eid for one in ("good",)}
        clerk.receive(timeout_s=LIMIT_S)
        for name in ("raise", "reject", "sql"):
            eids[name] = clerk.send(name, name).eid
            assert clerk.receive(timeout_s=LIMIT_S).outcome is onceq.RequestOutcome.FAILED
        wait_until(lambda: len(told) == 5)
    found = [
        (one.rid, one.attempt, one.code, one.charge, one.failed, type(one.exception).__name__)
        for one, _ in told
    ]
    charge = Charge.CHARGE
    sql = "StatementRefused"
    assert found == [
        ("raise", 1, "Empty", charge, False, "Empty"),
        ("raise", 2, "Empty", charge, True, "Empty"),
        ("reject", 1, "Reject", Charge.REJECT, True, "Reject"),
        ("sql", 1, sql, charge, False, "DivisionByZero"),
        ("sql", 2, sql, charge, True, "DivisionByZero"),
    ]
    assert all(one.queue == "raw" and one.eid == eids[one.rid] for one, _ in told)
    assert all(one.exception.__traceback__ is not None for one, _ in told)
    assert all(counted >= one.attempt for one, counted in told)  # it was counted before


@emits(telemetry.Aborted, telemetry.TookOver)
@pytest.mark.parametrize("count", [1, 2])
def test_it_is_told_of_a_death_in_the_process_that_finds_out(
    qm: onceq.QueueManager, conninfo: str, repository: str, events: Events, count: int
) -> None:
    """One that died beside another: nobody knows by which, and both are suspects."""
    told: list[onceq.Abort] = []
    qm.declare(HELD)
    with qm.clerk("till", HELD, window=count) as clerk:
        rids = [str(number) for number in range(count)]
        sent = clerk.send_many([(rid, "good") for rid in rids])
        with (
            holding(conninfo, repository, count) as dying,
            serving(conninfo, repository, HELD.handled_by(handle), on_error=told.append),
        ):
            dying.kill()
            replies = [clerk.receive(timeout_s=LIMIT_S) for _ in sent]
    assert {one.value for one in replies} == {"good"}
    charge = Charge.CHARGE if count == 1 else Charge.SUSPECT
    assert sorted((one.rid, one.eid, one.attempt, one.failed) for one in told) == [
        (rid, one.eid, 1, False) for rid, one in zip(rids, sent, strict=True)
    ]
    assert {(one.queue, one.code, one.charge) for one in told} == {("raw", "server_died", charge)}
    assert "ended while it ran" in str(told[0].exception)
    logged = [(one["rid"], one["charge"], one["fate"]) for one in events.of(telemetry.Aborted)]
    assert sorted(logged) == [(rid, charge.value, "returned") for rid in rids]


@emits(telemetry.OnErrorFailed, telemetry.Aborted)
def test_what_it_raises_is_logged_and_harms_nothing(
    qm: onceq.QueueManager, conninfo: str, repository: str, events: Events
) -> None:
    def on_error(abort: onceq.Abort) -> None:
        if abort.attempt == 1:
            raise SystemExit("sentry is away")
        raise OSError("sentry is away")

    with (
        serving(conninfo, repository, HANDLERS["sync"], on_error=on_error) as server,
        qm.clerk("till", RAW) as clerk,
    ):
        clerk.send("1", "raise")
        assert clerk.receive(timeout_s=LIMIT_S).outcome is onceq.RequestOutcome.FAILED
        assert clerk.transceive("2", "good", timeout_s=LIMIT_S).value == "good"
        wait_until(lambda: len(events.of(telemetry.OnErrorFailed)) == 2)
        assert server.statistics().lives == 1
    failed = events.of(telemetry.OnErrorFailed)
    assert [(one["rid"], one["code"]) for one in failed] == [("1", "SystemExit"), ("1", "OSError")]
    assert "in on_error" in failed[1]["traceback"]


@emits(telemetry.OnErrorLate)
def test_one_that_does_not_return_holds_up_nobody_and_is_told(
    qm: onceq.QueueManager,
    conninfo: str,
    repository: str,
    events: Events,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """While the server runs, once; and when it stops, with how many were not told."""
    monkeypatch.setattr(reporting, "LATE_S", 0.1)
    monkeypatch.setattr(reporting, "END_S", 0.1)
    monkeypatch.setattr(reporting, "WAITING_MAX", 2)
    goes_on = threading.Event()

    def on_error(_: onceq.Abort) -> None:
        goes_on.wait(LIMIT_S)

    with (
        serving(conninfo, repository, HANDLERS["sync"], on_error=on_error),
        qm.clerk("till", RAW) as clerk,
    ):
        for number in range(3):  # two aborts each: one is told, two wait, three are dropped
            clerk.send(str(number), "raise")
            assert clerk.receive(timeout_s=LIMIT_S).outcome is onceq.RequestOutcome.FAILED
        events.wait_for(telemetry.OnErrorLate)
        assert clerk.transceive("good", "good", timeout_s=LIMIT_S).value == "good"
    goes_on.set()
    late = events.of(telemetry.OnErrorLate)
    assert (late[-1]["waiting"], late[-1]["dropped"]) == (2, 3)
    assert len(late) == 2


def test_what_cannot_be_called_is_refused() -> None:
    async def later(_: onceq.Abort) -> None:
        """Nobody awaits this."""

    class Later:
        async def __call__(self, _: onceq.Abort) -> None:
            """Nor this."""

    wrong: list[Any] = ["sentry", 5, later, Later()]
    for one in wrong:
        with pytest.raises(InvalidValue, match="on_error is"):
            onceq.Server([HANDLERS["sync"]], on_error=one)
