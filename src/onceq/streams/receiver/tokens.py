"""What ends later than its handler: tokens of messages, which any thread may acknowledge.

Who shows messages says when each comes to its end. What was retained ends by its token. With
explicit acknowledgement alone every message does, and N ends all that was shown before it, too.
Source: UM, "Explicit Acknowledgments"; spec M20, M22.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable

from onceq.errors import IllegalState
from onceq.streams.model.contiguous import Ascending
from onceq.streams.model.events import RolledBack
from onceq.streams.receiver.ops import Message, Shown
from onceq.streams.receiver.outstanding import Outstanding


class Token:
    """Stands for a message that was retained: it is not acknowledged before this says so."""

    __slots__ = ("_number", "_place", "_tokens")

    def __init__(self, tokens: Tokens, place: int, number: int) -> None:
        self._tokens, self._place, self._number = tokens, place, number

    def acknowledge(self) -> bool:
        """Acknowledge the message, from any thread; a second time changes nothing.

        With explicit_ack_only, also all before it; then tokens are acknowledged in ascending order,
        or InvalidValue is raised. Returns whether stores will be told: not when the life has ended,
        and the message then comes again.
        """
        return self._tokens.acknowledge(self._place, self._number)

    def end(self) -> bool:
        """As `acknowledge`, for who shows messages: it ends this one alone, whatever the option."""
        return self._tokens.end(self._place, through=False)


class Tokens:
    """What was shown in a life, by its places, and what ends it. Made in the thread of the loop.

    is_explicit: no message ends by being shown. moved: called in that thread when some have ended.
    """

    def __init__(
        self, outstanding: Outstanding, begin: int, *, is_explicit: bool, moved: Callable[[], None]
    ) -> None:
        self.is_explicit = is_explicit
        self._outstanding = outstanding
        self._moved = moved
        self._loop = asyncio.get_running_loop()
        self._lock = threading.Lock()
        self._ended: list[tuple[int, bool]] = []
        self._ascending = Ascending(begin)
        self._cut = self._cut_from = 0
        self._is_over = False
        self._shown: Shown | None = None
        self._place = 0
        self._is_retained = False

    # in the thread of the loop, by who shows

    def begin(self, one: Shown) -> None:
        """Note that the first one that is outstanding is shown now."""
        self._place = self._outstanding.show()
        self._shown = one
        self._is_retained = self.is_explicit and isinstance(one, Message)
        if isinstance(one, RolledBack):
            with self._lock:
                self._cut, self._cut_from = self._place, one.first
                self._ascending.below = min(self._ascending.below, one.first)

    def retain(self, one: Shown) -> Token:
        """Return the token of what is shown now, which its handler's return then does not end.

        Raises IllegalState when that has returned.
        """
        if self._shown is not one:
            raise IllegalState("its handler has returned, and so it is acknowledged: retain before")
        self._is_retained = True
        number = one.number if isinstance(one, Message) else one.first
        return Token(self, self._place, number)

    def returned(self) -> None:
        """Note that the handler has returned."""
        self._shown = None
        if not self._is_retained:
            self._outstanding.end(self._place)
            self._moved()

    def close(self) -> None:
        """Take what has ended by now, and nothing more."""
        self._take()
        with self._lock:
            self._is_over = True

    # in any thread

    def acknowledge(self, place: int, number: int) -> bool:
        """See Token. What was cut since ends, and counts for no order."""
        if self.is_explicit:
            with self._lock:
                if place >= self._cut or number < self._cut_from:
                    self._ascending.acknowledge(number)
        return self.end(place, through=self.is_explicit)

    def end(self, place: int, *, through: bool) -> bool:
        """Have what was shown at a place end, or all up to it; False: the life has ended."""
        with self._lock:
            if self._is_over:
                return False
            self._ended.append((place, through))
            if len(self._ended) > 1:
                return True  # it is taken with the first
        with contextlib.suppress(RuntimeError):  # the loop has been closed, and the life with it
            self._loop.call_soon_threadsafe(self._take)
            return True
        return False

    def _take(self) -> None:
        with self._lock:
            ended, self._ended = self._ended, []
        for place, through in ended:
            (self._outstanding.end_through if through else self._outstanding.end)(place)
        if ended:
            self._moved()
