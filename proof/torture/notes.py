"""The sender of notes: datagrams, one way, each with a tag, by which it learns what it sent last.

Run by the nursery. A datagram in doubt is resolved by the registration (BHM90 4.3): if it shows the
tag, the datagram is there, and its eid is known; if not, it never will be.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final

import msgspec

from onceq.errors import OperatingError, Outcome
from onceq.history.events import Doubted, EnqueueBegun, Enqueued
from onceq.model.ops import EnqueueTagged, Register
from proof.torture.board import Count
from proof.torture.clients import order, persist
from proof.torture.life import NOTES, Living

if TYPE_CHECKING:
    from onceq.engine.connect.connection import Link
    from proof.torture.life import Life

PACE_S: Final = 0.05
"""Nothing bounds datagrams but their sender."""
ODD: Final = (("fail", 0.01),)


def note_sender(life: Life) -> None:
    """Sends datagrams until the end."""
    living = Living(life)
    link = living.link()
    persist(living, lambda: _send(living, link))


def _send(living: Living, link: Link) -> None:
    link.reconnect()
    name = living.life.name
    handle = link.perform(Register(queue=NOTES.name, name=name))[0]
    number = int(handle.tag or 0)
    if handle.eid is not None:
        _acknowledged(living, number, str(handle.eid))
    while not living.board.is_ending:
        number += 1
        body = msgspec.json.encode(order(living.chance, ODD, f"{name}.{number}"))
        op = EnqueueTagged(
            who=handle.who,
            queue=NOTES.name,
            body=body,
            tag=str(number).encode(),
        )
        living.recorder.record(EnqueueBegun(rid=f"{name}.{number}"))
        try:
            eid = link.perform(op)
        except OperatingError as error:
            if error.outcome is Outcome.UNKNOWN:
                living.recorder.record(Doubted(what="enqueue"))
            raise
        _acknowledged(living, number, str(eid))
        time.sleep(living.chance.uniform(0, 2 * PACE_S))


def _acknowledged(living: Living, number: int, eid: str) -> None:
    living.recorder.record(Enqueued(rid=f"{living.life.name}.{number}", eid=eid))
    living.board.add(living.life.row, Count.ACKNOWLEDGED)
