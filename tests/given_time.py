"""A clock that stands still while the machine does not run this process."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from types import TracebackType
    from typing import Self

SLICE_S = 0.01
COUNTED_S = 0.05
"""Of the time between two slices so much counts at most: the rest the machine gave to others."""


class GivenTime:
    """How long something takes, less what the machine gave to others meanwhile.

    For what must end by a clock of its own, and soon: on a machine that is busy, too, and no
    earlier or later for that. `with GivenTime() as given: ...; given.seconds`.
    """

    def __init__(self) -> None:
        self.seconds = 0.0
        self._is_over = threading.Event()
        self._ticking = threading.Thread(target=self._tick, daemon=True)

    def __enter__(self) -> Self:
        self._ticking.start()
        return self

    def _tick(self) -> None:
        before = time.monotonic()
        while not self._is_over.wait(SLICE_S):
            now = time.monotonic()
            self.seconds += min(now - before, COUNTED_S)
            before = now

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._is_over.set()
        self._ticking.join()
