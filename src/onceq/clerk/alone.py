"""One call of a clerk at a time: a second thread or task is refused, and harms nothing.

Used by all clerks. A clerk makes one call after another, so nothing would be gained by waiting.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from onceq.errors import IllegalState

_CALLER: Final = "caller"


class Alone:
    """A `with` block that lets in one caller at a time; the same caller may enter it again.

    who: returns the caller, a thread or a task. IllegalState: another caller's call is under way,
    and is not touched.
    """

    __slots__ = ("_depth", "_inside", "_who")

    def __init__(self, who: Callable[[], Any]) -> None:
        self._who = who
        self._inside: dict[str, Any] = {}
        self._depth = 0

    def __enter__(self) -> None:
        me = self._who()
        # Atomic. If this is cut short, the next call of the same caller undoes it.
        if self._inside.setdefault(_CALLER, me) != me:
            raise IllegalState(
                "one call at a time: another thread or task is in a call of this clerk, which goes "
                "on untouched; give each its own clerk (`thread=` makes sessions of one client)"
            )
        self._depth += 1

    def __exit__(self, *_: object) -> None:
        self._depth -= 1
        if self._depth == 0:
            self._inside.clear()
