"""Periodic requests that meet fault points: they are made, changed, and tick, each once.

Used by proof/fault_programs.py. After any fault each has sent one request, and only one.
"""

from __future__ import annotations

import asyncio
import dataclasses
from collections import Counter
from typing import TYPE_CHECKING, Final

import onceq
from proof.harness.ledger import ask

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from proof.fault_programs import Errand
    from proof.fault_scenes import Left

TICKS: Final = onceq.Queue("ticks", str, str)
TIMES: Final = 3
"""How often it is done: each point is reached at least this often."""
YEARLY: Final = "0 0 1 1 *"
_DUE: Final = "next_at = '2020-01-01T00:00Z', look_at = '2020-01-01T00:00Z'"


def ticking(errand: Errand) -> None:
    """Makes periodic requests, changes, pauses and resumes them, and lets each tick once."""
    with errand.open() as qm:
        qm.declare(TICKS)
        for number in range(1, TIMES + 1):
            _put_off(errand, qm, f"lost-{number}")
            _tick(errand, qm, f"p{number}")
            qm.start(TICKS.name)  # a commit, after the last point


def _put_off(errand: Errand, qm: onceq.QueueManager, name: str) -> None:
    """One whose zone nobody knows is put off; then it is removed."""
    qm.remove_periodic(name)  # what a former life has left
    qm.declare(onceq.Periodic(name, TICKS, name, YEARLY))
    _set(errand, f"zone = 'Mars/Olympus', {_DUE}", f"name = '{name}'")
    qm.tend()
    qm.remove_periodic(name)


def _tick(errand: Errand, qm: onceq.QueueManager, name: str) -> None:
    """One that is due ticks, unless a former life of this process saw to that."""
    if all(one.name != name for one in qm.periodics()):
        qm.declare(onceq.Periodic(name, TICKS, "first", YEARLY))
    qm.alter_periodic(onceq.Periodic(name, TICKS, name, YEARLY, overlap=True))
    qm.pause_periodic(name)
    qm.resume_periodic(name)
    _set(errand, _DUE, f"name = '{name}' and ticked_at is null")
    qm.tend()


def _set(errand: Errand, what: str, where: str) -> None:
    ask(errand.url, f"update {errand.repository}.periodic set {what} where {where}")


def ticking_async(errand: Errand) -> None:
    """The same, on the async twins."""
    with asyncio.Runner() as runner:
        ticking(dataclasses.replace(errand, runner=runner))


def each_once(left: Left) -> Iterator[str]:
    """Judges what was sent."""
    query = (
        "select rid, convert_from(body, 'UTF8') from {0}.element join {0}.queue using (queue_id)"
        " where name = 'ticks'"
    )
    found = ask(left.conninfo, query.format(left.repository))
    names = Counter(rid.partition("@")[0] for rid, _ in found)
    if names != Counter(f"p{number}" for number in range(1, TIMES + 1)):
        yield f"G2, G4: the ticks have sent {dict(names)}"
    if any(f'"{rid.partition("@")[0]}"' != body for rid, body in found):
        yield f"G4: what was sent is not what the change said: {found}"


PROGRAMS: Final[dict[str, Callable[[Errand], None]]] = {
    "ticking": ticking,
    "ticking_async": ticking_async,
}
