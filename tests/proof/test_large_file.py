"""What a process took is its own, whoever started it; and too much of it is found."""

from __future__ import annotations

import contextlib
import random
import subprocess
import sys
from typing import TYPE_CHECKING

from proof.large_file import MEMORY_MB_MAX, Trial, peak_mb
from proof.part import Order, Size

if TYPE_CHECKING:
    from collections.abc import Generator
    from pathlib import Path

BALLAST_MB = 200
TAKE = f"held = b'x' * ({BALLAST_MB} << 20); del held"
SAY = "import os; print(os.getpid(), flush=True); input()"
START = f"import subprocess, sys; {TAKE}; subprocess.run([sys.executable, '-c', sys.argv[1]])"


@contextlib.contextmanager
def _started(*words: str) -> Generator[tuple[int, int]]:
    """Runs Python until the end of the block: its pid, and the pid that it says first."""
    command = [sys.executable, "-c", *words]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        yield process.pid, int(process.stdout.readline())
        process.communicate(b"\n")


def test_what_a_process_had_once_is_counted_and_what_its_parent_had_is_not() -> None:
    with _started(START, SAY) as (parent, own):
        assert peak_mb(parent) >= BALLAST_MB
        assert 0 < peak_mb(own) < BALLAST_MB / 2


def test_too_much_is_found_at_the_small_size_too(tmp_path: Path) -> None:
    order = Order(size=Size.SMALL, seed=1, place=tmp_path, say=lambda *_: None)
    trial = Trial(order, "", random.Random(1))
    trial.peak_mb = {"submit": MEMORY_MB_MAX, "collect": MEMORY_MB_MAX + 1}
    trial.check_memory()
    (found,) = trial.violations
    assert found.startswith("collect took")
