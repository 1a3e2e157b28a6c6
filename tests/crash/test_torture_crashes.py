"""Torture counts the crashes that PostgreSQL's log tells of, each once."""

from __future__ import annotations

from typing import TYPE_CHECKING

from proof.torture.database import RECOVERED, Crashes

if TYPE_CHECKING:
    from pathlib import Path

CRASH = b"LOG:  database system was not properly shut down; " + RECOVERED + b"\n"


def test_each_crash_is_counted_once_while_the_log_grows_and_begins_anew(tmp_path: Path) -> None:
    log, crashes = tmp_path / "postgres.log", Crashes()
    log.write_bytes(b"LOG:  starting\n" + CRASH + CRASH[:-9])
    crashes.read(log)
    crashes.read(log)
    assert crashes.count == 1
    with log.open("ab") as file:
        file.write(CRASH[-9:] + CRASH)
    log.replace(tmp_path / "postgres.log.1")
    log.write_bytes(CRASH)
    crashes.read(log)
    crashes.read(log)
    assert crashes.count == 4
