"""What Op, Program and Driver cost in Python, compared with a direct call of the SQL function.

Two calls that write nothing, so that no disk is involved: an Op alone, and an Op in a Program.
"""

from __future__ import annotations

import time
import uuid
from typing import TYPE_CHECKING, Any

import psycopg

import onceq
from bench.pairs import Runner, pair
from bench.results import Slice
from bench.workers.onceq_worker import init
from onceq.engine.bind.binding import BINDINGS
from onceq.model import ops

if TYPE_CHECKING:
    from collections.abc import Callable

    from bench.scene import Scene

QUEUE = onceq.Queue("empty", bytes, bytes)
NAMES = ("overhead/op", "overhead/program")
TARGET = 1 / 1.05
"""At most 5 % more time than the direct call."""


def run(scene: Scene) -> None:
    """Measure both."""
    with scene.ground("overhead") as ground:
        conninfo = ground.database("overhead")
        init(conninfo)
        nowhere = uuid.UUID(int=0)
        with (
            onceq.open(conninfo) as qm,
            psycopg.connect(conninfo, autocommit=True) as connection,
        ):
            qm.declare(QUEUE)
            cases = (
                (lambda: qm.read(nowhere), ops.ReadElement(eid=nowhere)),
                (lambda: qm.dequeue(QUEUE.name), ops.Dequeue(queue=QUEUE.name, eid=None)),
            )
            for name, (call, op) in zip(NAMES, cases, strict=True):
                scene.told.started(name)
                runners = (
                    Runner(name="by onceq", run=_times(call), first=2000),
                    Runner(name="psycopg", run=_times(_direct(connection, op)), first=2000),
                )
                question = f"{type(op).__name__} through onceq by the same SQL through psycopg"
                scene.told.found(pair(name, question, runners, scene.pace, target=TARGET))


def _direct(connection: psycopg.Connection[Any], op: ops.Op[Any]) -> Callable[[], object]:
    binding = BINDINGS[type(op)]
    text, arguments = binding.text("onceq").encode(), binding.arguments(op)

    def call() -> object:
        with connection.cursor(binary=True) as cursor:
            return cursor.execute(text, arguments, prepare=True).fetchall()

    return call


def _times(call: Callable[[], object]) -> Callable[[int], Slice]:
    def run_slice(number: int) -> Slice:
        started = time.perf_counter()
        for _ in range(number):
            call()
        return Slice(number=number, seconds=time.perf_counter() - started)

    return run_slice
