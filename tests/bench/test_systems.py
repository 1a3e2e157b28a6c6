"""A system that does not answer is ended by its pid, and the run goes on with another."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

import pytest

from bench import systems
from bench.systems import Running, UnmeasuredError

if TYPE_CHECKING:
    from pathlib import Path

READY = '{"ready": true, "system": "s", "version": "1", "setting": "safe", "offers": ["enqueue"]}'
COMMAND = {"do": "enqueue", "clients": 1}


def started(tmp_path: Path, then: str, first: str = "") -> Running:
    """A system that is ready, when it has done something first, and then answers like this."""
    ready = f"print({READY!r}, flush=True)\nsys.stdin.readline()\n"
    said = f"import os, sys, time\n{first}\n{ready}{then}"
    return Running([sys.executable, "-c", said], tmp_path / "log")


def test_an_answer_is_a_slice(tmp_path: Path) -> None:
    running = started(tmp_path, "print('{\"seconds\": 0.5}', flush=True)")
    assert running.ask(100, COMMAND).per_s == pytest.approx(200)
    running.close()
    assert not running.has_ended


def test_one_that_is_silent_is_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(systems, "ANSWER_S", 0.2)
    words = "print('stuck at', os.getpid(), file=sys.stderr, flush=True)"
    running = started(tmp_path, "time.sleep(600)", first=words)
    with pytest.raises(UnmeasuredError, match="said nothing") as caught:
        running.ask(1, COMMAND)
    running.close()
    assert running.has_ended
    assert not caught.value.skipped
    with pytest.raises(ProcessLookupError):
        os.kill(int(str(caught.value).rpartition(" ")[2]), 0)


def test_one_that_goes_away_has_ended(tmp_path: Path) -> None:
    running = started(tmp_path, "sys.exit('no more')")
    with pytest.raises(UnmeasuredError, match="ended: no more"):
        running.ask(1, COMMAND)
    running.close()
    assert running.has_ended


def test_what_is_not_offered_is_skipped_and_not_asked(tmp_path: Path) -> None:
    running = started(tmp_path, "")
    with pytest.raises(UnmeasuredError, match="does not offer") as caught:
        running.require_offer({"do": "dequeue"})
    running.close()
    assert caught.value.skipped
