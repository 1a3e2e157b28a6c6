"""In which order the files run, side by side: the longest first; what needs Spark's Java together.

`make test` runs more processes than there are cores, since most tests wait. Spark's Javas do not:
so the files that share a session, and those that start Javas of their own, go to few processes.
`LONGEST_S` is as `make test` says at its end; a wrong figure costs time, and nothing else.
"""

from __future__ import annotations

import re
from collections import defaultdict
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    import pytest

ROOT: Final = Path(__file__).resolve().parents[1]
JAVAS: Final = 2
"""How many processes have files with Java, and so a Spark session, where one is asked for."""
ASKS_FOR_SPARK: Final = re.compile(r"\bspark: SparkSession\b|usefixtures\(\"spark\"\)")
STARTS_JAVA: Final = frozenset(
    {
        "tests/cli/test_pipelines.py",
        "tests/crash/test_torture.py",
        "tests/examples/test_cdnow_run.py",
        "tests/examples/test_examples.py",
        "tests/examples/test_quickstart.py",
        "tests/proof/test_torture_command.py",
        "tests/spark/test_archive_killed.py",
        "tests/spark/test_clean_stop.py",
        "tests/spark/test_cluster.py",
        "tests/spark/test_fault_points.py",
        "tests/spark/test_pipeline_points.py",
    }
)
USUAL_S: Final = 3.0
WITH_SPARK_S: Final = 10.0
SLOWEST: Final = 10
LONGEST_S: Final[Mapping[str, float]] = {
    "tests/examples/test_cdnow_run.py": 330.0,
    "tests/crash/test_fault_points.py": 190.0,
    "tests/spark/test_serving.py": 180.0,
    "tests/streams/test_streams_simulation.py": 165.0,
    "tests/examples/test_examples.py": 155.0,
    "tests/engine/test_findings_database.py": 155.0,
    "tests/proof/test_mutants.py": 150.0,
    "tests/spark/test_kills.py": 135.0,
    "tests/crash/test_torture.py": 135.0,
    "tests/cli/test_serve_goes_on.py": 125.0,
    "tests/spark/test_cluster.py": 120.0,
    "tests/examples/test_guides.py": 120.0,
    "tests/engine/test_cursor.py": 118.0,
    "tests/spark/test_archive_killed.py": 115.0,
    "tests/spark/test_archive_damaged.py": 115.0,
    "tests/spark/test_pipeline_points.py": 80.0,
    "tests/spark/test_fault_points.py": 76.0,
    "tests/spark/test_driver_killed.py": 62.0,
    "tests/simulation/test_simulator.py": 57.0,
    "tests/conformance/test_conformance.py": 50.0,
    "tests/spark/test_crash_matrix.py": 47.0,
    "tests/proof/test_torture_command.py": 45.0,
    "tests/spark/test_ended_from_outside.py": 45.0,
    "tests/proof/test_clients.py": 42.0,
    "tests/spark/test_report.py": 40.0,
    "tests/spark/test_recovering.py": 40.0,
    "tests/spark/test_writing.py": 40.0,
    "tests/spark/test_forged_words.py": 38.0,
    "tests/server/test_cut_connections.py": 35.0,
    "tests/crash/test_power_cut.py": 35.0,
    "tests/spark/test_audit_long.py": 34.0,
    "tests/crash/test_dead_links.py": 31.0,
    "tests/examples/test_quickstart.py": 30.0,
    "tests/spark/test_clean_stop.py": 28.0,
    "tests/proof/test_scoreboard.py": 23.0,
    "tests/crash/test_database_kills.py": 20.0,
}


def has_java(file: str) -> bool:
    """Returns whether tests of a file have the fixture `spark`, or start Javas of their own."""
    text = (ROOT / file).read_text(encoding="utf-8")
    return file in STARTS_JAVA or ASKS_FOR_SPARK.search(text) is not None


def dealt(files: Iterable[str]) -> tuple[dict[str, str], dict[str, float]]:
    """Returns the group of each file, and how long each group may take."""
    group_of: dict[str, str] = {}
    seconds: defaultdict[str, float] = defaultdict(float)
    known = {
        file: LONGEST_S.get(file, WITH_SPARK_S if has_java(file) else USUAL_S)
        for file in sorted(files)
    }
    for file in sorted(known, key=lambda file: -known[file]):
        group = file
        if has_java(file):
            group = min((f"java {n}" for n in range(JAVAS)), key=lambda one: seconds[one])
        group_of[file] = group
        seconds[group] += known[file]
    return group_of, dict(seconds)


def file_of(nodeid: str) -> str:
    """Returns the file of a test."""
    return nodeid.partition("::")[0]


def longest_first(items: list[pytest.Item]) -> None:
    """Sorts tests by their groups; within a file they stay as they are."""
    group_of, seconds = dealt({file_of(item.nodeid) for item in items})

    def rank(item: pytest.Item) -> tuple[float, str, str]:
        file = file_of(item.nodeid)
        return -seconds[group_of[file]], group_of[file], file

    items.sort(key=rank)


def slowest_files(reports: Iterable[pytest.TestReport]) -> list[str]:
    """Returns a table of the files that took longest."""
    seconds: defaultdict[str, float] = defaultdict(float)
    for report in reports:
        seconds[file_of(report.nodeid)] += report.duration
    most = sorted(seconds.items(), key=lambda one: -one[1])[:SLOWEST]
    return [f"{took:8.1f} s  {file}" for file, took in most]
