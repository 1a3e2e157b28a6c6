"""What a server with nothing to do costs: transactions a second, and processor time.

A process with 1, 8 and 64 sessions on an empty queue, in a database of its own. Transactions are
those of `pg_stat_database`: a backend that idles reports what it did with a delay, so they are
counted after its sessions have slept for a while, over a time that is long beside the delay.
Processor time is what the kernel accounts, in hundredths of a second, to the process and to all
backends of the database, of which one is ours and does nothing meanwhile.
"""

from __future__ import annotations

import os
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psycopg

import onceq
from bench.results import Result
from bench.workers.base import BODY
from bench.workers.crowd import SPAWN
from bench.workers.onceq_worker import init

if TYPE_CHECKING:
    from collections.abc import Generator
    from multiprocessing.connection import Connection

    from bench.scene import Scene
    from onceq import Context

QUEUE = onceq.Queue("idle", bytes, bytes)
SESSIONS = (1, 8, 64)
NAMES = tuple(f"idle-{what}/{sessions}" for sessions in SESSIONS for what in ("commits", "cpu"))
COMMITS_TARGET = 2.0
CPU_TARGET = 0.3
SETTLE_S = 15.0
"""Longer than an idle backend holds back its reports."""
WINDOW_S = 30.0
WINDOW_QUICK_S = 15.0
START_S = 60.0
TICKS = os.sysconf("SC_CLK_TCK")
COUNTED = (
    "select xact_commit + xact_rollback from pg_stat_database where datname = current_database()"
)
BACKENDS = "select pid from pg_stat_activity where datname = current_database()"


def idler(conninfo: str, line: Connection[Any, Any], sessions: int) -> None:
    """Serve a queue that stays empty; say when all sessions have begun."""

    def handle(_: bytes, __: Context) -> bytes:
        return BODY

    server = onceq.Server([QUEUE.handled_by(handle)], concurrency=sessions)

    def tell() -> None:
        while server.statistics().lives < sessions:
            time.sleep(0.05)
        line.send(os.getpid())

    threading.Thread(target=tell, daemon=True).start()
    server.run(conninfo)


def run(scene: Scene) -> None:
    """Measure each number of sessions, one after another."""
    with scene.ground("idle") as ground:
        for sessions in SESSIONS:
            names = [f"idle-{what}/{sessions}" for what in ("commits", "cpu")]
            for name in names:
                scene.told.started(name)
            conninfo = ground.database(f"idle_{sessions}")
            init(conninfo)
            found = tuple(_windows(conninfo, sessions, scene))
            for result in _results(names, sessions, found):
                scene.told.found(result)


def _results(
    names: list[str], sessions: int, found: tuple[tuple[float, float], ...]
) -> Generator[Result]:
    yield Result(
        name=names[0],
        question=f"transactions of an idle process, {sessions} sessions",
        unit="/s",
        rounds=tuple(commits for commits, _ in found),
        target=COMMITS_TARGET,
        better="less",
    )
    yield Result(
        name=names[1],
        question=f"processor time of an idle process and its backends, {sessions} sessions",
        unit="% of a core",
        rounds=tuple(cpu for _, cpu in found),
        target=CPU_TARGET,
        better="less",
    )


def _windows(conninfo: str, sessions: int, scene: Scene) -> Generator[tuple[float, float]]:
    """Yield (transactions a second, percent of a core), window by window."""
    window_s = WINDOW_S if scene.scale >= 0.1 else WINDOW_QUICK_S
    ours, theirs = SPAWN.Pipe()
    process = SPAWN.Process(target=idler, args=(conninfo, theirs, sessions), daemon=True)
    process.start()
    theirs.close()
    try:
        if not ours.poll(START_S):
            raise TimeoutError(f"{sessions} sessions did not begin within {START_S:g} s")
        pid: int = ours.recv()
        time.sleep(SETTLE_S)
        with psycopg.connect(conninfo, autocommit=True) as watcher:
            for _ in range(scene.pace.rounds):
                yield _window(watcher, pid, window_s)
    finally:
        process.kill()
        process.join()


def _window(watcher: psycopg.Connection[Any], pid: int, window_s: float) -> tuple[float, float]:
    backends = [row[0] for row in watcher.execute(BACKENDS)]
    pids = [pid, *(one for one in backends if one != watcher.info.backend_pid)]
    began, commits, used = time.monotonic(), _counted(watcher), sum(map(_used_s, pids))
    time.sleep(window_s)
    took_s = time.monotonic() - began
    used = sum(map(_used_s, pids)) - used
    commits = _counted(watcher) - commits - 1  # one is the watcher's
    return commits / took_s, 100 * used / took_s


def _counted(watcher: psycopg.Connection[Any]) -> int:
    row = watcher.execute(COUNTED.encode()).fetchone()
    return int(row[0]) if row is not None else 0


def _used_s(pid: int) -> float:
    """Return the processor time of a process so far."""
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / TICKS
