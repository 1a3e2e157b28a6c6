"""History that goes by itself and meets fault points (spec Q17).

Used by proof/fault_programs.py. After any fault it is gone, and nothing else is.
"""

from __future__ import annotations

import asyncio
import dataclasses
from typing import TYPE_CHECKING, Final

import psycopg

import onceq
from proof.harness.ledger import ask

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from proof.fault_programs import Errand
    from proof.fault_scenes import Left

KEPT: Final = onceq.Queue("kept", str, str, history_days=1)
TIMES: Final = 3
"""How often it is done: each point is reached at least this often."""
_OLD: Final = (
    "update {0}.history set finished_at = '2020-01-01T00:00Z'"
    " where queue_id = (select queue_id from {0}.queue where name = 'kept')"
)
_DUE: Final = "update {0}.retention set look_at = '-infinity', outcome = null, finished_at = null"
_LEFT: Final = (
    "select h.rid from {0}.history h join {0}.queue q using (queue_id) where q.name = 'kept'"
)


def retiring(errand: Errand) -> None:
    """Ends something long ago; its history cannot go at first, and then goes."""
    with errand.open() as qm:
        qm.declare(KEPT)
        for number in range(1, TIMES + 1):
            qm.enqueue(KEPT, "x", rid=f"kept-{number}")
            qm.dequeue("kept")
            _old(errand)
            with psycopg.connect(errand.url) as locking:
                locking.execute(
                    f"lock table {errand.repository}.history in exclusive mode".encode()
                )
                qm.tend()
            _old(errand)
            qm.tend()
            qm.start(KEPT.name)  # a commit, after the last point


def _old(errand: Errand) -> None:
    for statement in (_OLD, _DUE):
        ask(errand.url, statement.format(errand.repository))


def retiring_async(errand: Errand) -> None:
    """The same, on the async twins."""
    with asyncio.Runner() as runner:
        retiring(dataclasses.replace(errand, runner=runner))


def gone(left: Left) -> Iterator[str]:
    """Judges what is left of the history."""
    found = ask(left.conninfo, _LEFT.format(left.repository))
    if found:
        yield f"Q17: history is left of {found}"


PROGRAMS: Final[dict[str, Callable[[Errand], None]]] = {
    "retiring": retiring,
    "retiring_async": retiring_async,
}
