"""Desk: an AsyncDesk for threads. Its event loop has a thread of its own, which does the work.

A caller may be cut short at any instruction, by Ctrl-C in the main thread: it holds no lock that
others need, and its Op is dropped.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import queue
import threading
from typing import TYPE_CHECKING, Any, Final, TypeAlias, TypeVar

from onceq.engine.desk.async_desk import CLOSED, ELSEWHERE, ENDED, AsyncDesk
from onceq.engine.desk.sleeper import Sleeper
from onceq.errors import CannotConnect, IllegalState, InDoubt

if TYPE_CHECKING:
    from collections.abc import Callable

    from onceq.engine.embedded.locate import Located
    from onceq.model import ops

T = TypeVar("T")
Answers: TypeAlias = "queue.SimpleQueue[tuple[Any, BaseException | None]]"

LOOK_S: Final = 1.0
"""How often who waits for an answer looks whether the desk's thread still lives."""


class Desk:
    """A desk with so many connections, for any number of threads."""

    def __init__(self, located: Located, repository: str, connections: int) -> None:
        self._located = located
        self.repository = repository
        self._connections = connections
        self._changing = threading.Lock()
        self._desk: AsyncDesk | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._ending = threading.Event()
        self._end: Callable[[], None] = lambda: None
        self._pid = os.getpid()

    def connect(self, timeout_s: float | None = None) -> None:
        """See AsyncDesk.connect."""
        self._refuse_elsewhere()
        with self._changing:
            if self._desk is not None and self._thread is not None and self._thread.is_alive():
                return
            self._finish()
            started: Answers = queue.SimpleQueue()
            self._ending = threading.Event()
            run = self._run(started, timeout_s)
            self._thread = threading.Thread(
                target=asyncio.run, args=(run,), name="onceq-desk", daemon=True
            )
            self._thread.start()
            try:
                self._answer(started)
            except BaseException:
                self._finish()
                raise

    async def _run(self, started: Answers, timeout_s: float | None) -> None:
        desk, ending = AsyncDesk(self._located, self.repository, self._connections), asyncio.Event()
        self._loop, self._end = asyncio.get_running_loop(), ending.set
        if self._ending.is_set():
            ending.set()
        over = asyncio.ensure_future(ending.wait())
        opening = asyncio.ensure_future(desk.connect(timeout_s))
        try:
            await asyncio.wait({over, opening}, return_when=asyncio.FIRST_COMPLETED)
            opening.cancel()
            try:
                await opening
            except BaseException as error:  # noqa: BLE001 # raised by who started it
                started.put((None, error))
                return
            self._desk = desk
            started.put((None, None))
            await over
        finally:
            self._desk = self._loop = None
            over.cancel()
            await desk.close()

    def _finish(self) -> None:
        """Ends the thread, whatever it is doing."""
        self._ending.set()
        loop, thread = self._loop, self._thread
        if loop is not None:
            with contextlib.suppress(RuntimeError):  # it has just ended
                loop.call_soon_threadsafe(self._end)
        if thread is not None:
            thread.join()
        self._thread = None

    def _refuse_elsewhere(self) -> None:
        if self._pid != os.getpid():
            raise IllegalState(ELSEWHERE)

    def sleeper(self) -> Sleeper:
        """Returns what a clerk waits with. CannotConnect: the desk is closed."""
        desk = self._opened()[0]
        return Sleeper(desk.bell)

    def _opened(self) -> tuple[AsyncDesk, asyncio.AbstractEventLoop]:
        self._refuse_elsewhere()
        desk, loop = self._desk, self._loop
        if desk is None or loop is None:
            raise CannotConnect(CLOSED)
        return desk, loop

    def ask(self, op: ops.Op[T], wait_s: float | None = None) -> T:
        """See AsyncDesk.ask."""
        desk, loop = self._opened()
        answers: Answers = queue.SimpleQueue()
        asking: list[asyncio.Task[None]] = []

        async def ask() -> None:
            try:
                answers.put((await desk.ask(op, wait_s), None))
            except BaseException as error:
                answers.put((None, error))
                if not isinstance(error, Exception):
                    raise

        try:
            loop.call_soon_threadsafe(lambda: asking.append(loop.create_task(ask())))
        except RuntimeError as error:
            raise CannotConnect(CLOSED) from error
        try:
            return self._answer(answers)  # type: ignore[no-any-return] # typed by the Op
        except BaseException:
            with contextlib.suppress(RuntimeError):  # the loop is over, and the Op with it
                loop.call_soon_threadsafe(lambda: [one.cancel() for one in asking])
            raise

    def _answer(self, answers: Answers) -> Any:
        while True:
            try:
                answer, error = answers.get(timeout=LOOK_S)
            except queue.Empty:
                if self._thread is not None and self._thread.is_alive():
                    continue
                raise InDoubt(ENDED) from None
            if isinstance(error, asyncio.CancelledError):
                raise InDoubt(ENDED) from error
            if error is not None:
                raise error
            return answer

    def close(self) -> None:
        """See AsyncDesk.close."""
        if self._pid == os.getpid():
            with self._changing:
                self._finish()
