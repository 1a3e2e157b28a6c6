"""`onceq top`: what queues have to do, and what servers do."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import pytest
from rich.console import Console

import onceq
from onceq.cli.top import drawn
from onceq.model import ops
from tests.cli.stage import RAW, Stage
from tests.cli.terminals import open_terminal
from tests.parts import LIMIT_S, serving

if TYPE_CHECKING:
    from pathlib import Path

    from tests.cli.parts import Cli

FAILS = onceq.Queue("fails", bytes, bytes, abort_limit=3, backoff_ms=1)


@pytest.fixture
def stage(qm: onceq.QueueManager, conninfo: str, cli: Cli, tmp_path: Path) -> Stage:
    qm.declare(RAW)
    qm.declare(FAILS)
    return Stage(qm, conninfo, cli, tmp_path)


def fail(request: bytes, _: onceq.Context) -> bytes:
    if request == b"bad":
        raise ValueError("it is bad")
    return request


def test_a_look_tells_what_waits_and_what_each_does(stage: Stage) -> None:
    """Waiting, claimed, in back-off, the oldest; stopped; a session that runs, one that sleeps."""
    stage.put()
    stage.put(not_before=datetime.now(UTC) + timedelta(hours=1))
    with stage.served() as life, stage.served("fails") as other:
        element = life.claim_one("raw")
        life.begin(element)
        stage.put()
        stage.qm.stop("raw", enqueue=False)
        number = stage.qm.show("fails").queue_id
        asleep = ops.Claim(
            incarnation=other.incarnation,
            queue_id=number,
            n=1,
            turn=1,
            alone=True,
            slot=other.slot,
            sleep=[number],
            drowsy=True,
        )
        assert other.driver.perform(asleep) == []
        queues, servers = stage.cli.json("top").lines
        raw = next(one for one in queues["queues"] if one["queue"] == "raw")
        counts = ("ready", "claimed", "backing_off", "suspect", "servers")
        assert [raw[name] for name in counts] == [1, 1, 1, 0, 1]
        assert (raw["enqueue_started"], raw["dequeue_started"]) == (True, False)
        assert 0 < raw["oldest_s"] < LIMIT_S
        runs, sleeps = sorted(servers["servers"], key=lambda one: one["incarnation"])
        assert (runs["state"], runs["doing"], runs["queue"]) == ("runs", str(element.eid), "raw")
        assert (runs["queues"], runs["pid"]) == (["raw"], 1)
        assert 0 <= runs["for_s"] < LIMIT_S
        assert (sleeps["state"], sleeps["doing"], sleeps["since"]) == ("sleeps", None, None)
        said = stage.cli("top", "--once").out
        assert re.search(r"^raw +no dequeue +1 +1 +1 ", said, re.MULTILINE)
        assert re.search(rf"^test 1 +runs +.* s +{element.rid} +raw ", said, re.MULTILINE)
        life.rollback()
    states = [one.state for one in stage.qm.load().servers]
    assert states == ["gone", "gone"]


def test_rates_are_of_the_last_minute(stage: Stage, conninfo: str) -> None:
    with (
        serving(conninfo, stage.qm.repository, FAILS.handled_by(fail)),
        stage.qm.clerk("till", FAILS, window=6) as clerk,
    ):
        for rid in "12345":
            clerk.send(rid, b"good")
        clerk.send("bad", b"bad")
        for rid in (*"12345", "bad"):
            clerk.receive(rid=rid, timeout_s=60)
        load = {one.queue: one for one in stage.qm.load().queues}
    assert load["fails"].done_per_s == pytest.approx(5 / 60)
    assert load["fails"].aborted_per_s == pytest.approx(3 / 60)
    assert (load["raw"].done_per_s, load["raw"].aborted_per_s) == (0, 0)
    stage.execute("update {0}.attempt set ended_at = ended_at - interval '61 s'")
    load = {one.queue: one for one in stage.qm.load().queues}
    assert load["fails"].aborted_per_s == 0


@pytest.mark.parametrize("width", [10, 24, 40, 80, 200])
def test_it_fits_any_width(stage: Stage, width: int) -> None:
    """What is last in a row is left out first; the first column stays."""
    with stage.served() as life:
        stage.put()
        life.begin(life.claim_one("raw"))
        load = stage.qm.load()
        life.rollback()
    console = Console(width=width, highlight=False)
    with console.capture() as captured:
        console.print(drawn(load, width))
    lines = captured.get().splitlines()
    assert max(len(one) for one in lines) <= width
    assert any(one.startswith("raw") for one in lines)
    assert ("aborted/s" in captured.get()) == (width > 79)


class Terminal:
    """`onceq top` on a terminal of so many columns, and what it has drawn."""

    def __init__(self, cli: Cli, columns: int, *words: str) -> None:
        self.reads, its, environment = open_terminal(columns)
        self.process = subprocess.Popen(
            [sys.executable, "-m", "onceq.cli.main", "top", *words],
            env={**cli.environment(), **environment},
            stdin=subprocess.DEVNULL,
            stdout=its,
            stderr=subprocess.PIPE,
            text=True,
        )
        os.close(its)
        self.drawn = ""

    def wait_for(self, text: str, times: int) -> None:
        end = time.monotonic() + LIMIT_S
        while self.drawn.count(text) < times:
            assert time.monotonic() < end, self.drawn
            self.drawn += os.read(self.reads, 65536).decode()

    def interrupt(self) -> tuple[int, str]:
        """Presses Ctrl-C; returns the exit code and what was said on standard error."""
        self.process.send_signal(signal.SIGINT)
        _, complaints = self.process.communicate(timeout=LIMIT_S)
        os.close(self.reads)
        return self.process.returncode, complaints


@pytest.mark.parametrize("columns", [30, 120])
def test_on_a_terminal_it_looks_again_until_ctrl_c(stage: Stage, columns: int) -> None:
    terminal = Terminal(stage.cli, columns, "--interval", "0.1")
    terminal.wait_for("fails", 3)
    stage.qm.declare(onceq.Queue("added", bytes, bytes))
    terminal.wait_for("added", 1)
    assert ("aborted/s" in terminal.drawn) == (columns == 120)
    assert terminal.interrupt() == (0, "")


def test_on_a_terminal_with_once_it_ends(stage: Stage) -> None:
    terminal = Terminal(stage.cli, 80, "--once")
    terminal.wait_for("fails", 1)
    assert terminal.process.wait(LIMIT_S) == 0
    assert terminal.interrupt() == (0, "")


def test_without_a_terminal_it_is_printed_once(stage: Stage) -> None:
    process = stage.cli.start("top")
    said, complaints = process.communicate(timeout=LIMIT_S)
    assert (process.returncode, complaints) == (0, "")
    assert said.count("fails") == 1
