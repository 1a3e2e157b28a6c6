"""Fault points: one table, loud when armed, and nothing at all when not."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from onceq.engine import faultpoints
from onceq.engine.bind.binding import BINDINGS
from onceq.engine.bind.spark_binding import ARCHIVE_BINDINGS, SPARK_BINDINGS
from onceq.engine.faultpoints import NAMED, OPS, POINTS, VARIABLE, WATCHED
from onceq.engine.perform.async_driver import AsyncPostgresDriver
from onceq.engine.perform.driver import PostgresDriver
from onceq.model import ops
from onceq.model.ledger_ops import LEDGER_OPS

if TYPE_CHECKING:
    import onceq

SOURCE = Path(faultpoints.__file__).parents[1]
CALLED = re.compile(r'faultpoint\("([^"]+)"\)')
CALLED_BY_SPARK = re.compile(r'self\.at\("([^"]+)"\)')
WITHOUT_SQL = {
    *("Act", "Begin", "BeginWork", "MayGoOn", "MayTend", "Commit", "Rollback", "Call"),
    *("Post", "Posted", "Stopping", "IsAlive", "Wait", "Sleep", "Rouse"),
}


CHANGE_NOTHING = {
    *("ArchiveCount", "ArchiveDead", "ArchiveDue", "ArchiveManifest", "ArchiveRedriven"),
    *(
        "ArchiveOwners",
        "ArchiveTables",
        "Attend",
        "LastUser",
        "BeginWork",
        "Identify",
        "ListClients",
    ),
    *("ListPrepared", "ListQueues", "ListServers", "FindMissing", "FindRequests", "IsAlive"),
    *("ListAttempts", "ListTakenOver", "CountOutstanding", "LookUp", "MayGoOn", "MeasureRates"),
    *("BeginTagged", "EidsOf", "Examine", "ListSessions", "Measure", "MeasureQueues", "NextDue"),
    *("FindHeld", "FindPause", "GroupHeld"),
    *("DueRetention", "OpenScan", "RetentionOwners", "ScanElements", "ScanKeys"),
    *("DueTicks", "ListPeriodics", "MayTend", "Now"),
    *("NextExpiry", "Outstanding", "Peek", "ReadElement", "ReadLast", "UnknownRid"),
    *(
        "ReceiveEach",
        "RelayPlanned",
        "RidRange",
        "Rouse",
        "Sleep",
        "StillClaimed",
        "StopWaiting",
        "Stopping",
        "StreamHold",
        "Threads",
        "Wait",
        "WhereIs",
    ),
    *("SparkAborts", "SparkBound", "SparkLastRecord", "SparkLeft", "SparkRead"),
}
"""What nobody else can see. An Op that forgets to say what it changes is not here."""


def test_an_op_that_says_nothing_changes_nothing() -> None:
    kinds: set[Any] = {*BINDINGS, *ARCHIVE_BINDINGS, *SPARK_BINDINGS, *LEDGER_OPS}
    kinds |= {getattr(ops, one) for one in WITHOUT_SQL}
    quiet = {one.__name__ for one in kinds if not one.changes and not one.in_doubt}
    assert quiet == CHANGE_NOTHING


def test_an_op_that_leaves_its_effect_in_doubt_changes_something_and_has_points() -> None:
    """Those of Spark's Ops are places, and a sweep may be repeated, whatever became of it."""
    kinds = {*BINDINGS, *ARCHIVE_BINDINGS, *LEDGER_OPS, *(getattr(ops, one) for one in WITHOUT_SQL)}
    assert {one.__name__ for one in kinds if one.changes} == set(OPS) - set(WATCHED.values()) | {
        "Commit"
    }
    assert {one for one in kinds if bool(one.changes) is not one.in_doubt} == {ops.Sweep}
    assert not {one for one in SPARK_BINDINGS if one.changes}


def test_the_places_of_the_table_are_those_of_the_source() -> None:
    texts = [path.read_text(encoding="utf-8") for path in SOURCE.rglob("*.py")]
    called = [name for text in texts for name in CALLED.findall(text)]
    called += [f"spark.{name}" for text in texts for name in CALLED_BY_SPARK.findall(text)]
    assert sorted(called) == sorted(NAMED)
    assert len(POINTS) == 2 * len(OPS) + len(NAMED)


def test_off_the_drivers_are_what_they_are_written_as() -> None:
    assert faultpoints.hook is None
    for driver in (PostgresDriver, AsyncPostgresDriver):
        for method in ("perform", *WATCHED):
            assert not hasattr(driver.__dict__.get(method), "__wrapped__")


def test_armed_it_says_so_and_strikes_once(
    qm: onceq.QueueManager, conninfo: str, tmp_path: Path
) -> None:
    program = (
        "import onceq, sys\n"
        "with onceq.open(sys.argv[1], repository=sys.argv[2]) as qm:\n"
        "    queue = onceq.Queue('orders', str, str)\n"
        "    qm.declare(queue)\n"
        "    qm.enqueue(queue, 'an order')\n"
    )

    def run() -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-c", program, conninfo, qm.repository],
            env={**os.environ, VARIABLE: f"Enqueue.after 2 kill {tmp_path}"},
            capture_output=True,
            text=True,
            check=False,
        )

    first, second, third = run(), run(), run()
    assert [first.returncode, second.returncode, third.returncode] == [0, -9, 0]
    assert "FAULT POINTS ARE ARMED" in second.stderr
    assert (tmp_path / "Enqueue.after").stat().st_size == 3
    assert qm.show("orders").depth == 3


def test_a_point_that_is_not_in_the_table_cannot_be_armed(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="no fault point"):
        faultpoints.arm(f"Sned.after 1 kill {tmp_path}")
    assert faultpoints.hook is None


def test_the_page_of_the_docs_has_the_table() -> None:
    text = (SOURCE.parents[1] / "docs" / "maintainers" / "fault-points.md").read_text(
        encoding="utf-8"
    )
    rows = [f"| `{one}.before`, `{one}.after` | {what} |" for one, what in OPS.items()]
    rows += [f"| `{one}` | {what} |" for one, what in NAMED.items()]
    assert [row for row in rows if row not in text] == []
    assert text.count("\n| `") == len(rows)
