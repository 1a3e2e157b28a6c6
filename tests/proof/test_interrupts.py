"""Who is struck in the middle of a call learns the truth: the part in its small size."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING

import msgspec
import pytest

from proof import goals
from proof.interrupts.part import MADE
from proof.part import Outcome, Size
from tests.crash.parts import report
from tests.tidy.source_tree import ROOT

if TYPE_CHECKING:
    from pathlib import Path

RUN = """
import sys, msgspec
from pathlib import Path
from proof.interrupts.part import run
from proof.part import Order, Size
order = Order(size=Size.SMALL, seed=1, place=Path(sys.argv[1]), say=lambda *_: None)
sys.stdout.buffer.write(msgspec.json.encode(run(order)))
"""
"""In a process of its own: it forks the clients, and has no thread when it does."""


@pytest.mark.timeout(180)
def test_who_is_struck_in_the_middle_of_a_call_learns_the_truth(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", RUN, str(tmp_path)],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT}"},
        check=False,
        capture_output=True,
        timeout=150,
    )
    assert done.returncode == 0, done.stderr.decode()
    outcome = msgspec.json.decode(done.stdout, type=Outcome)
    report(outcome.page)
    assert outcome.violations == []
    reached = {measure.what: measure.reached for measure in outcome.measures}
    assert reached[goals.INTERRUPTS] >= MADE[Size.SMALL]
