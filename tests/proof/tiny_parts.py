"""Parts of no proof, for the tests of the runner: good, broken, dying, hanging, and the like."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import threading
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from proof.goals import MUTANTS, SCHEDULES, STATES
from proof.part import Control, Limits, Measure, Outcome, Part

if TYPE_CHECKING:
    from collections.abc import Callable

    from proof.part import Order

SHORT = Limits(small_s=15.0, proof_s=15.0)
ENOUGH = Limits(small_s=150.0, proof_s=150.0)
ALL_SCHEDULES = 20_000
BROKEN = "the broken one"


def _good(order: Order) -> Outcome:
    order.say("counting", 1, 2)
    control = Control(what=BROKEN, broke=3, of=4)
    measures = [Measure(what=SCHEDULES, reached=ALL_SCHEDULES)]
    page = f"Seed {order.seed}; its place was {'empty' if not any(order.place.iterdir()) else ''}."
    return Outcome(measures=measures, controls=[control], page=page)


def _placed(order: Order) -> Outcome:
    temporary = Path(tempfile.gettempdir())
    (temporary / "left").touch()
    return Outcome(page=f"{temporary} {order.place}")


def _violation(order: Order) -> Outcome:
    return Outcome(violations=[f"lost r7: seed {order.seed}"])


def _missed(_: Order) -> Outcome:
    return Outcome(measures=[Measure(what="of its own", reached=2, goal=3)])


def _missed_row(_: Order) -> Outcome:
    return Outcome(measures=[Measure(what=STATES, reached=7)])


def _not_all(_: Order) -> Outcome:
    return Outcome(measures=[Measure(what=MUTANTS, reached=41, goal=42)])


def _silent(_: Order) -> Outcome:
    return Outcome()


def _blind(_: Order) -> Outcome:
    return Outcome(controls=[Control(what=BROKEN, broke=0, of=4)])


def _garbled(_: Order) -> Outcome:
    broke: Any = True
    return Outcome(controls=[Control(what=BROKEN, broke=broke, of=1)])


def _nothing(_: Order) -> Outcome:
    return Outcome()


def _skipped(_: Order) -> Outcome:
    return Outcome(skipped="no such device here")


def _raises(_: Order) -> Outcome:
    raise ValueError("its last words")


def _dies(_: Order) -> Outcome:
    os.kill(os.getpid(), signal.SIGKILL)
    return Outcome()


def _hangs(order: Order) -> Outcome:
    """Leaves a process of another session behind, and says where it is."""
    command = [sys.executable, "-c", "import threading; threading.Event().wait()"]
    left = subprocess.Popen(command, start_new_session=True)
    order.say(f"left {left.pid}", 0, 0)
    threading.Event().wait()
    return Outcome()


def _part(name: str, run: Callable[[Order], Outcome], *states: str) -> Part:
    return Part(name=name, text=f"It is {name}.", run=run, states=states, limits=ENOUGH)


PARTS = (
    replace(_part("good", _good, SCHEDULES), alone=True, controls={BROKEN: 0.5}),
    replace(_part("placed", _placed), in_memory=True),
    _part("violation", _violation),
    _part("missed", _missed),
    _part("missed-row", _missed_row, STATES),
    _part("not-all", _not_all, MUTANTS),
    _part("garbled", _garbled),
    _part("silent", _silent, STATES),
    replace(_part("blind", _blind), controls={BROKEN: 0.5}),
    replace(_part("uncontrolled", _nothing), controls={BROKEN: 0.5}),
    _part("undeclared", _blind),
    _part("skipped", _skipped, STATES),
    _part("raises", _raises),
    _part("dies", _dies),
    replace(_part("hangs", _hangs), limits=SHORT),
)
