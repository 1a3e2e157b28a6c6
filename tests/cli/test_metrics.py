"""`onceq metrics`: one look, looks over HTTP, a database that goes and comes back."""

from __future__ import annotations

import contextlib
import http.client
import json
import signal
import subprocess
import sys
import tempfile
import threading
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import onceq
from onceq import telemetry
from proof.harness.proxy import Proxy
from tests.cli.parts import Cli, run_here
from tests.events import emits
from tests.parts import LIMIT_S, wait_until

if TYPE_CHECKING:
    from collections.abc import Generator

    from tests.events import Events

WORK = onceq.Queue("work", str, str)
SOCKET = ".s.PGSQL.5432"


class Scraped:
    """`onceq metrics` in a process of its own, asked as Prometheus asks."""

    def __init__(self, cli: Cli, *words: str) -> None:
        self.process = cli.start(
            "metrics", "--listen", "127.0.0.1:0", "--json", "--log-format", "json", *words
        )
        self.log: list[str] = []
        self._reader = threading.Thread(target=self._read)
        self._reader.start()
        assert self.process.stdout is not None
        ready = json.loads(self.process.stdout.readline())
        assert ready["event"] == "ready"
        self.host, _, port = ready["address"].rpartition(":")
        self.port = int(port)

    def _read(self) -> None:
        assert self.process.stderr is not None
        self.log.extend(self.process.stderr)

    def get(self, target: str = "/metrics") -> tuple[int, str, str]:
        """Returns the status, the type and the text that are answered."""
        connection = http.client.HTTPConnection(self.host, self.port, timeout=LIMIT_S)
        with contextlib.closing(connection):
            connection.request("GET", target)
            answer = connection.getresponse()
            return answer.status, answer.getheader("Content-Type", ""), answer.read().decode()

    def end(self, number: signal.Signals) -> int:
        self.process.send_signal(number)
        return self.process.wait(LIMIT_S)

    def close(self) -> None:
        self.process.kill()
        self.process.wait(LIMIT_S)
        self._reader.join(LIMIT_S)
        for pipe in (self.process.stdout, self.process.stderr):
            assert pipe is not None
            pipe.close()


@contextlib.contextmanager
def scraped(cli: Cli, *words: str) -> Generator[Scraped]:
    one = Scraped(cli, *words)
    try:
        yield one
    finally:
        one.close()


def done(text: str) -> float:
    """Returns how many requests a text says to be done with."""
    return value_of(text, 'onceq_requests_finished_total{queue="work",outcome="dequeued"}')


def value_of(text: str, name: str) -> float:
    (found,) = (line.split()[-1] for line in text.splitlines() if line.startswith(f"{name} "))
    return float(found)


def finish(qm: onceq.QueueManager, n: int) -> None:
    qm.declare(WORK)
    for _ in range(n):
        qm.enqueue(WORK, "secret body")
        qm.dequeue("work")


def test_one_look(cli: Cli, qm: onceq.QueueManager, onceq_clock: Any) -> None:
    finish(qm, 3)
    qm.enqueue(WORK, "left")
    onceq_clock.advance(10)
    text = cli("metrics", "--once").out
    assert value_of(text, "onceq_up") == 1
    assert done(text) == 3
    assert value_of(text, 'onceq_queue_elements{queue="work",state="ready"}') == 1
    assert "secret" not in text
    lines = cli.json("metrics", "--once").lines
    assert sorted(lines[0]) == ["labels", "name", "v", "value"]
    shown = {one["name"]: one["value"] for one in lines if one["labels"].get("outcome")}
    assert {one["name"] for one in lines} == {
        line.partition("{")[0].partition(" ")[0] for line in text.splitlines() if line[0] != "#"
    }
    assert shown == {"onceq_requests_finished_total": 3}


def test_every_process_says_the_same(cli: Cli, qm: onceq.QueueManager, onceq_clock: Any) -> None:
    finish(qm, 2)
    onceq_clock.advance(10)
    with scraped(cli) as first:
        assert done(first.get()[2]) == 2
        finish(qm, 3)
        onceq_clock.advance(10)
        first.get()
        with scraped(cli) as second:
            assert done(first.get()[2]) == done(second.get()[2]) == 5
            assert second.end(signal.SIGTERM) == 0
        status, kind, text = first.get()
        assert (status, kind) == (200, "text/plain; version=0.0.4; charset=utf-8")
        assert text.startswith("# HELP onceq_up ")
        assert first.get("/")[0] == 404
        assert first.end(signal.SIGINT) == 0
        assert cli("metrics", "--once").out.count("\n") == text.count("\n")


@emits(telemetry.MetricsAway, telemetry.MetricsBack)
def test_a_database_that_goes_and_comes_back(cli: Cli, conninfo: str, events: Events) -> None:
    """Cut off, and then silent: it says so, and looks again by itself."""
    with tempfile.TemporaryDirectory(dir="/tmp") as directory:
        with (
            Proxy(conninfo, Path(directory)) as proxy,
            scraped(replace(cli, url=proxy.conninfo), "--log-level", "info") as one,
        ):
            assert is_up(one)
            (Path(directory) / SOCKET).rename(Path(directory) / "away")
            proxy.cut_all()
            away = one.get()
            assert away[0] == 200
            assert [line for line in away[2].splitlines() if line[0] != "#"] == ["onceq_up 0"]
            assert not is_up(one)
            (Path(directory) / "away").rename(Path(directory) / SOCKET)
            wait_until(lambda: is_up(one))
            proxy.fall_silent()
            assert not is_up(one)
            proxy.speak()
            wait_until(lambda: is_up(one))
            assert one.end(signal.SIGTERM) == 0
        one.close()
        events.read(one.log[1:-1])
    assert len(events.of(telemetry.MetricsAway)) == len(events.of(telemetry.MetricsBack)) >= 1
    assert "dbname" not in "".join(one.log)


def is_up(one: Scraped) -> bool:
    return value_of(one.get()[2], "onceq_up") == 1


def test_it_begins_without_a_database(cli: Cli, conninfo: str) -> None:
    with scraped(replace(cli, url=f"{conninfo} port=1")) as one:
        assert not is_up(one)
        assert one.end(signal.SIGINT) == 0


@pytest.mark.parametrize("words", [("0.0.0.0:9187",), ("nonsense",)])
def test_it_listens_on_this_machine(cli: Cli, words: tuple[str, ...]) -> None:
    answer = cli("metrics", "--listen", *words, code=2)
    assert "127.0.0.1" in answer.err


def test_a_port_that_is_taken(cli: Cli) -> None:
    with scraped(cli) as one:
        address = f"{one.host}:{one.port}"
        answer = subprocess.run(
            [sys.executable, "-m", "onceq.cli.main", "metrics", "--listen", address],
            env=cli.environment(),
            capture_output=True,
            text=True,
            timeout=LIMIT_S,
            check=False,
        )
    assert answer.returncode == 2
    assert f"nobody can listen at {address}" in answer.stderr


def test_one_look_at_nothing() -> None:
    words = ("--url", "postgresql://nobody:hidden@127.0.0.1:1/none", "metrics", "--once")
    answer = run_here(*words)
    assert answer.code == 4
    assert "hidden" not in answer.err
