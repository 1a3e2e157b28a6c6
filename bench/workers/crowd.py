"""Servers as processes that run until they are told to stop, for onceq and for the raw statements.

Both are driven alike. What makes servers ready is never timed.
"""

from __future__ import annotations

import contextlib
import itertools
import multiprocessing
import os
import threading
import time
from dataclasses import dataclass, field
from multiprocessing.connection import wait
from typing import TYPE_CHECKING, Any

from bench.workers.base import WrongError

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Sequence
    from multiprocessing.process import BaseProcess

SPAWN = multiprocessing.get_context("spawn")
READY_S = 30.0
"""How long servers may take until all of them have work; a slice may last as long again."""
LOOK_S = 0.001
LATE_LOOK_S = 0.005
"""From one look at the queue to the next: what was undone runs again after all were executed."""
LOOKS = 100
"""How many looks there are from one check of whether the servers live to the next."""
SLICE_S_MAX = 45.0
STOP_LOOK_S = 0.02
END_S = 10.0


@dataclass(frozen=True)
class Shared:
    """What the parent and its servers see of each other. done, begun: one place a server.

    stop: a flag in memory and no Event, whose lock a process that ends may take with it: then
    neither the others nor the parent come past it.
    """

    servers: int
    gate: Any = field(init=False)
    stop: Any = field(init=False)
    done: Any = field(init=False)
    begun: Any = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "gate", SPAWN.Barrier(self.servers))
        object.__setattr__(self, "stop", SPAWN.RawValue("b", 0))
        object.__setattr__(self, "done", SPAWN.RawArray("q", self.servers))
        object.__setattr__(self, "begun", SPAWN.RawArray("d", self.servers))

    def begin(self, index: int) -> None:
        """Wait until every server has come here: from now on it is timed."""
        self.gate.wait(READY_S)
        self.begun[index] = time.monotonic()

    def on_stop(self, act: Callable[[], None]) -> None:
        """Call the function when the parent says stop; end this process if the parent is gone."""
        parent = multiprocessing.parent_process()
        if parent is None:
            raise WrongError("only a server process is stopped so")

        def watch() -> None:
            is_told = False
            while not wait([parent.sentinel], STOP_LOOK_S):
                if self.is_stopped() and not is_told:
                    is_told = True
                    act()
            os._exit(1)

        threading.Thread(target=watch, daemon=True).start()

    def is_stopped(self) -> bool:
        """Say whether the parent said stop."""
        return bool(self.stop.value)


@contextlib.contextmanager
def serving(
    serve: Callable[..., None], shared: Shared, *arguments: object
) -> Generator[Sequence[BaseProcess]]:
    """Run `serve(index, shared, *arguments)` in as many processes; stop them in the end."""
    started = [
        SPAWN.Process(target=serve, args=(index, shared, *arguments), daemon=True)
        for index in range(shared.servers)
    ]
    for process in started:
        process.start()
    try:
        yield started
        require_alive(started)
    finally:
        shared.stop.value = 1
        killed = [process.pid for process in started if not _has_ended(process)]
    if killed:
        raise WrongError(f"servers did not stop within {END_S:g} s, and were killed: {killed}")


def _has_ended(process: BaseProcess) -> bool:
    """Wait until it has ended; False: it had to be killed."""
    process.join(END_S)
    if process.is_alive():
        process.kill()
        process.join()
        return False
    return True


def require_alive(servers: Sequence[BaseProcess]) -> None:
    """Raise WrongError if one of them has ended."""
    if any(process.exitcode is not None for process in servers):
        raise WrongError("a server ended by itself; its words are in the log")


def consumed(
    shared: Shared, servers: Sequence[BaseProcess], number: int, is_empty: Callable[[], bool]
) -> float:
    """Wait until `number` are done and none is left; return the seconds that it took."""
    deadline = time.monotonic() + SLICE_S_MAX
    looks = itertools.count(1)
    while sum(shared.done) < number:
        if next(looks) % LOOKS == 0:
            require_alive(servers)
        if time.monotonic() > deadline or shared.gate.broken:
            raise WrongError(f"{sum(shared.done)} of {number} were done, by {list(shared.done)}")
        time.sleep(LOOK_S)
    while not is_empty():
        if time.monotonic() > deadline:
            raise WrongError("all were executed, but some are still there")
        time.sleep(LATE_LOOK_S)
    began: float = min(shared.begun)
    return time.monotonic() - began
