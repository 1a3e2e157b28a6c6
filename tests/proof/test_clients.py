"""Clients killed at every step always know: the part of the proof at its small size."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING

import msgspec
import pytest

from proof.clients.part import KILLED, PART
from proof.part import Outcome, Size
from tests.tidy.source_tree import ROOT

if TYPE_CHECKING:
    from pathlib import Path

RUN = """
import sys, msgspec
from pathlib import Path
from proof.clients.part import run
from proof.part import Order, Size
order = Order(size=Size.SMALL, seed=1, place=Path(sys.argv[1]), say=lambda *_: None)
sys.stdout.buffer.write(msgspec.json.encode(run(order)))
"""
"""In a process of its own: it forks the clients, and has no thread when it does."""


@pytest.mark.timeout(180)
def test_clients_that_are_killed_at_every_step_know_their_state(tmp_path: Path) -> None:
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
    assert outcome.violations == []
    assert outcome.measures[0].reached >= KILLED[Size.SMALL]
    assert [control.what for control in outcome.controls] == list(PART.controls)
    assert all(control.is_met for control in outcome.controls)
