"""The floor of the exchange: what is struck, what cannot be any more, and that nothing is left."""

from __future__ import annotations

import dataclasses
import io
import subprocess
import sys
from typing import TYPE_CHECKING, Any, cast

import pytest
from rich.console import Console

from examples.exchange.checks import Verdict
from examples.exchange.faults import Deed, Strike, Struck
from examples.exchange.floor import Floor, Striker
from examples.exchange.market import FEEDS, HIGH_FEED, LOW_FEED, RunDirectory, Setup
from examples.exchange.options import parse
from examples.exchange.report import Facts, as_object, as_tables, as_whole, exit_code
from examples.exchange.runner import Run, _ended, _free_ports
from examples.running.child import Child
from examples.running.progress import Display
from examples.running.wheels import ROOT

if TYPE_CHECKING:
    from pathlib import Path

    from examples.exchange.database import Database

GOES_ON = "code"
"""A module that is a program: it reads until its input ends."""
END_S = 60.0


def child(tmp_path: Path, module: str) -> Child:
    return Child(LOW_FEED, module, [], tmp_path / "log")


def floor(tmp_path: Path, feed: Child) -> Floor:
    return Floor(
        RunDirectory(tmp_path),
        Setup(url="", stores=(), listens={}, rate=0),
        cast("Database", None),  # nobody asks it
        {LOW_FEED: feed},
        {"bars": 10, LOW_FEED: 5, HIGH_FEED: 5},
        booked=9,
    )


def strike(target: str) -> Strike:
    return Strike(deed=Deed.KILL, target=target, share=0.1, delay_s=0.0)


def test_a_feed_that_has_sent_all_is_not_struck_and_nobody_waits_for_it(tmp_path: Path) -> None:
    feed = child(tmp_path, GOES_ON)
    feed.counts = {"stable": 5}
    pending = [strike(LOW_FEED), strike("ledger")]
    striker = Striker(
        floor(tmp_path, feed),
        Display(Console(quiet=True)),
        pending.copy(),
        lambda _: child(tmp_path, GOES_ON),
    )
    striker.floor.parts["ledger"] = child(tmp_path, GOES_ON)  # not ready: not struck, now
    striker.step()
    assert (striker.missed, striker.pending) == ([pending[0]], [pending[1]])


def test_a_store_ends_with_whoever_started_it(tmp_path: Path) -> None:
    (port,) = _free_ports(1)
    directory = RunDirectory(tmp_path)
    directory.write_setup(Setup(url="", stores=(f"127.0.0.1:{port}",), listens={}, rate=0))
    command = [sys.executable, "-m", "examples.exchange.store", str(tmp_path), "1"]
    with subprocess.Popen(
        command, cwd=ROOT, stdin=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as store:
        assert store.stdin is not None
        assert store.stderr is not None
        assert any("serves at" in line for line in store.stderr)
        store.stdin.close()  # as a runner does that is killed
        assert store.stderr.read().count("is committed and closed") == 1
        assert store.wait(END_S) == 0


def test_a_frozen_feed_is_ended_with_a_run_that_is_interrupted(tmp_path: Path) -> None:
    frozen, successor = child(tmp_path, GOES_ON), child(tmp_path, GOES_ON)
    on = floor(tmp_path, successor)
    on.frozen.append(frozen)
    frozen.start()
    successor.start()
    frozen.freeze()
    run = Run(
        options=parse([], {}),
        display=Display(Console(quiet=True)),
        directory=RunDirectory(tmp_path),
        bars={feed: [] for feed in FEEDS},
        rate=0,
        kills=0,
    )
    with pytest.raises(KeyboardInterrupt), _ended(run, on):
        raise KeyboardInterrupt
    assert not frozen.is_running
    assert not successor.is_running


def facts(*, fenced: int = 1, kills: int = 1, **changed: Any) -> Facts:
    frozen = Struck(deed=Deed.FREEZE, target=LOW_FEED, at_s=1.0, booked=5, recovery_s=1.5)
    kill = Struck(deed=Deed.KILL, target="store-1", at_s=1.0, booked=5, recovery_s=2.0)
    made = Facts(
        seed=1,
        directory="d",
        rate=100,
        bars=10,
        working_s=2.0,
        struck=(frozen, *[kill] * kills),
        missed=(),
        fenced=fenced,
        kills_least=1,
        unasked=(),
        stable_s={"p50": 0.01},
        cut_short=None,
    )
    return dataclasses.replace(made, **changed)


GOOD = Verdict(rows=(("lost", 0, 0),), mismatches=())
WIPED = Struck(deed=Deed.WIPE, target="store-2", at_s=1.0, booked=5)


def printed(of: Facts) -> str:
    console = Console(file=io.StringIO(), width=200, record=True)
    for one in as_tables(of, GOOD):
        console.print(one)
    return console.export_text()


@pytest.mark.parametrize(
    ("changed", "says"),
    [
        ({"fenced": 0}, "frozen feeds: 1, of which 0 were fenced"),
        ({"kills": 0}, "too few kills: 0, and 1 are the least"),
        ({"kills": 19, "kills_least": 20}, "too few kills: 19, and 20 are the least"),
        ({"missed": (strike("relay"),)}, "not struck, as the work was over before: relay at 10%"),
        ({"cut_short": "no time"}, "cut short: no time"),
    ],
)
def test_a_run_that_shows_too_little_has_failed_and_says_why(
    changed: dict[str, Any], says: str
) -> None:
    assert exit_code(facts(), GOOD) == 0
    failed = facts(**changed)
    assert exit_code(failed, GOOD) == 1
    (told,) = as_object(failed, GOOD)["failures"]
    assert told.startswith(says)
    assert says in printed(failed)
    assert "Everything agrees" not in printed(failed)


def test_kills_are_a_number_that_counts_a_wiped_store_and_no_frozen_feed() -> None:
    enough = facts(kills=19, struck=(*facts(kills=19).struck, WIPED), kills_least=20)
    assert exit_code(enough, GOOD) == 0
    told = as_object(enough, GOOD)
    assert (told["kills"], told["kills_least"]) == (20, 20)
    (line,) = [line for line in printed(enough).splitlines() if "kills " in line and "20" in line]
    assert "≥ 20" in line


def test_an_unpaced_run_kills_nobody_and_needs_no_kills() -> None:
    unpaced = facts(rate=0, struck=(), fenced=0, kills_least=0)
    assert exit_code(unpaced, GOOD) == 0
    assert "kills" not in printed(unpaced)


def test_a_run_that_is_asked_for_nothing_else_is_to_have_twenty_kills() -> None:
    assert parse([], {}).least_kills == 20


def test_the_report_has_the_times_to_recover_by_kind() -> None:
    told = as_object(facts(fenced=1), GOOD)
    assert told["recovery_s"] == {"feed, freeze": [1.5], "store": [2.0]}
    whole = as_whole([(facts(fenced=1), GOOD), (facts(fenced=0), GOOD)])
    assert (whole["v"], whole["ok"], len(whole["runs"])) == (1, False, 2)
