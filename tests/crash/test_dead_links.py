"""A machine that vanishes, and a link that is silently dead: packets are dropped, nothing is cut.

PostgreSQL and the machine are in network namespaces of their own, joined by a cable, both ends of
which come to believe that the other has another address. Skipped where that may not be made.
"""

from __future__ import annotations

import contextlib
import ctypes
import secrets
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from psycopg.conninfo import conninfo_to_dict

import onceq
from onceq.engine.embedded import cluster, open_embedded, stop_embedded
from onceq.engine.schema.migrate import apply_with
from tests.crash import dead_link_child
from tests.crash.dead_link_child import AWAY, BUSY, IDLE
from tests.crash.parts import report
from tests.parts import plain, serving

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

TAKEN_OVER_S = 45.0
DATABASE, MACHINE = "10.231.77.1", "10.231.77.2"
NOBODY = "02:00:00:00:00:99"
REPOSITORY = "dead_links"


def _ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, capture_output=True, timeout=30)


class Cable:
    """Two network namespaces and a cable between them."""

    def __init__(self) -> None:
        name = f"oq{secrets.token_hex(3)}"
        self.database, self.machine = f"{name}d", f"{name}m"
        self._ends = [(self.database, f"{name}0", DATABASE), (self.machine, f"{name}1", MACHINE)]

    def lay(self) -> None:
        """Makes both, and joins them."""
        (_, one, _), (_, other, _) = self._ends
        for namespace, _, _ in self._ends:
            _ip("netns", "add", namespace)
            _ip("-n", namespace, "link", "set", "lo", "up")
        _ip("link", "add", one, "type", "veth", "peer", "name", other)
        for namespace, end, address in self._ends:
            _ip("link", "set", end, "netns", namespace)
            _ip("-n", namespace, "address", "add", f"{address}/24", "dev", end)
            _ip("-n", namespace, "link", "set", end, "up")

    def die(self) -> None:
        """Drops every packet from now on, in silence: whoever it arrives at, it is not for him."""
        for (namespace, end, _), peer in zip(self._ends, (MACHINE, DATABASE), strict=True):
            wrong = ("lladdr", NOBODY, "dev", end, "nud", "permanent")
            _ip("-n", namespace, "neighbour", "replace", peer, *wrong)

    def remove(self) -> None:
        """Removes what was made; the cable goes with its ends."""
        for namespace, _, _ in self._ends:
            with contextlib.suppress(OSError, subprocess.CalledProcessError):
                _ip("netns", "delete", namespace)


def inside(namespace: str, call: Callable[[], Any]) -> Any:
    """Makes a call in a thread of a network namespace, which processes begun by it share."""
    answers: list[Any] = []

    def run() -> None:
        with Path(f"/run/netns/{namespace}").open() as there:
            clone_newnet = 0x40000000
            assert ctypes.CDLL(None, use_errno=True).setns(there.fileno(), clone_newnet) == 0
        answers.append(call())

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    return answers[0]


@pytest.fixture
def cable() -> Generator[Cable]:
    made = Cable()
    lacking: str | None = None
    try:
        made.lay()
    except (OSError, subprocess.CalledProcessError) as error:
        lacking = f"links that are silently dead were not tried, for want of namespaces: {error}"
    try:
        if lacking is not None:
            pytest.skip(lacking)
        yield made
    finally:
        made.remove()


@pytest.fixture
def database(cable: Cable, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Generator[str]:
    """A PostgreSQL that is reached by a socket from here, and by TCP from the machine."""
    rules = tmp_path / "pg_hba.conf"
    rules.write_text(f"local all all trust\nhost all all {MACHINE}/32 trust\n")
    arguments = cluster._server_argv  # an embedded one never listens

    def listening(*given: Any) -> list[str]:
        words = [word for word in arguments(*given) if "listen_addresses" not in word]
        return [*words, f"--listen_addresses={DATABASE}", f"--hba_file={rules}"]

    monkeypatch.setattr(cluster, "_server_argv", listening)
    directory = tmp_path / "data"
    server = inside(cable.database, lambda: open_embedded(directory))
    try:
        apply_with(server.conninfo, REPOSITORY)
        with plain(server.conninfo) as connection:
            connection.execute("create table locked (name text primary key, n int)")
            connection.execute("insert into locked values ('idle', 0), ('busy', 0)")
        yield server.conninfo
    finally:
        server.close()
        stop_embedded(directory, force=True)


@pytest.fixture
def machine(cable: Cable, database: str) -> Generator[subprocess.Popen[str]]:
    """A process that serves, beyond the cable."""
    url = f"postgresql://onceq@{DATABASE}/{conninfo_to_dict(database)['dbname']}"
    command = [sys.executable, dead_link_child.__file__, url, REPOSITORY]
    running: subprocess.Popen[str] = inside(
        cable.machine, lambda: subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    )
    try:
        yield running
    finally:
        running.kill()
        running.communicate()


def _hears(running: subprocess.Popen[str], wanted: set[str]) -> dict[str, float]:
    """Returns when the machine has said each of these."""
    assert running.stdout is not None
    said: dict[str, float] = {}
    while not wanted <= said.keys():
        word, at = running.stdout.readline().split()
        said[word] = float(at)
    return said


@pytest.mark.timeout(300)
def test_a_vanished_machine_is_taken_over_and_its_client_does_not_wait_for_ever(
    cable: Cable, database: str, machine: subprocess.Popen[str]
) -> None:
    def add(request: bytes, context: onceq.Context) -> bytes:
        context.connection.execute(
            "update locked set n = n + 1 where name = %s", [request.decode()]
        )
        return request

    with onceq.open(database, repository=REPOSITORY) as qm:
        for queue in (IDLE, BUSY, AWAY):
            qm.declare(queue)
        with qm.clerk("till", IDLE) as one, qm.clerk("bank", BUSY) as other:
            one.send("1", b"idle")
            other.send("1", b"busy")
            _hears(machine, {"idle", "busy", "client"})
            cable.die()
            died = time.monotonic()
            with serving(database, REPOSITORY, IDLE.handled_by(add), BUSY.handled_by(add)):
                assert one.receive(timeout_s=60).value == b"idle"
                idle_s = time.monotonic() - died
                assert other.receive(timeout_s=60).value == b"busy"
                busy_s = time.monotonic() - died
        client_s = _hears(machine, {"client_ended"})["client_ended"] - died
    report(f"taken over {idle_s:.1f} s (idle), {busy_s:.1f} s (in SQL); client {client_s:.1f} s")
    assert max(idle_s, busy_s, client_s) < TAKEN_OVER_S
