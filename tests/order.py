"""In which order the files run, side by side: the longest first; what needs Spark's Java together.

`make test` runs more processes than there are cores, since most tests wait. Each of those that
has a Spark session has a Java of its own, so the files that ask for one go to few processes.
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
SESSIONS: Final = 2
"""How many processes have a Spark session."""
ASKS_FOR_SPARK: Final = re.compile(r"\bspark: SparkSession\b|usefixtures\(\"spark\"\)")
USUAL_S: Final = 3.0
WITH_SPARK_S: Final = 10.0
SLOWEST: Final = 10
LONGEST_S: Final[Mapping[str, float]] = {}


def asks_for_spark(file: str) -> bool:
    """Returns whether tests of a file have the fixture `spark`."""
    return ASKS_FOR_SPARK.search((ROOT / file).read_text(encoding="utf-8")) is not None


def dealt(files: Iterable[str]) -> tuple[dict[str, str], dict[str, float]]:
    """Returns the group of each file, and how long each group may take."""
    group_of: dict[str, str] = {}
    seconds: defaultdict[str, float] = defaultdict(float)
    known = {
        file: LONGEST_S.get(file, WITH_SPARK_S if asks_for_spark(file) else USUAL_S)
        for file in sorted(files)
    }
    for file in sorted(known, key=lambda file: -known[file]):
        group = file
        if asks_for_spark(file):
            group = min((f"spark {n}" for n in range(SESSIONS)), key=lambda one: seconds[one])
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
