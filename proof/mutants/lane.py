"""One lane in which mutants are run: a copy of the tree, a PostgreSQL, and one mutant at a time.

Used by `part`, one lane for each thread. The working tree is never changed. Each run is a process
of pytest on the copy; it shares the lane's PostgreSQL with the runs before it, since a start costs
more than most tests. Invariant: between two runs the copy equals the working tree.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from typing import TYPE_CHECKING, Any

from onceq.engine.embedded import open_embedded
from proof.mutants.table import ROOT, Mutant, mutated
from proof.mutants.verdict import Verdict, judge

if TYPE_CHECKING:
    from collections.abc import Generator, Sequence
    from pathlib import Path

COPIED = ("src", "tests", "proof", "pyproject.toml")
TEST_LIMIT_S = 120
RUN_LIMIT_S = 240
RUN_LIMIT_S_PER_TEST = 10
SCHEDULES = "500"
"""Schedules of the simulator: a mutant that breaks there breaks within a few."""
OPTIONS = ("-q", "-x", "--no-header", "--tb=short", "-p", "no:randomly", "-p", "no:cacheprovider")


class Lane:
    """A copy of the tree with a PostgreSQL. Made by `open_lane`; used by one thread."""

    def __init__(self, place: Path) -> None:
        self.tree = place / "tree"
        self._witness = place / "witness.jsonl"
        self._said = place / "said.txt"
        self._postgresql = place / "postgresql"

    def copy_tree(self) -> None:
        """Copies what the tests need, and compiles it, so that a change is seen by its content."""
        self.tree.mkdir(parents=True)
        for name in COPIED:
            if (ROOT / name).is_dir():
                ignored = shutil.ignore_patterns("__pycache__")
                shutil.copytree(ROOT / name, self.tree / name, ignore=ignored)
            else:
                shutil.copy(ROOT / name, self.tree / name)
        options = ("-q", "--invalidation-mode", "checked-hash", str(self.tree / "src"))
        subprocess.run([sys.executable, "-m", "compileall", *options], check=True, cwd=self.tree)

    @contextlib.contextmanager
    def planted(self, mutant: Mutant) -> Generator[None]:
        """Plants a mutant in the copy for the time of the block. Unfit: nothing was planted."""
        texts = mutated(mutant, self.tree)
        before = {path: path.read_bytes() for path in texts}
        try:
            for path, text in texts.items():
                path.write_text(text, encoding="utf-8")
            yield
        finally:
            for path, content in before.items():
                path.write_bytes(content)

    def run(self, tests: Sequence[str], raises: str | None = None) -> Verdict:
        """Runs tests on the copy as it is now, up to the first that fails."""
        self._witness.unlink(missing_ok=True)
        begun = time.monotonic()
        exit_code = self._pytest(tests)
        seconds = time.monotonic() - begun
        lines: list[dict[str, Any]] = []
        if self._witness.exists():
            text = self._witness.read_text(encoding="utf-8")
            lines = [json.loads(line) for line in text.splitlines()]
        return judge(lines, raises, exit_code, seconds)

    def _pytest(self, tests: Sequence[str]) -> int | None:
        command = [sys.executable, "-m", "pytest", *OPTIONS, f"--timeout={TEST_LIMIT_S}"]
        command += ["-p", "proof.mutants.witness", *tests]
        with (
            self._said.open("wb") as said,
            subprocess.Popen(
                command,
                cwd=self.tree,
                env=self._environment(),
                stdin=subprocess.DEVNULL,
                stdout=said,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            ) as process,
        ):
            try:
                return process.wait(RUN_LIMIT_S + RUN_LIMIT_S_PER_TEST * len(tests))
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                return None

    def _environment(self) -> dict[str, str]:
        own = {
            "PYTHONPATH": f"{self.tree / 'src'}{os.pathsep}{self.tree}",
            "PYTHONDONTWRITEBYTECODE": "1",
            "SCHEDULES": SCHEDULES,
            "ONCEQ_WITNESS": str(self._witness),
            "ONCEQ_TEST_URL": f"embedded:{self._postgresql}",
        }
        return {**os.environ, **own}

    def said(self) -> str:
        """What pytest printed in the last run."""
        return self._said.read_text(encoding="utf-8", errors="replace")


@contextlib.contextmanager
def open_lane(place: Path) -> Generator[Lane]:
    """Makes a lane in an empty directory; its PostgreSQL is stopped at the end of the block."""
    lane = Lane(place)
    lane.copy_tree()
    with open_embedded(place / "postgresql"):
        yield lane
