"""Kill -9 of clients at each point between receiving a reply and having processed it (C8, C14).

Exactly once with a device that can be tested, in both orders; at least once, or at most once, where
the policy says so.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.crash.processing_child import ECHO, POINTS, POLICIES, REQUESTS
from tests.parts import serving

if TYPE_CHECKING:
    import onceq

ROOT = Path(__file__).resolve().parents[2]
EXACT = {"undo", "test", "late", "ask"}
NUMBERED = EXACT - {"undo"}
"""What is taken back frees its number."""


def echo(text: str, _context: onceq.Context) -> str:
    return text


@pytest.mark.timeout(240)
def test_clients_killed_at_each_point_keep_what_their_policy_promises(
    conninfo: str, repository: str, tmp_path: Path
) -> None:
    with serving(conninfo, repository, ECHO.handled_by(echo)):
        ran = subprocess.run(
            [
                *[sys.executable, "-m", "tests.crash.processing_child"],
                json.dumps([conninfo, repository, str(tmp_path)]),
            ],
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT}"},
            check=False,
            capture_output=True,
            text=True,
            timeout=220,
        )
    assert ran.returncode == 0, ran.stderr[-4000:]
    trials = [line.split() for line in ran.stdout.splitlines()]
    assert len(trials) == len(POLICIES) * len(POINTS)
    doubled, missing, died = set[str](), set[str](), dict.fromkeys(POLICIES, 0)
    wanted = [str(number) for number in range(1, REQUESTS + 1)]
    for name, end, *tickets in trials:
        policy = name.split("-")[0]
        numbers, rids = tickets[0::2], tickets[1::2]
        died[policy] += end == "died"
        if policy in EXACT:
            assert rids == wanted, f"{name}: {tickets}"
        if policy in NUMBERED:
            assert numbers == wanted, f"{name}: {tickets}"
        if len(rids) > REQUESTS:
            doubled.add(policy)
        if len(rids) < REQUESTS:
            missing.add(policy)
        assert set(rids) <= set(wanted)
        assert policy == "skip" or set(rids) == set(wanted), f"{name}: {tickets}"
    assert min(died.values()) >= len(POINTS) // 2, died
    assert (doubled, missing) == ({"repeat"}, {"skip"}), "the worst moments were met"
