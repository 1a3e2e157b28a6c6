"""`onceq stream relay` and `onceq stream into`: real processes, stopped, fenced and killed."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

import onceq
from onceq.errors import InvalidValue
from tests.cli.parts import ROOT, Cli, run_here
from tests.parts import plain, rows, wait_until
from tests.streams.api.towns import town

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator, Mapping
    from pathlib import Path


APP = "tests.streams.bridge_app"
OUT: onceq.Queue[bytes, bytes] = onceq.Queue("out", bytes, bytes)
WITHIN_S = 60.0
RELAY = ("relay", "out", "lines", "--source", "0x7e1", "--name", "out")
INTO = ("into", f"{APP}:ledger")


class Bridges:
    """A repository with a queue and a table, stores, and the commands that run bridges there."""

    def __init__(self, cli: Cli, stores: str, home: Path) -> None:
        self.cli = cli
        self.stores = stores
        self.home = home
        self.table = f"{cli.repository}.booked"
        self._count = 0
        with plain(cli.url) as connection:
            connection.execute(f"create table {self.table} (number bigint, line text)".encode())
        with onceq.open(cli.url, repository=cli.repository) as qm:
            qm.declare(OUT)

    @property
    def environment(self) -> Mapping[str, str]:
        return {**self.cli.environment(), "STORES": self.stores, "BOOKED": self.table}

    def put(self, lines: list[str]) -> None:
        with onceq.open(self.cli.url, repository=self.cli.repository) as qm:
            qm.enqueue_many(OUT, [line.encode() for line in lines])

    def booked(self) -> list[tuple[Any, ...]]:
        return rows(self.cli.url, f"select number, line from {self.table} order by number")

    def depth(self) -> int:
        with onceq.open(self.cli.url, repository=self.cli.repository) as qm:
            return qm.show("out").depth

    @contextlib.contextmanager
    def started(self, *words: str) -> Generator[Started]:
        """A command in a process of its own, which is ended with the block."""
        self._count += 1
        more = ("--stores", self.stores) if words[0] == "relay" else ()
        made = Started([*words, *more], self.environment, self.home / f"{self._count}-{words[0]}")
        try:
            yield made
        finally:
            made.process.kill()
            made.process.wait(WITHIN_S)


class Started:
    """A process of `onceq stream`, and what it has printed."""

    def __init__(self, words: list[str], environment: Mapping[str, str], at: Path) -> None:
        self._out, self._err = at.with_suffix(".out"), at.with_suffix(".err")
        command = [sys.executable, "-m", "onceq.cli.main", "--json", "stream", *words]
        with self._out.open("wb") as out, self._err.open("wb") as err:
            self.process = subprocess.Popen(
                command, cwd=ROOT, env=environment, stdout=out, stderr=err
            )

    def events(self) -> list[dict[str, Any]]:
        lines = self._out.read_bytes().splitlines(keepends=True)
        return [msgspec.json.decode(line) for line in lines if line.endswith(b"\n")]

    def error(self) -> str:
        return self._err.read_text()

    def wait_for(self, event: str) -> None:
        wait_until(lambda: event in [one["event"] for one in self.events()], WITHIN_S)

    def stop(self, number: signal.Signals = signal.SIGTERM) -> int:
        self.process.send_signal(number)
        return self.ended()

    def ended(self) -> int:
        return self.process.wait(WITHIN_S)


@pytest.fixture
def bridges(conninfo: str, repository: str, tmp_path: Path) -> Iterator[Bridges]:
    with town() as stores:
        yield Bridges(Cli(conninfo, repository), stores.at(), tmp_path)


def lines(count: int, begin: int = 0) -> list[str]:
    return [f"line {n}" for n in range(begin, begin + count)]


def numbered(count: int) -> list[tuple[int, str]]:
    return list(enumerate(lines(count)))


@pytest.mark.timeout(300)
def test_both_go_on_where_they_were_killed_and_stop_in_order(bridges: Bridges) -> None:
    bridges.put(lines(5))
    with bridges.started(*RELAY) as relay, bridges.started(*INTO) as into:
        wait_until(lambda: bridges.booked() == numbered(5), WITHIN_S)
        relay.process.send_signal(signal.SIGKILL)
        into.process.send_signal(signal.SIGKILL)
    bridges.put(lines(5, 5))
    with bridges.started(*RELAY) as relay, bridges.started(*INTO) as into:
        wait_until(lambda: bridges.booked() == numbered(10), WITHIN_S)
        wait_until(lambda: bridges.depth() == 0, WITHIN_S)
        assert into.stop() == 0, into.error()
        assert relay.stop(signal.SIGINT) == 0, relay.error()
    for one, name in ((relay, "out"), (into, "ledger")):
        kind = {"out": "relay", "ledger": "into"}[name]
        assert one.events() == [
            {"v": 1, "event": event, "bridge": name, "kind": kind}
            for event in ("started", "stopped")
        ]
    assert bridges.booked() == numbered(10)


@pytest.mark.timeout(300)
def test_a_later_life_of_the_name_fences_the_former_one(bridges: Bridges) -> None:
    bridges.put(lines(1))
    with bridges.started(*RELAY), bridges.started(*INTO, "--log-format", "json") as former:
        wait_until(lambda: bridges.booked() == numbered(1), WITHIN_S)
        with bridges.started(*INTO) as later:
            later.wait_for("started")
            wait_until(lambda: _is_fenced(bridges, former), WITHIN_S)
            assert former.ended() == 1
            assert '"error":"Fenced"' in former.error()
            assert later.stop() == 0
    numbers = [number for number, _ in bridges.booked()]
    assert numbers == list(range(len(numbers))), "each once"


def _is_fenced(bridges: Bridges, one: Started) -> bool:
    """Whether it has ended; else one more message is there for it to find out."""
    if one.process.poll() is None:
        bridges.put(["more"])
        return False
    return True


@pytest.mark.timeout(300)
def test_a_second_signal_ends_it_at_once(bridges: Bridges) -> None:
    """The stores are away: a relay that is stopped waits for them, but not for ever."""
    bridges.stores = "127.0.0.1:1"
    bridges.put(lines(1))
    with bridges.started(*RELAY) as relay:
        relay.wait_for("started")
        relay.process.send_signal(signal.SIGTERM)
        assert relay.stop(signal.SIGINT) == 130


@pytest.mark.timeout(300)
def test_what_cannot_be_run_is_refused_and_said(bridges: Bridges) -> None:
    words: dict[tuple[str, ...], tuple[int, str]] = {
        ("into", "ledger"): (2, "'ledger' names no bridge: give MODULE:ATTRIBUTE"),
        ("into", "no_such_module:ledger"): (2, "there is no module 'no_such_module'"),
        ("into", f"{APP}:nobody"): (2, "name the variable that holds the bridge"),
        ("into", f"{APP}:book"): (2, f"{APP}:book is function, and no bridge into a database"),
        ("into", f"{APP}:relay"): (2, f"{APP}:relay is a relay, and no bridge into a database"),
        ("into", f"{APP}:elsewhere", "--repository", "here"): (2, "was made for 'elsewhere'"),
        ("relay", "none", *RELAY[2:]): (3, "none"),
        (*RELAY[:3], "--source", "x", "--name", "out"): (2, "--source 'x': give a number"),
    }
    for given, (code, says) in words.items():
        with bridges.started(*given) as one:
            assert (one.ended(), says in one.error()) == (code, True), one.error()


def test_a_relay_needs_a_session_and_a_name() -> None:
    for left_out in ("--source", "--name", "--stores"):
        given = ["--source", "1", "--name", "out", "--stores", "127.0.0.1:1"]
        place = given.index(left_out)
        answer = run_here("stream", "relay", "out", "lines", *given[:place], *given[place + 2 :])
        assert answer.code == 2
        assert left_out in answer.err


def test_a_bridge_that_was_made_for_a_repository_runs_nowhere_else(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(os.environ, "STORES", "127.0.0.1:1")
    from tests.streams import bridge_app  # noqa: PLC0415 - it reads the environment

    with pytest.raises(InvalidValue, match="made for 'elsewhere', and is to run with 'here'"):
        bridge_app.elsewhere.run(repository="here")
