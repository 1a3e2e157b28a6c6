"""Kill -9 of PostgreSQL's postmaster, while requests run: only a suspect is charged (G7)."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import onceq
from onceq.engine.embedded import open_embedded, stop_embedded
from onceq.errors import OperatingError
from onceq.history.events import Recorder
from proof.harness.fleet import Fleet, Settings, order_queue
from proof.harness.ledger import Order, Receipt, make_ledger
from proof.harness.orders import RecordedClerk
from tests.crash.parts import assert_history
from tests.parts import scalar, wait_until

if TYPE_CHECKING:
    from collections.abc import Generator

    from onceq.engine.embedded import EmbeddedServer


@pytest.fixture
def cluster(tmp_path: Path) -> Generator[EmbeddedServer]:
    """A PostgreSQL of this test's own, which it may kill."""
    directory = tmp_path / "postgresql"
    with open_embedded(directory) as server:
        yield server
    stop_embedded(directory, force=True)


def kill_postgresql(cluster: EmbeddedServer) -> None:
    os.kill(cluster.postmaster_pid(), signal.SIGKILL)


def recover(clerk: RecordedClerk[Order, Receipt]) -> None:
    """Connects again, as often as it takes: what a client does after any failure."""

    def connected() -> bool:
        try:
            clerk.connect()
        except OperatingError:
            return False
        return True

    wait_until(connected)


def receive(clerk: RecordedClerk[Order, Receipt]) -> str:
    """Receives the next reply, over whatever happens to the database; how the request ended."""
    found: list[str] = []

    def received() -> bool:
        try:
            found.append(clerk.receive(timeout_s=5).outcome.value)
        except OperatingError:
            recover(clerk)
            return False
        return True

    wait_until(received, 150)
    return found[0]


@pytest.mark.parametrize("concurrency", [1, 3])
def test_three_kills_of_postgresql_during_one_request_do_not_fail_it(
    cluster: EmbeddedServer, tmp_path: Path, concurrency: int
) -> None:
    """They make it a suspect, and as long as they are fewer than its limit, charge nobody."""
    url = f"embedded:{cluster.directory}"
    files = tmp_path / "files"
    files.mkdir()
    queue = order_queue({})
    with (
        onceq.open(url, repository="kills") as qm,
        Recorder(files / "client-till.events") as recorder,
    ):
        qm.declare(queue)
        make_ledger(cluster.conninfo, "kills")
        clerk = RecordedClerk(qm.clerk("till", queue, window=3), recorder, alone=False)
        clerk.connect()
        settings = Settings(url=url, repository="kills", files=str(files), concurrency=concurrency)
        with Fleet(settings) as fleet:
            requests = [("held", Order("hold_in_database")), ("a", Order()), ("b", Order())]
            clerk.send_many(requests)
            for kill in range(3):
                fleet.wait_executions(kill + 1, "held")
                kill_postgresql(cluster)
            fleet.release()
            assert {receive(clerk) for _ in range(3)} == {"done"}
            clerk.satisfied()
            assert fleet.deaths == 0
            cluster.ensure_running()
            assert_history(fleet, cluster.conninfo)
        clerk.clerk.close()
        aborts = scalar(cluster.conninfo, "select max(aborts) from kills.history")
        effects = scalar(cluster.conninfo, "select count(*) from kills.effects")
        assert effects == 3
        assert aborts == 0
