"""What torture says of a process that has died: only what was done to it is no finding."""

from __future__ import annotations

import signal
import sys
from typing import TYPE_CHECKING

import pytest

from onceq.history.events import Ended, Recorder, load
from proof.torture.board import Board, Count
from proof.torture.fleet import STARVED, STRIKES_MAX, Fleet, Participant
from proof.torture.life import Life
from proof.torture.nursery import FAILED, News
from proof.torture.spark import SparkServer
from tests.parts import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

KILLED = -int(signal.SIGKILL)
NAME = "server-0"


@pytest.fixture
def board(tmp_path: Path) -> Board:
    return Board(tmp_path / "board")


@pytest.fixture
def fleet(tmp_path: Path, board: Board) -> Iterator[Fleet]:
    """A fleet of one server, of which only the news are heard."""
    with Recorder(tmp_path / "conductor.events") as recorder:
        fleet = Fleet(board, recorder)
        fleet.is_tended = False
        life = Life(
            kind="server",
            name=NAME,
            life=1,
            row=0,
            conninfo="",
            repository="r",
            place=str(tmp_path),
            seed=1,
        )
        fleet.participants[NAME] = Participant(life, lasts=True)
        yield fleet
        fleet.close()


def news(code: int, *, asked: bool = False) -> News:
    return News(name=NAME, pid=1, code=code, asked=asked)


def test_a_kill_that_was_asked_for(fleet: Fleet) -> None:
    fleet.hear(news(KILLED, asked=True))
    assert (fleet.deaths.asked, fleet.deaths.others) == (1, [])


def test_a_kill_does_not_hide_what_a_server_had_died_of(fleet: Fleet) -> None:
    fleet.hear(news(FAILED, asked=True))
    assert (fleet.deaths.asked, len(fleet.deaths.others)) == (0, 1)


def test_only_who_executes_poison_dies_of_it(fleet: Fleet, board: Board, tmp_path: Path) -> None:
    fleet.hear(news(KILLED))
    assert (fleet.deaths.poisoned, len(fleet.deaths.others)) == (0, 1)
    board.add(0, Count.POISONED)
    fleet.hear(news(KILLED))
    assert (fleet.deaths.poisoned, len(fleet.deaths.others)) == (1, 1)
    fleet.hear(news(KILLED))
    assert (fleet.deaths.poisoned, len(fleet.deaths.others)) == (1, 2)
    ended = [one for one in load([tmp_path / "conductor.events"]) if isinstance(one, Ended)]
    assert [(one.target, one.pid, one.how) for one in ended] == [
        (NAME, 1, ""),
        (NAME, 1, "poisoned"),
        (NAME, 1, ""),
    ]


def test_a_starved_server_that_ends_well_has_ended_unasked(fleet: Fleet) -> None:
    fleet.participants[NAME].excused.add(STARVED)
    fleet.hear(news(FAILED))
    assert (fleet.deaths.starved, fleet.deaths.others) == (1, [])
    fleet.hear(news(0))  # it was asked to: nobody is tended any more
    assert (fleet.deaths.starved, fleet.deaths.others) == (1, [])
    fleet.is_tended = True
    fleet.hear(news(0))
    assert (fleet.deaths.starved, len(fleet.deaths.others)) == (1, 1)


def test_who_had_no_answer_is_left_alone_after_some_strikes(fleet: Fleet, board: Board) -> None:
    for _ in range(STRIKES_MAX):
        assert fleet.bears_a_strike(NAME)
        fleet.strike(NAME, signal.SIGKILL)
    assert not fleet.bears_a_strike(NAME)
    board.add(0, Count.REPLIES)
    assert fleet.bears_a_strike(NAME)


FAILS_ONCE = """
import pathlib, sys, time
here = pathlib.Path("was-here")
if not here.exists():
    here.touch()
    print("onceq: the last word\\n\\tat nowhere")
    sys.exit(3)
time.sleep(600)
"""


def test_a_server_on_spark_that_nobody_killed_is_a_finding(tmp_path: Path) -> None:
    spark = SparkServer((sys.executable, "-c", FAILS_ONCE), tmp_path, {})

    def is_in_life(number: int) -> bool:
        spark.tend()
        return spark.lives == number

    try:
        wait_until(lambda: is_in_life(2))
        assert spark.deaths == ["code 3: onceq: the last word"]
        assert spark.kill("driver", 0) is None
        wait_until(lambda: is_in_life(3))
        assert len(spark.deaths) == 1
    finally:
        spark.close()


def test_a_death_that_nobody_asked_for_says_its_last_words(fleet: Fleet, tmp_path: Path) -> None:
    said = f"--- {NAME} 1\nTraceback\nKeyError: 'it'\n--- {NAME} 12\nTraceback\nOSError: later\n"
    (tmp_path / "said.txt").write_text(said)
    fleet.hear(news(FAILED))
    assert fleet.deaths.others[0].endswith("code 70: KeyError: 'it'")
