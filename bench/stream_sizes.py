"""Whether streams stay flat with their length: memory of source and stores, and restarts.

A source sends messages of 100 B, 10 million in full, and its memory and that of each store are
looked at on the way: after a hundredth, and at every tenth. Then stores with all of it, and stores
with a hundredth, take turns at being killed with -9 and started again, until they serve. What a
source keeps to send it again is not counted, as the application chooses how much that may be. A
source's restart is timed from when a process has imported all to when it may send.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import signal
import subprocess
import sys
import time
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from bench.ages import ROOT, resident_mb
from bench.pairs import Runner, alternate
from bench.results import Result, Slice
from bench.stream_cases import ROUNDS
from bench.stream_source import SESSION, TOPIC, Told
from bench.workers.stream_stores import COUNT, Stores
from onceq import streams

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator

    from bench.scene import Scene

FULL = 10_000_000
SHARE = 100
"""The short stream has so much less."""
LEAST = 1_000
KILLED_AFTER = 1_000
TOLD_S = 600.0
REGISTERED_S = 300.0
FLAT = 1.1
STORE_FLAT = 1.3
SHOWN = "; messages, MB: "


@dataclass(frozen=True, slots=True)
class Weights:
    """Of the processes, in MB, after so many messages. store: the heaviest."""

    sent: int
    source: float
    store: float


ROWS = {
    "stream-memory/source": ("resident memory of a source, without what it keeps", "MB", 60.0),
    "stream-memory/source-growth": ("its memory at the end by that early on", "ratio", FLAT),
    "stream-memory/store": ("resident memory of the heaviest of three stores", "MB", 80.0),
    "stream-memory/store-growth": ("its memory at the end by that early on", "ratio", FLAT),
    "stream-restart/store": ("kill -9 of a store, then from its start until it serves", "ms", 1e3),
    "stream-restart/store-growth": (
        "that by the same of a store with a hundredth of the messages",
        "ratio",
        STORE_FLAT,
    ),
    "stream-restart/source": ("kill -9 of a source, then until the next may send", "ms", 200.0),
}
NAMES = tuple(ROWS)


def run(scene: Scene) -> None:
    """Measure all of them."""
    number = max(LEAST, round(FULL * scene.scale))
    few = max(LEAST // 10, number // SHARE)
    scene.told.started(NAMES[0])
    with _stores(scene, "many") as many, _stores(scene, "few") as short:
        found = list(_weighed(many, number))
        for _ in _weighed(short, few):
            pass
        for result in _memory(found):
            scene.told.found(result)
        scene.told.started("stream-restart/store")
        for result in _restarts(scene, (many, short), (number, few)):
            scene.told.found(result)
        scene.told.started("stream-restart/source")
        scene.told.found(_source_restarts(scene, many, number))


@contextlib.contextmanager
def _stores(scene: Scene, name: str) -> Generator[Stores]:
    directory = scene.directory / name
    directory.mkdir()
    with Stores(directory) as stores:
        yield stores


def _result(name: str, rounds: tuple[float, ...], note: str = "") -> Result:
    question, unit, target = ROWS[name]
    return Result(
        name=name,
        question=question,
        unit=unit,
        target=target,
        better="less",
        rounds=rounds,
        note=note,
    )


@contextlib.contextmanager
def _source(
    stores: Stores, number: int
) -> Generator[tuple[subprocess.Popen[bytes], Iterator[Told]]]:
    """Run a source that sends so many; yield its process, and what it says."""
    command = [sys.executable, "-m", "bench.stream_source", stores.listed, str(number)]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE) as process:
        try:
            yield process, (Told.of(line) for line in process.stdout or ())
        finally:
            process.kill()


def _weighed(stores: Stores, number: int) -> Generator[Weights]:
    """Have so many messages sent; yield what processes weigh on the way."""
    with _source(stores, number) as (process, told):
        for one in told:
            store = max(map(resident_mb, stores.pids))
            yield Weights(one.sent, one.resident_mb - one.retained_mb, store)
        if process.wait(TOLD_S) != 0:
            raise TimeoutError(f"the source ended with {process.returncode}")


def _memory(found: list[Weights]) -> Generator[Result]:
    for what in ("source", "store"):
        weights: list[float] = [getattr(one, what) for one in found]
        pairs = zip(found, weights, strict=True)
        note = f"{found[-1].sent:,} messages of 100 B{SHOWN}" + ", ".join(
            f"{one.sent:,} {mb:.1f}" for one, mb in pairs
        )
        yield _result(f"stream-memory/{what}", (max(weights),), note)
        yield _result(f"stream-memory/{what}-growth", (weights[-1] / weights[0],), note)


def _restarts(
    scene: Scene, both: tuple[Stores, Stores], numbers: tuple[int, int]
) -> tuple[Result, Result]:
    runners = [
        Runner(name=f"a store with {number:,}", run=_restarting(stores), first=1, most=1)
        for stores, number in zip(both, numbers, strict=True)
    ]
    many, few = alternate(runners, scene.pace.of(ROUNDS))
    note = f"{numbers[0]:,} messages, and {numbers[1]:,}; Python's own start is in it"
    slices = tuple(zip(many.slices, few.slices, strict=True))
    alone = _result("stream-restart/store", tuple(a.seconds * 1e3 for a, _ in slices), note)
    growth = _result(
        "stream-restart/store-growth", tuple(a.seconds / b.seconds for a, b in slices), note
    )
    return replace(alone, sides=(many,)), replace(growth, sides=(many, few))


def _restarting(stores: Stores) -> Callable[[int], Slice]:
    """Return what restarts one store after the other."""
    order = itertools.cycle(range(COUNT))

    def restart(number: int) -> Slice:
        which = next(order)
        stores.kill(which)
        started = time.perf_counter()
        stores.start(which)
        return Slice(number=number, seconds=time.perf_counter() - started)

    return restart


def _source_restarts(scene: Scene, stores: Stores, number: int) -> Result:
    rounds = tuple(_recovered_ms(stores) for _ in range(scene.pace.of(ROUNDS).rounds))
    return _result("stream-restart/source", rounds, f"stores with {number:,} messages and more")


def _recovered_ms(stores: Stores) -> float:
    """Kill a source while it sends; return how long the next one takes until it may send."""
    with _source(stores, KILLED_AFTER * SHARE) as (process, told):
        next(told)
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
    with streams.open(session_id=SESSION) as context:
        source = context.source(TOPIC, stores=stores.listed, within_s=REGISTERED_S)
        started = time.perf_counter()
        with source:
            source.wait_registered(REGISTERED_S)
            return (time.perf_counter() - started) * 1e3
