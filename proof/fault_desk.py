"""The clients of one process at one desk, which meet fault points: each in a thread of its own.

Used by proof/fault_programs.py. They ask at the same time, so that what they ask goes together.
"""

from __future__ import annotations

import contextlib
import os
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, Final

from onceq.errors import OperatingError
from onceq.history.events import Recorder
from proof.harness.ledger import Order, Receipt
from proof.harness.orders import RecordedClerk

if TYPE_CHECKING:
    from pathlib import Path

    import onceq

SEATS: Final = 6
WAIT_S: Final = 20.0


def at_a_desk(qm: onceq.QueueManager, queue: onceq.Queue[Order, Receipt], place: Path) -> None:
    """Lets clients send, receive and acknowledge three requests each, all at the same time."""
    meet = threading.Barrier(SEATS)

    def work(name: str) -> OperatingError | None:
        path = place / f"client-{name}-{os.getpid()}.events"
        try:
            with (
                Recorder(path) as recorder,
                contextlib.closing(clerks.clerk(name, queue, window=2)) as inner,
            ):
                _at_a_seat(RecordedClerk(inner, recorder, alone=False), meet)
        except threading.BrokenBarrierError:
            return None  # another tells why
        except OperatingError as error:
            meet.abort()
            return error
        return None

    with qm.clerks(connections=1) as clerks, ThreadPoolExecutor(SEATS) as threads:
        found = list(threads.map(work, [f"seat-{number}" for number in range(SEATS)]))
    errors = [one for one in found if one is not None]
    if errors:
        raise errors[0]


def _at_a_seat(clerk: RecordedClerk[Order, Receipt], meet: threading.Barrier) -> None:
    clerk.connect()
    _receive_all(clerk, meet=None)
    sent = int(clerk.clerk.last_sent or 0)
    for number in range(1, 4):
        meet.wait(WAIT_S)
        if number > sent:
            clerk.send_many([(str(number), Order())])
            _receive_all(clerk, meet)
        else:
            meet.wait(WAIT_S)
    clerk.satisfied()
    if not clerk.clerk.was_disconnected:
        clerk.disconnect()


def _receive_all(clerk: RecordedClerk[Any, Any], meet: threading.Barrier | None) -> None:
    """Receives what is outstanding, and acknowledges it together with the others."""
    while clerk.clerk.outstanding:
        reply = clerk.receive(timeout_s=WAIT_S)
        if meet is not None:
            meet.wait(WAIT_S)
        clerk.acknowledge([reply.rid])
