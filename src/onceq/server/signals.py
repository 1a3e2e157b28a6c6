"""SIGTERM and SIGINT, while something runs that they are to stop. For the main thread only."""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Callable, Generator


@contextlib.contextmanager
def heeded(stop: Callable[[], None]) -> Generator[None]:
    """Calls this at each SIGTERM and SIGINT while the block runs."""
    former = {one: signal.signal(one, lambda *_: stop()) for one in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield
    finally:
        for number, handler in former.items():
            signal.signal(number, handler)
