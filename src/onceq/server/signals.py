"""SIGTERM and SIGINT, while something runs that they are to stop. For the main thread only."""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Callable, Generator
from types import FrameType


@contextlib.contextmanager
def heeded(stop: Callable[[], None]) -> Generator[None]:
    """Calls this at each SIGTERM and SIGINT while the block runs."""

    def told(_number: int, _frame: FrameType | None) -> None:
        stop()

    former = {one: signal.signal(one, told) for one in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield
    finally:
        for number, handler in former.items():
            signal.signal(number, handler)
