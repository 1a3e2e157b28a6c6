"""What a receiver that nobody asked to tell its events does with gaps: it logs them."""

from __future__ import annotations

import logging

from onceq.streams.logged import StreamGap
from onceq.streams.model import events
from onceq.telemetry import tell

log = logging.getLogger(__name__)

ROLLED_BACK = "rolled back"


def report(event: events.Event) -> None:
    """Log numbers that are not shown, or were shown in vain; nothing else."""
    match event:
        case events.Loss(first=first, last=last, why=why):
            _tell(event.stream, first, last, why.value)
        case events.RolledBack(first=first, last=last):
            _tell(event.stream, first, last, ROLLED_BACK)
        case _:
            pass


def _tell(stream: int, first: int, last: int, why: str) -> None:
    tell(log, StreamGap(stream=f"{stream:016x}", first=first, last=last, why=why))
