"""The fault points of streams, and how a process is made to suffer at one.

What ships has no code for them: a process that is armed has its methods wrapped. It notes in a file
that a fault has struck, so that it strikes once, however often the process is started again.
"""

from __future__ import annotations

import asyncio
import contextlib
import enum
import functools
import inspect
import os
import signal
import weakref
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from onceq.streams.model import asks, ops
from onceq.streams.net.asker import Asker
from onceq.streams.net.link import Link
from onceq.streams.receiver.outstanding import Outstanding
from onceq.streams.store.daemon import Daemon
from onceq.streams.store.disk_store import DiskStore
from onceq.streams.store.log.index_files import IndexFiles
from onceq.streams.store.log.segments import Files


class What(enum.StrEnum):
    """What befalls a process at a point. CUT: its links end, before the step or after it."""

    KILL = "kill -9"
    RAISE = "an exception"
    CUT_BEFORE = "links cut before"
    CUT_AFTER = "links cut after"


class Planned(Exception):
    """Raised at a point by plan; nobody handles it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """A step of a process. of, method: what does it. text: what has happened by then.

    role: whose step it is. asked: of several that the method does, only those with such an ask.
    """

    role: str
    of: type[Any]
    method: str
    text: str
    asked: type[Any] | None = None

    def is_done_by(self, given: tuple[Any, ...]) -> bool:
        """Whether a call of the method with these arguments is the step."""
        asked = [
            ask
            for one in given
            for ask in (one.asked.values() if isinstance(one, ops.AskStores) else (one,))
        ]
        return self.asked is None or any(isinstance(one, self.asked) for one in asked)


def _point(role: str, step: tuple[type[Any], str], text: str, asked: Any = None) -> Point:
    of, method = step
    return Point(role=role, of=of, method=method, text=text, asked=asked)


POINTS: Final = {
    "source.looked": _point("source", (Asker, "_ask_all"), "stores told what they have", asks.Look),
    "source.fenced": _point("source", (Asker, "_ask_all"), "stores promised an epoch", asks.Fence),
    "source.admitted": _point("source", (Asker, "ask"), "a store is admitted to it", asks.Admit),
    "source.sent": _point("source", (Asker, "send"), "frames have left for a store"),
    "store.appended": _point("store", (DiskStore, "_append"), "a frame is in the log, unwritten"),
    "store.synced": _point("store", (Files, "sync"), "what was appended is on the disk"),
    "store.answered": _point("store", (Daemon, "_do_on_link"), "an answer has left"),
    "segment.made": _point("store", (Files, "make_spare"), "the space of a segment is reserved"),
    "segment.begun": _point("store", (Files, "begin"), "a segment has its name"),
    "segment.sealed": _point(
        "store", (IndexFiles, "write"), "the marks of a segment are beside it"
    ),
    "segment.cut": _point("store", (Files, "cut"), "the space behind a segment is given back"),
    "segment.unlinked": _point("store", (Files, "unlink"), "a segment is freed"),
    "segment.copied": _point("store", (DiskStore, "append_again"), "a frame is written again"),
    "receiver.delivered": _point("receiver", (Outstanding, "end"), "the application has a message"),
    "receiver.acknowledged": _point(
        "receiver", (Asker, "ask"), "a store has noted a position", asks.Acknowledge
    ),
}
"""All points."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Armed:
    """What a process is to suffer: at which occurrence of which point. struck: a file, then."""

    point: str
    occurrence: int
    what: What
    struck: Path


class _Suffering:
    """A process that is armed."""

    def __init__(self, armed: Armed) -> None:
        self.armed = armed
        self.point = POINTS[armed.point]
        self._links = weakref.WeakSet[Link]()
        self._loop: asyncio.AbstractEventLoop | None = None

    def wrap(self) -> None:
        """Wrap the step, and note all links."""
        made = Link.connection_made

        def noted(link: Link, transport: asyncio.BaseTransport) -> None:
            self._loop = asyncio.get_running_loop()
            self._links.add(link)
            made(link, transport)

        steps = ((Link, "connection_made", noted), (self.point.of, self.point.method, self._step()))
        for of, name, by in steps:
            setattr(of, name, by)

    def _step(self) -> Callable[..., Any]:
        method = self.point.of.__dict__[self.point.method]
        wrap = self._awaited if inspect.iscoroutinefunction(method) else self._called
        return wrap(method)

    def _called(self, method: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(method)
        def call(*given: Any, **more: Any) -> Any:
            strikes = self._strikes(given)
            if strikes:
                self._before()
            answer = method(*given, **more)
            if strikes:
                self._after()
            return answer

        return call

    def _awaited(self, method: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(method)
        async def call(*given: Any, **more: Any) -> Any:
            strikes = self._strikes(given)
            if strikes:
                self._before()
            answer = await method(*given, **more)
            if strikes:
                self._after()
            return answer

        return call

    def _strikes(self, given: tuple[Any, ...]) -> bool:
        """Whether this is the occurrence; it is noted that it strikes."""
        if self.armed.struck.exists() or not self.point.is_done_by(given):
            return False
        if self._counted() < self.armed.occurrence:
            return False
        self.armed.struck.touch()
        return True

    def _counted(self) -> int:
        """Return how often this and former lives have come here: the length of a file."""
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC
        file = os.open(self.armed.struck.with_suffix(".count"), flags, 0o600)
        try:
            os.write(file, b".")
            return os.lseek(file, 0, os.SEEK_CUR)
        finally:
            os.close(file)

    def _before(self) -> None:
        if self.armed.what is What.CUT_BEFORE:
            self._cut()

    def _after(self) -> None:
        match self.armed.what:
            case What.KILL:
                os.kill(os.getpid(), signal.SIGKILL)
            case What.RAISE:
                raise Planned(self.armed.point)
            case What.CUT_AFTER:
                self._cut()
            case What.CUT_BEFORE:
                pass

    def _cut(self) -> None:
        """End all links, from whatever thread."""
        links = list(self._links)

        def abort() -> None:
            for one in links:
                one.abort()

        if self._loop is not None:
            with contextlib.suppress(RuntimeError):  # the loop has ended: so have its links
                self._loop.call_soon_threadsafe(abort)


def suffer(armed: Armed | None) -> None:
    """Arm this process; None: nothing is done."""
    if armed is not None:
        _Suffering(armed).wrap()
