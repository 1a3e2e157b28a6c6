"""Connections that are ended from outside: no process has died, so nobody is charged (G7)."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import onceq
from onceq.engine.sessions.identity import is_alive, own_identity
from onceq.model.element import RequestOutcome
from onceq.server import processes, seats
from tests.cli.serve_app import ORDERS
from tests.lives import Life, living
from tests.parts import (
    LIMIT_S,
    Background,
    driving,
    plain,
    rows,
    scalar,
    serving,
    wait_until,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    import pytest

    from onceq.server.processes import ChildEvent

RAW = onceq.Queue("raw", bytes, bytes, backoff_ms=0)
CUTS = 12
BY_MACHINE_S = 40.0
"""Of a process that nobody can look at it is said after a minute that it is dead."""


def echo(request: bytes, context: onceq.Context) -> bytes:
    """Answers what it was sent."""
    del context
    return request


def cutting(
    conninfo: str, repository: str, cuts: dict[bytes, int]
) -> Callable[[bytes, onceq.Context], bytes]:
    """A handler whose backend is ended, so often for each request, and found missing by others."""

    def handle(request: bytes, context: onceq.Context) -> bytes:
        if cuts.setdefault(request, 0) < CUTS:
            cuts[request] += 1
            pid = context.connection.info.backend_pid
            scalar(conninfo, "select pg_terminate_backend(%s, 60000)", pid)
            known = (
                f"select count(*) from {repository}.server s"
                " where backend_pid = %s and to_jsonb(s) ->> 'missed_at' is null"
            )
            wait_until(lambda: scalar(conninfo, known, pid) == 0)
        return request

    return handle


def test_backends_that_are_ended_charge_nobody(
    qm: onceq.QueueManager, conninfo: str, repository: str
) -> None:
    """Two live processes: of the one whose backend was ended the other must not say it is dead."""
    cuts: dict[bytes, int] = {}
    handled = RAW.handled_by(cutting(conninfo, repository, cuts))
    with (
        serving(conninfo, repository, handled),
        serving(conninfo, repository, handled),
        qm.clerk("till", RAW) as clerk,
    ):
        for body in (b"1", b"2"):
            reply = clerk.transceive(body.decode(), body, timeout_s=2 * LIMIT_S)
            assert (reply.outcome, reply.attempts) == (RequestOutcome.DONE, 1)
    assert cuts == {b"1": CUTS, b"2": CUTS}
    charges = f"select distinct charge from {repository}.attempt"
    assert rows(conninfo, charges) == [("environment",)]


def test_what_was_only_claimed_does_not_wait_for_a_verdict(
    qm: onceq.QueueManager, conninfo: str, repository: str
) -> None:
    """The fence lets nothing of the missing take effect, and a minute is long."""
    qm.declare(RAW)
    qm.enqueue_many(RAW, [b"started", b"claimed"])
    with living(conninfo, repository) as other:
        with living(conninfo, repository) as life:
            started, _ = life.claim("raw", 2)
            life.begin(started)
        wait_until(lambda: other.take_over() == 1)
        assert [one.body for one in other.claim("raw", 9)] == [b"claimed"]
        held = f"select missed_at is not null, charges from {repository}.server where process = %s"
        with plain(conninfo) as connection:
            found = connection.execute(held.encode(), [life.process]).fetchall()
        assert found == [(True, {str(started.seq): "charge"})]


def test_what_was_started_is_found_by_servers_of_the_same_machine_to_be_dead(
    qm: onceq.QueueManager, conninfo: str, repository: str
) -> None:
    """Another process has its identity: it is not there, or is later than that."""
    qm.declare(RAW)
    qm.enqueue(RAW, b"x")
    own = own_identity()
    assert own is not None
    gone = own.rpartition(" ")[0] + " 1"
    with driving(conninfo, repository) as driver:
        life = Life(driver, identity=gone)
        life.begin(life.claim_one("raw"))
    with serving(conninfo, repository, RAW.handled_by(echo)):
        wait_until(lambda: qm.show("raw").depth == 0, BY_MACHINE_S)
    assert rows(conninfo, f"select charge, code from {repository}.attempt") == [
        ("charge", "server_died")
    ]


def test_a_process_that_lives_is_acquitted_by_its_machine(
    qm: onceq.QueueManager, conninfo: str, repository: str
) -> None:
    """Without coming back: it is stopped, or has nothing to come back for."""
    qm.declare(RAW)
    qm.enqueue(RAW, b"x")
    with driving(conninfo, repository) as driver:
        life = Life(driver, identity=own_identity())
        life.begin(life.claim_one("raw"))
    with serving(conninfo, repository, RAW.handled_by(echo)):
        wait_until(lambda: qm.show("raw").depth == 0, BY_MACHINE_S)
    assert rows(conninfo, f"select charge from {repository}.attempt") == [("environment",)]


def test_what_is_known_of_a_process() -> None:
    own = own_identity()
    assert own is not None
    place, pid, started = own.rsplit(" ", 2)
    assert is_alive(own)
    assert is_alive(f"{place} {pid} {started}0") is False  # its number is another's now
    assert is_alive(f"elsewhere {pid} {started}") is None
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as child:
        text = Path(f"/proc/{child.pid}/stat").read_text(encoding="utf-8")
        identity = f"{place} {child.pid} {text.rpartition(')')[2].split()[19]}"
        assert is_alive(identity)
        child.kill()
        wait_until(lambda: is_alive(identity) is False)  # nobody has waited for it yet
    assert is_alive(identity) is False


def test_a_supervisor_says_that_its_child_has_ended(
    qm: onceq.QueueManager, conninfo: str, repository: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While nobody else looks: the child that will take its place is not started yet."""
    monkeypatch.setenv("ONCEQ_REPOSITORY", repository)
    with plain(conninfo) as connection:
        connection.execute(f"create table {repository}.effects (rid text)".encode())
    qm.declare(ORDERS)
    qm.enqueue(ORDERS, "poison")
    found: list[Background[None]] = []

    def tell(event: ChildEvent) -> None:
        if event.kind == "died":
            found.append(Background(wait_charged))

    def wait_charged() -> None:
        try:
            aborts = f"select aborts from {repository}.element"
            wait_until(lambda: scalar(conninfo, aborts) == 1)
        finally:
            service.stop()

    monkeypatch.setattr(seats, "backoff_s", lambda _: 60.0)
    service = processes.Processes("tests.cli.serve_app:server", 1, told=tell)
    service.run(conninfo, repository=repository)
    found[0].result()
