"""`python -m proof.torture`: its exit codes, and its report."""

from __future__ import annotations

import contextlib
import json
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from proof.torture.processes import environment
from tests.parts import wait_until

SOON_S = 150
TORTURE = (sys.executable, "-m", "proof.torture")


def run(*words: str) -> subprocess.CompletedProcess[str]:
    """Runs it to its end, from elsewhere."""
    return subprocess.run(
        [*TORTURE, *words],
        check=False,
        capture_output=True,
        text=True,
        env=environment(),
        cwd=Path(tempfile.gettempdir()),
    )


@pytest.mark.timeout(600)
def test_a_short_torture_on_a_scratch_database(conninfo: str, tmp_path: Path) -> None:
    place = tmp_path / "run"
    answer = run(
        *("--url", conninfo, "--minutes", "0.1", "--seed", "987654321"),
        *("--directory", str(place), "--json"),
    )
    assert answer.returncode == 0, answer
    report = json.loads(answer.stdout)
    assert report["violations"] == []
    assert report["seed"] == 987654321
    assert report["acknowledged"] > 0
    assert report["crashes"] == 0
    assert any("not one of its own" in text for text in report["not_made"])
    assert "No violation was found." in (place / "report.md").read_text()
    again = run("--directory", str(place))
    assert again.returncode == 2
    assert "is not empty" in again.stderr


def test_what_cannot_be_broken(tmp_path: Path) -> None:
    answer = run("--break", "everything", "--directory", str(tmp_path))
    assert answer.returncode == 2
    assert "fence or clerk" in answer.stderr


@pytest.mark.timeout(600)
def test_who_ends_it_leaves_nothing_of_it(tmp_path: Path) -> None:
    """By SIGTERM, as a service manager does."""
    place = tmp_path / "run"
    words = ("--minutes", "5", "--no-spark", "--directory", str(place))
    process = subprocess.Popen(
        [*TORTURE, *words],
        env=environment(),
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
