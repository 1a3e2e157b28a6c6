"""How soon another server executes the request of a killed one: from the kill -9 on.

The victim is a process that executes one request for ever; the rescuer serves the same queue. The
queue has no back-off, so only the recovery is measured. With a shallow queue the rescuer is
idle; with 100,000 waiting it is busy.
"""

from __future__ import annotations

import contextlib
import threading
import time
from typing import TYPE_CHECKING, Any

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

QUEUE = onceq.Queue("work", bytes, bytes, abort_limit=1000, backoff_ms=0)
TRIALS = 20
DEPTHS = {"recovery/idle": 0, "recovery/deep": 100_000}
NAMES = tuple(DEPTHS)
TARGETS_MS = {"recovery/idle": 2000.0, "recovery/deep": 100.0}
"""An idle process looks for the dead once a second."""
WAIT_S = 60.0
SETTLE_S = 0.05
SPREAD_S = 1.0
"""How far trials spread their kills after the rescuer's last ring: its looks have a rhythm."""


def victim(conninfo: str, line: Connection[Any, Any]) -> None:
    """Execute one request for ever, after saying which."""

    def handle(_: bytes, context: Context) -> bytes:
        line.send(str(context.eid))
        threading.Event().wait()
        return b""

    onceq.Server([QUEUE.handled_by(handle)]).run(conninfo)


def rescuer(conninfo: str, line: Connection[Any, Any], watched: Any) -> None:
    """Execute what there is; say when the watched request was begun."""
    line.send(0.0)

    def handle(_: bytes, context: Context) -> bytes:
        if watched.value == str(context.eid).encode():
            line.send(time.monotonic())
            watched.value = b""
        return b""

    onceq.Server([QUEUE.handled_by(handle)]).run(conninfo)


def run(scene: Scene) -> None:
    """Measure with the queue shallow, and deep."""
    with scene.ground("recovery") as ground:
        for name, depth in DEPTHS.items():
            scene.told.started(name)
            conninfo = ground.database(name.replace("/", "_"))
            init(conninfo)
            with onceq.open(conninfo) as qm:
                qm.declare(QUEUE)
                rounds = tuple(_trials(qm, conninfo, depth, scene))
            scene.told.found(
                Result(
                    name=name,
                    question=f"kill -9 of a server until another executes its request,"
                    f" {depth:,} waiting",
                    unit="ms",
                    rounds=rounds,
                    target=TARGETS_MS[name],
                    better="less",
                )
            )


def _trials(qm: onceq.QueueManager, conninfo: str, depth: int, scene: Scene) -> Generator[float]:
    watched = SPAWN.RawArray("c", 64)
    with _process(rescuer, conninfo, watched) as (line, _):
        _heard(line)
        trials = TRIALS if scene.scale >= 0.1 else TRIALS // 4
        for trial in range(trials):
            _fill(qm, depth)
            yield _trial(qm, conninfo, watched, (line, SETTLE_S + SPREAD_S * trial / trials))


def _trial(
    qm: onceq.QueueManager,
    conninfo: str,
    watched: Any,
    rescuer_and_pause: tuple[Connection[Any, Any], float],
) -> float:
    rescued, pause_s = rescuer_and_pause
    with _process(victim, conninfo) as (line, process):
        deadline = time.monotonic() + WAIT_S
        while not line.poll(SETTLE_S):  # the rescuer may have been first
            qm.enqueue(QUEUE, BODY)
            if time.monotonic() > deadline:
                raise TimeoutError("the victim claimed nothing")
        watched.value = str(line.recv()).encode()
        time.sleep(pause_s)
        killed = time.monotonic()
        process.kill()
        return (_heard(rescued) - killed) * 1000


def _fill(qm: onceq.QueueManager, depth: int) -> None:
    missing = depth - qm.show(QUEUE.name).depth
    for _ in range(-(-missing // 10_000)):
        qm.enqueue_many(QUEUE, [BODY] * 10_000)


def _heard(line: Connection[Any, Any]) -> float:
    if not line.poll(WAIT_S):
        raise TimeoutError(f"nothing was rescued within {WAIT_S:g} s")
    moment: float = line.recv()
    return moment


@contextlib.contextmanager
def _process(target: Any, conninfo: str, *more: Any) -> Generator[tuple[Any, Any]]:
    ours, theirs = SPAWN.Pipe()
    process = SPAWN.Process(target=target, args=(conninfo, theirs, *more), daemon=True)
    process.start()
    theirs.close()
    try:
        yield ours, process
    finally:
        process.kill()
        process.join()
        ours.close()
