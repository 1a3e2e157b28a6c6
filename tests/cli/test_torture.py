"""`onceq torture`: its exit codes, and its report."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.parts import ROOT, run_here
from tests.parts import wait_until

SOON_S = 60


@pytest.mark.timeout(240)
def test_a_short_torture_on_a_scratch_database(conninfo: str, tmp_path: Path) -> None:
    place = tmp_path / "run"
    answer = run_here(
        *("--url", conninfo, "torture", "--minutes", "0.1", "--seed", "987654321"),
        *("--directory", str(place), "--json"),
    )
    assert answer.code == 0, answer
    report = answer.item
    assert report["violations"] == []
    assert report["seed"] == 987654321
    assert report["acknowledged"] > 0
    assert report["crashes"] == 0
    assert any("not one of its own" in text for text in report["not_made"])
    assert "No violation was found." in (place / "report.md").read_text()
    again = run_here("torture", "--directory", str(place))
    assert again.code == 2
    assert "is not empty" in again.err


def test_what_cannot_be_broken(tmp_path: Path) -> None:
    answer = run_here("torture", "--break", "everything", "--directory", str(tmp_path))
    assert answer.code == 2
    assert "fence or clerk" in answer.err


@pytest.mark.timeout(240)
def test_who_ends_it_leaves_nothing_of_it(tmp_path: Path) -> None:
    """By SIGTERM, as a service manager does."""
    place = tmp_path / "run"
    words = ("torture", "--minutes", "5", "--no-spark", "--directory", str(place))
    process = subprocess.Popen(
        [sys.executable, "-m", "onceq.cli.main", *words],
        env={**os.environ, "PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT}"},
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        wait_until(lambda: has_events(place), SOON_S)
        assert started(place, but=process.pid)
        process.send_signal(signal.SIGTERM)
        _, said = process.communicate(timeout=SOON_S)
    finally:
        process.terminate()  # it takes its disk and its processes with it
        process.communicate(timeout=SOON_S)
    assert (process.returncode, "interrupted" in said) == (130, True), said
    assert started(place, but=process.pid) == []
    assert str(place) not in Path("/proc/mounts").read_text(encoding="utf-8")


def has_events(place: Path) -> bool:
    """Return whether a clerk has told something; directories come and go meanwhile."""
    with contextlib.suppress(FileNotFoundError):
        return any(one.stat().st_size for one in place.rglob("clerk*.events"))
    return False


def started(place: Path, *, but: int) -> list[bytes]:
    """Return the command lines of what runs in a directory, but for this process."""
    found: list[bytes] = []
    for entry in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):  # it has just ended
            line = (entry / "cmdline").read_bytes()
            if str(place).encode() in line and entry.name != str(but):
                found.append(line)
    return found
