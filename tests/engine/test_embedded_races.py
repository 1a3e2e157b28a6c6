"""Many processes start, join and stop one server at once."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path

import psycopg

from onceq.engine.embedded import embedded_status, open_embedded
from tests.engine.embedded_children import OPEN, Child

# Opens, works and closes argv[2] times without a pause; says "done", or dies.
ROUNDS = """
import sys
import psycopg
from onceq.engine.embedded import open_embedded
print("go", flush=True)
sys.stdin.readline()
for number in range(int(sys.argv[2])):
    with open_embedded(sys.argv[1], timeout_s=60) as server:
        with psycopg.connect(server.conninfo) as connection:
            connection.execute("create table if not exists rounds (n int)") if number == 0 else None
            connection.execute("insert into rounds values (1)")
print("done", flush=True)
"""

# Stops argv[1] by force argv[2] times, whoever uses it.
STOPS = """
import sys
from onceq.engine.embedded import stop_embedded
print("go", flush=True)
sys.stdin.readline()
print(sum(stop_embedded(sys.argv[1], force=True) for _ in range(int(sys.argv[2]))), flush=True)
"""


def test_processes_that_race_to_make_a_cluster_share_one(fresh: Path) -> None:
    with ExitStack() as stack:
        children = [stack.enter_context(Child(OPEN, fresh)) for _ in range(4)]
        assert len({child.line() for child in children}) == 1
        for child in children:
            child.go_on()
        assert [child.line() for child in children] == ["closed"] * 4
    assert not embedded_status(fresh).running
    assert len(list(fresh.glob("cluster*"))) == 1


def test_rounds_of_starting_and_stopping_disturb_nobody(directory: Path) -> None:
    """Each commit of each round is there: none met a server that was going down."""
    with open_embedded(directory) as server:
        before = _rounds(server.conninfo)
    with ExitStack() as stack:
        children = [stack.enter_context(Child(ROUNDS, directory, 12)) for _ in range(3)]
        assert [child.line() for child in children] == ["go"] * 3
        for child in children:
            child.go_on()
        assert [child.line(200) for child in children] == ["done"] * 3
    assert not embedded_status(directory).running
    with open_embedded(directory) as server:
        assert _rounds(server.conninfo) == before + 36


def test_forced_stops_never_break_an_open(directory: Path) -> None:
    with Child(STOPS, directory, 6) as stopper:
        stopper.line()
        stopper.go_on()
        for _ in range(12):
            with open_embedded(directory, timeout_s=60) as server:
                assert server.conninfo
        assert int(stopper.line()) <= 6
    assert not embedded_status(directory).running
    with open_embedded(directory):
        pass


def _rounds(conninfo: str) -> int:
    with psycopg.connect(conninfo) as connection:
        connection.execute("create table if not exists rounds (n int)")
        row = connection.execute("select count(*) from rounds").fetchone()
        assert row is not None
        return int(row[0])
