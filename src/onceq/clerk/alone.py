"""One call of a clerk at a time: a second thread or task is refused, and harms nothing.

Used by all clerks. A clerk makes one call after another, so nothing would be gained by waiting.
"""

from __future__ import annotations

import asyncio
import threading
from typing import Any, Final

from onceq.errors import IllegalState

REFUSED: Final = (
    "one call at a time: another thread or task is in a call of this clerk, which goes on "
    "untouched; give each its own clerk (`thread=` makes sessions of one client)"
)
_CALLER: Final = "caller"


class Alone:
    """A `with` block that lets in one thread at a time; the same one may enter it again.

    IllegalState: another thread's call is under way, and is not touched.
    """

    __slots__ = ("_depth", "_inside")

    def __init__(self) -> None:
        self._inside: dict[str, int] = {}
        self._depth = 0

    def __enter__(self) -> None:
        me = threading.get_ident()
        # Atomic. If this is cut short, the next call of the same caller undoes it.
        if self._inside.setdefault(_CALLER, me) != me:
            raise IllegalState(REFUSED)
        self._depth += 1

    def __exit__(self, *_: object) -> None:
        self._depth -= 1
        if self._depth == 0:
            self._inside.clear()


class AsyncAlone:
    """Alone, for the tasks of one event loop, of which no other runs while one enters."""

    __slots__ = ("_depth", "_inside")

    def __init__(self) -> None:
        self._inside: asyncio.Task[Any] | None = None
        self._depth = 0

    def __enter__(self) -> None:
        me = asyncio.current_task()
        if self._depth > 0 and self._inside is not me:
            raise IllegalState(REFUSED)
        self._inside = me
        self._depth += 1

    def __exit__(self, *_: object) -> None:
        self._depth -= 1
        if self._depth == 0:
            self._inside = None
