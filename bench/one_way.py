"""What a one-way send saves: the same sends by one client, awaited and not, in pairs.

Once with nothing between the sends, and once with a little work of the client's own after each,
where only the time within the calls counts. The database commits durably in both.
"""

from __future__ import annotations

import time
from functools import partial
from typing import TYPE_CHECKING

import onceq
from bench.pairs import Runner, pair
from bench.results import Slice
from bench.workers.base import BODY
from bench.workers.onceq_worker import init
from onceq.engine.embedded import open_embedded

if TYPE_CHECKING:
    from bench.scene import Scene
    from onceq import Clerk

WORK_S = 0.001
MOST = 1000
NAMES = ("one-way/rate", "one-way/calls")
QUESTIONS = {
    "one-way/rate": ("one-way sends a second, one after the other, by sends", 0.0),
    "one-way/calls": (
        "time within sends by that within one-way sends, work between",
        WORK_S,
    ),
}


def sends(clerk: Clerk[bytes, bytes], work_s: float, number: int, *, waits: bool) -> Slice:
    """Send this many; the calls are timed, and the last one is awaited in any case."""
    send = clerk.send if waits else clerk.send_one_way
    within = 0.0
    for _ in range(number):
        rid = str(time.monotonic_ns())
        started = time.perf_counter()
        send(rid, BODY)
        within += time.perf_counter() - started
        time.sleep(work_s)
    started = time.perf_counter()
    clerk.where()
    return Slice(number=number, seconds=within + time.perf_counter() - started)


def _runner(clerk: Clerk[bytes, bytes], work_s: float, *, waits: bool) -> Runner:
    name = "send" if waits else "one-way"
    run = partial(sends, clerk, work_s, waits=waits)
    return Runner(name=name, run=run, first=100, most=MOST)


def run(scene: Scene) -> None:
    """Ask both."""
    queue = onceq.Queue("work", bytes, bytes)
    with open_embedded(scene.directory / "postgresql") as server:
        init(server.conninfo)
        with (
            onceq.open(server.conninfo) as qm,
            qm.clerk("one-way", queue, window=100_000) as one_way,
            qm.clerk("waited-for", queue, window=100_000) as waited,
        ):
            qm.declare(queue)
            for name, (question, work_s) in QUESTIONS.items():
                scene.told.started(name)
                ours, other = (
                    _runner(one_way, work_s, waits=False),
                    _runner(waited, work_s, waits=True),
                )
                scene.told.found(pair(name, question, (ours, other), scene.pace))
