"""A recorded clerk that sends orders: it knows by an order whether its request is to fail."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Final, TypeVar

from onceq.history.events import Recorder
from onceq.testing import recording
from proof.harness.ledger import Order, Receipt

if TYPE_CHECKING:
    from collections.abc import Generator
    from pathlib import Path

    from onceq import Queue, QueueManager

T = TypeVar("T", bound=Order)
R = TypeVar("R", bound=Receipt)
FAILING: Final = frozenset({"poison", "sudden", "fail"})
"""Kinds of orders whose requests are to fail."""


class RecordedClerk(recording.RecordedClerk[T, R]):
    """A clerk whose sends of orders are recorded with how they are to end."""

    def expected(self, request: T, expects: str | None) -> str | None:
        """Returns how an order is to end."""
        return "failed" if request.kind in FAILING else expects


@contextmanager
def recorded(
    qm: QueueManager, name: str, queue: Queue[T, R], files: Path, *, window: int = 1
) -> Generator[RecordedClerk[T, R]]:
    """A connected clerk that records."""
    with Recorder(files / f"client-{name}.events") as recorder:
        clerk = RecordedClerk(qm.clerk(name, queue, window=window), recorder, alone=window == 1)
        clerk.connect()
        try:
            yield clerk
        finally:
            clerk.clerk.close()
