"""Processes that send, or are shown, are killed: nothing is lost, and what comes again says so."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
import textwrap
from typing import TYPE_CHECKING

import pytest

from onceq import streams
from tests.parts import wait_until
from tests.streams.api.towns import RAW, READER, SENDER, WITHIN_S, read, sent, town
from tests.tidy.source_tree import ROOT

if TYPE_CHECKING:
    from collections.abc import Generator
    from pathlib import Path

pytestmark = pytest.mark.timeout(240)

FEED = """
    import sys
    from onceq import streams
    RAW = streams.Topic("raw")
    with streams.open(session_id=0x7E1) as context:
        with context.source(RAW, stores=sys.argv[1], flight_size=20) as source:
            for number in range(source.next_number, 3_000):
                source.send(b"%d" % number)
                if number % 100 == 99:
                    source.wait_stable(60)
                    print(number, flush=True)
"""
SHOW = """
    import sys
    from onceq import streams
    RAW = streams.Topic("raw")
    def show(message):
        print(message.number, message.body.decode(), message.retransmitted, flush=True)
        if message.number == 1_000:
            input()
        if message.number == 2_999:
            receiver.stop()
    with streams.open(session_id=0x0B5) as context:
        receiver = context.receiver(RAW, show, at=sys.argv[1], ack_batching_interval_ms=5)
        receiver.run()
"""


@contextlib.contextmanager
def child(program: str, at: str) -> Generator[subprocess.Popen[str]]:
    """A process that runs a program; it is gone at the end."""
    with subprocess.Popen(
        [sys.executable, "-W", "error", "-c", textwrap.dedent(program), at],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT / "src")},
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def lines_until(process: subprocess.Popen[str], pattern: str) -> list[str]:
    """Its lines until one that looks so."""
    assert process.stdout is not None
    found: list[str] = []
    for line in process.stdout:
        found.append(line.rstrip("\n"))
        if re.match(pattern, line):
            break
    return found


def has_quorum(positions: list[int]) -> bool:
    """Whether two of three stores have a position."""
    return sum(one > 0 for one in positions) >= 2


def test_a_source_that_is_killed_goes_on_where_the_stores_are(tmp_path: Path) -> None:
    """The next life is in this process; what was in flight is stable in it, or was never sent."""
    with town(tmp_path) as stores:
        with child(FEED, stores.at()) as process:
            lines = lines_until(process, "499$")
            assert lines[-1] == "499"
            process.kill()
            process.wait(WITHIN_S)
        with streams.open(session_id=SENDER) as context:
            with context.source(RAW, stores=stores.at()) as source:
                assert source.next_number >= 500
                for number in range(source.next_number, 3_000):
                    source.send(b"%d" % number)
                source.wait_stable(WITHIN_S)
            shows = read(context, RAW, 2_999, at=stores.at("b"), session_id=READER)
        assert shows.values() == [b"%d" % number for number in range(3_000)]


def test_a_receiver_that_is_killed_is_shown_again_what_was_not_acknowledged(
    tmp_path: Path,
) -> None:
    texts = [b"%d" % number for number in range(3_000)]
    with town(tmp_path) as stores:
        with streams.open() as context:
            sent(context, stores.at(), texts)
        with child(SHOW, stores.at("c")) as process:
            shown = [line.split() for line in lines_until(process, "1000 ")]
            key = f"session {READER:x}"
            wait_until(lambda: has_quorum(stores.positions(key)), WITHIN_S)
            tell(process)
            shown += [line.split() for line in lines_until(process, "1500 ")]
            process.kill()
            process.wait(WITHIN_S)
        assert [(number, body) for number, body, _ in shown] == [(str(n),) * 2 for n in range(1501)]
        acknowledged = stores.positions(key)
        with streams.open(session_id=READER) as context:
            shows = read(context, RAW, 2_999, at=stores.at("b"))
        first = shows.numbers()[0]
        assert 0 < sorted(acknowledged)[-2] <= first <= 1_501  # what it said last may still arrive
        assert shows.values() == texts[first:], "nothing is left out"
        assert all(message.retransmitted for message in shows.shown)


def test_ctrl_c_ends_a_receiver_and_what_was_being_shown_comes_again(tmp_path: Path) -> None:
    waits = SHOW.replace("message.number == 2_999", "message.number == 5 and input()")
    with town(tmp_path) as stores:
        with streams.open() as context:
            sent(context, stores.at(), [b"%d" % number for number in range(10)])
        with child(waits, stores.at("a")) as process:
            lines_until(process, "5 ")
            process.send_signal(signal.SIGINT)
            _, complaints = process.communicate(timeout=WITHIN_S)
            assert process.returncode == -signal.SIGINT, complaints
            assert complaints.rstrip().endswith("KeyboardInterrupt")
        with streams.open(session_id=READER) as context:
            assert read(context, RAW, 9, at=stores.at("a")).numbers() == [5, 6, 7, 8, 9]


def tell(process: subprocess.Popen[str]) -> None:
    """Have a program go on that waits for a line."""
    assert process.stdin is not None
    process.stdin.write("\n")
    process.stdin.flush()


WAIT = """
    import sys
    from onceq import streams
    RAW = streams.Topic("raw")
    with streams.open(session_id=1) as context:
        source = context.source(
            RAW, stores=sys.argv[1], within_s=None, on_event=lambda event: print(event, flush=True)
        )
        with source:
            print("entered", flush=True)
"""


def test_ctrl_c_ends_a_source_that_waits_for_its_stores() -> None:
    with child(WAIT, "127.0.0.1:1") as process:
        lines_until(process, "RegistrationError")
        process.send_signal(signal.SIGINT)
        printed, complaints = process.communicate(timeout=WITHIN_S)
        assert process.returncode == -signal.SIGINT, complaints
        assert "entered" not in printed
