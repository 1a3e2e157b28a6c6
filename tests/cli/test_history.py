"""`onceq history trim`: refused without an archive, verified by its files, safe when killed."""

from __future__ import annotations

import contextlib
import hashlib
import json
import signal
import subprocess
import sys
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import pytest

import onceq
from onceq.engine.faultpoints import VARIABLE
from onceq.engine.perform.driver import connect
from onceq.engine.perform.spark_driver import SparkDriver
from onceq.model.archive_ops import (
    ArchiveBegin,
    ArchiveCommit,
    ArchiveManifest,
    ArchivePlan,
    ArchiveSettle,
)
from tests.cli.parts import ROOT
from tests.parts import LIMIT_S, scalar, wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.cli.parts import Cli

RAW = onceq.Queue("raw", bytes, bytes)


@pytest.fixture(autouse=True)
def _ended(qm: onceq.QueueManager) -> None:
    """Three datagrams have ended."""
    qm.declare(RAW)
    end_some(qm)


@pytest.fixture
def driver(cli: Cli) -> Iterator[SparkDriver]:
    with contextlib.closing(connect(cli.url)) as connection:
        yield SparkDriver(connection, cli.repository)


def end_some(qm: onceq.QueueManager) -> None:
    qm.enqueue_many(RAW, [b"x"] * 3)
    while qm.dequeue("raw"):
        pass


def rows(cli: Cli) -> int:
    found: int = scalar(cli.url, f"select count(*) from {cli.repository}.history")
    return found


def archive_all(driver: SparkDriver, root: Path) -> Path:
    """Puts all that has ended into the manifest, with a file of it."""
    epoch = driver.perform(ArchiveBegin(root=str(root))).epoch
    since = driver.perform(ArchiveManifest()).archived
    looks: list[int] = []

    def has_looked() -> bool:
        found = driver.perform(ArchiveSettle(epoch=epoch))
        if found.is_new:
            looks.append(found.until)
        return len(looks) == 2

    wait_until(has_looked)
    run = uuid4()
    path = root / f"history/run={run}/{run}.parquet"
    path.parent.mkdir(parents=True)
    path.write_bytes(b"whatever is in it")
    now = datetime.now(UTC)
    file: dict[str, Any] = {
        "path": str(path.relative_to(root)),
        "kind": "history",
        "day": now.date().isoformat(),
        "rows": 3,
        "bytes": path.stat().st_size,
        "first_us": 1,
        "last_us": 2,
        "sha256": hashlib.sha256(path.read_bytes()).hexdigest(),
    }
    driver.perform(ArchivePlan(epoch=epoch, run=run))
    driver.perform(ArchiveCommit(epoch=epoch, since=since, until=looks[-1], run=run, files=[file]))
    return path


def test_without_an_archive_it_refuses_unless_told(cli: Cli, qm: onceq.QueueManager) -> None:
    refused = cli("history", "trim", "--keep-days", "0", code=1)
    assert "was ever archived" in refused.err
    assert "onceq spark archive" in refused.err
    assert rows(cli) == 3
    done = cli.json("history", "trim", "--keep-days", "0", "--unarchived").item
    assert (done["trimmed"], done["files"]) == ({"history": 3, "attempt": 0}, 0)
    assert rows(cli) == 0
    end_some(qm)
    assert "was ever archived" in cli("history", "trim", "--keep-days", "0", code=1).err


def test_what_is_archived_is_trimmed_and_the_rest_is_left(
    cli: Cli, qm: onceq.QueueManager, driver: SparkDriver, tmp_path: Path
) -> None:
    archive_all(driver, tmp_path)
    end_some(qm)
    words = ("history", "trim", "--keep-days", "0")
    dry = cli.json(*words, "--dry-run")
    told = (dry.item["trimmed"], dry.item["left"], dry.item["files"], dry.item["dry_run"])
    assert told == ({"history": 3, "attempt": 0}, {"history": 3, "attempt": 0}, 1, True)
    assert rows(cli) == 6
    assert cli.json("history", "trim", "--keep-days", "1").item["trimmed"]["history"] == 0
    done = cli(*words)
    assert "3 of history" in done.out
    assert "archived by `onceq spark archive`" in done.err
    assert rows(cli) == 3
    again = cli.json(*words).item
    assert (again["trimmed"]["history"], again["left"]["history"]) == (0, 3)
    assert [one.is_trimmed for one in driver.perform(ArchiveManifest()).files] == [True]
    archive_all(driver, tmp_path)
    assert cli.json(*words).item["trimmed"]["history"] == 3


@pytest.mark.parametrize("damage", ["cut", "gone"])
def test_where_a_file_is_damaged_nothing_is_trimmed(
    cli: Cli, driver: SparkDriver, tmp_path: Path, damage: str
) -> None:
    file = archive_all(driver, tmp_path)
    if damage == "cut":
        file.write_bytes(b"whatever is in i")
    else:
        file.unlink()
    for words in ((), ("--unarchived",)):
        refused = cli("history", "trim", "--keep-days", "0", *words, code=1)
        assert str(file) in refused.err
        assert "nothing is trimmed" in refused.err
    assert rows(cli) == 3


def test_what_a_client_may_still_ask_for_stays(cli: Cli, qm: onceq.QueueManager) -> None:
    with qm.clerk("till", RAW) as clerk:
        clerk.connect()
        sent = clerk.send("1", b"x")
        assert qm.kill(sent.eid).value == "KILLED"
        cli("history", "trim", "--keep-days", "0", "--unarchived")
        assert rows(cli) == 1


@pytest.mark.parametrize("point", ["ArchiveBegin.after", "ArchiveTrim.before", "ArchiveTrim.after"])
def test_a_trim_that_is_killed_is_run_again(
    cli: Cli, driver: SparkDriver, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, point: str
) -> None:
    archive_all(driver, tmp_path)
    words = ("history", "trim", "--keep-days", "0", "--json")
    with monkeypatch.context() as armed:
        armed.setenv(VARIABLE, f"{point} 1 kill {tmp_path}")
        process = cli.start(*words, cwd=ROOT)
    process.communicate(timeout=LIMIT_S)
    assert process.returncode == -signal.SIGKILL
    done = cli.start(*words, cwd=ROOT)
    out, _ = done.communicate(timeout=LIMIT_S)
    removed = 3 if point != "ArchiveTrim.after" else 0
    assert json.loads(out)["trimmed"]["history"] == removed
    assert rows(cli) == 0
    assert [one.is_trimmed for one in driver.perform(ArchiveManifest()).files] == [True]


def test_it_needs_neither_spark_nor_pyarrow(cli: Cli, driver: SparkDriver, tmp_path: Path) -> None:
    archive_all(driver, tmp_path)
    program = (
        "import sys; sys.modules['pyspark'] = sys.modules['pyarrow'] = None;"
        "from onceq.cli.main import main; main()"
    )
    words = (sys.executable, "-c", program, "history", "trim", "--keep-days", "0")
    done = subprocess.run(words, env=cli.environment(), capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert rows(cli) == 0
