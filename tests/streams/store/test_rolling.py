"""The log file of a store: appended to, and rolled by size, day or hour at the next message."""

from __future__ import annotations

import logging
import os
import time
from datetime import datetime
from typing import TYPE_CHECKING

import pytest

from onceq.streams.store.rolling import LogFile, Roll, RollingHandler

if TYPE_CHECKING:
    from pathlib import Path

PID = os.getpid()


def at(text: str) -> float:
    """A moment of the local clock."""
    return time.mktime(datetime.fromisoformat(text).timetuple())


def say(handler: RollingHandler, text: str, when: str) -> None:
    record = logging.makeLogRecord({"msg": text})
    record.created = at(when)
    handler.handle(record)


def files(home: Path) -> dict[str, list[str]]:
    """What each file has, by its name."""
    return {one.name: one.read_text().splitlines() for one in sorted(home.iterdir())}


def opened(home: Path, size_bytes: int | None = None, roll: Roll | None = None) -> RollingHandler:
    handler = RollingHandler(LogFile(path=home / "log", size_bytes=size_bytes, roll=roll))
    handler.setFormatter(logging.Formatter("%(message)s"))
    return handler


def test_a_file_is_appended_to_and_never_rolled_unless_that_is_wanted(tmp_path: Path) -> None:
    for text, when in (("one", "2017-08-20 10:00"), ("two", "2018-01-01 10:00")):
        handler = opened(tmp_path)
        say(handler, text, when)
        handler.close()
    assert files(tmp_path) == {"log": ["one", "two"]}


def test_a_file_of_a_size_is_rolled_by_the_next_message(tmp_path: Path) -> None:
    handler = opened(tmp_path, size_bytes=8)
    for text in ("three", "four", "five", "sixsixsix", "seven"):
        say(handler, text, "2017-08-20 10:00")
    handler.close()
    assert files(tmp_path) == {
        "log": ["seven"],
        f"log_{PID}.2017-08-20.1": ["three", "four"],
        f"log_{PID}.2017-08-20.2": ["five", "sixsixsix"],
    }


@pytest.mark.parametrize(
    ("roll", "same", "other"),
    [
        (Roll.DAILY, "2017-08-20 23:59", "2017-08-21 00:01"),
        (Roll.HOURLY, "2017-08-20 10:59", "2017-08-20 11:00"),
        (Roll.HOURLY, "2017-08-20 10:59", "2017-08-21 10:01"),
    ],
)
def test_a_day_and_an_hour_are_rolled_by_the_first_message_of_the_next(
    tmp_path: Path, roll: Roll, same: str, other: str
) -> None:
    handler = opened(tmp_path, roll=roll)
    say(handler, "one", "2017-08-20 10:01")
    say(handler, "two", same)
    handler.flush()
    assert files(tmp_path) == {"log": ["one", "two"]}
    say(handler, "three", other)
    handler.close()
    assert files(tmp_path) == {"log": ["three"], f"log_{PID}.2017-08-20.1": ["one", "two"]}


def test_whichever_is_first_rolls(tmp_path: Path) -> None:
    handler = opened(tmp_path, size_bytes=4, roll=Roll.DAILY)
    say(handler, "large", "2017-08-20 22:00")
    say(handler, "a", "2017-08-20 23:00")
    say(handler, "b", "2017-08-21 00:00")
    handler.close()
    assert files(tmp_path) == {
        "log": ["b"],
        f"log_{PID}.2017-08-20.1": ["large"],
        f"log_{PID}.2017-08-20.2": ["a"],
    }


def test_what_an_earlier_process_wrote_yesterday_is_rolled_by_the_first_message(
    tmp_path: Path,
) -> None:
    path = tmp_path / "log"
    path.write_text("before\n")
    os.utime(path, (at("2017-08-19 12:00"), at("2017-08-19 12:00")))
    handler = opened(tmp_path, roll=Roll.DAILY)
    say(handler, "after", "2017-08-20 12:00")
    handler.close()
    assert files(tmp_path) == {"log": ["after"], f"log_{PID}.2017-08-19.1": ["before"]}


def test_a_directory_is_made_and_an_empty_file_is_not_rolled(tmp_path: Path) -> None:
    home = tmp_path / "logs"
    handler = opened(home, size_bytes=1, roll=Roll.HOURLY)
    say(handler, "one", "2017-08-20 12:00")
    handler.close()
    assert files(home) == {"log": ["one"]}
