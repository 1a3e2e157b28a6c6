"""Kill -9 of clients at each point between receiving a reply and having processed it (C8, C14).

Exactly once with a device that can be tested, in both orders; at least once, or at most once, where
the policy says so.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import pytest

from tests.crash.processing import ECHO, POINTS, POLICIES, REQUESTS, Trial, run
from tests.parts import serving

if TYPE_CHECKING:
    from pathlib import Path

    import onceq

EXACT = {"undo", "test", "late", "ask"}
NUMBERED = EXACT - {"undo"}
"""What is taken back frees its number."""
AT_ONCE = 4


def echo(text: str, _context: onceq.Context) -> str:
    return text


@pytest.mark.timeout(400)
def test_clients_killed_at_each_point_keep_what_their_policy_promises(
    conninfo: str, repository: str, tmp_path: Path
) -> None:
    _killed_at_each(conninfo, repository, tmp_path, "process")


@pytest.mark.timeout(400)
@pytest.mark.parametrize("begins", ["recover", "file", "row"])
def test_clients_that_recover_by_their_policy_keep_what_it_promises(
    conninfo: str, repository: str, tmp_path: Path, begins: str
) -> None:
    """Without a ledger, and with one in a file or in the database."""
    _killed_at_each(conninfo, repository, tmp_path, begins)


def _killed_at_each(conninfo: str, repository: str, tmp_path: Path, begins: str) -> None:
    place: dict[str, Any] = {"url": conninfo, "repository": repository, "files": tmp_path}
    trials = [
        Trial(kind=kind, point=point, begins=begins, **place)
        for kind in POLICIES
        for point in POINTS
    ]
    with (
        serving(conninfo, repository, ECHO.handled_by(echo)),
        ThreadPoolExecutor(AT_ONCE) as pool,
    ):
        ends = list(pool.map(run, trials))
    doubled, missing, died = set[str](), set[str](), dict.fromkeys(POLICIES, 0)
    wanted = [str(number) for number in range(1, REQUESTS + 1)]
    for trial, (has_died, lines) in zip(trials, ends, strict=True):
        policy, told = trial.kind, f"{trial.name}: {lines}"
        numbers, rids = [line.split()[0] for line in lines], [line.split()[1] for line in lines]
        died[policy] += has_died
        if policy in EXACT:
            assert rids == wanted, told
        if policy in NUMBERED:
            assert numbers == wanted, told
        if len(rids) > REQUESTS:
            doubled.add(policy)
        if len(rids) < REQUESTS:
            missing.add(policy)
        assert set(rids) <= set(wanted)
        assert policy == "skip" or set(rids) == set(wanted), told
    assert min(died.values()) >= len(POINTS) // 2, died
    assert (doubled, missing) == ({"repeat"}, {"skip"}), "the worst moments were met"
