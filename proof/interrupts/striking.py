"""Strikes calls of onceq at random moments: Ctrl-C in sync ones, a cancellation in async ones.

Used by the part's processes, in their main thread. Whoever uses a clerk or a manager through
`Exposed` or `ExposedAsync` sees the same methods, all of them sync; each call may end by `Struck`
instead, at any of its moments. Nothing else of the process is ever struck.
"""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import math
import signal
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    import random
    from collections.abc import Awaitable, Callable, Coroutine, Generator

SHARE: Final = 0.4
"""How many calls are struck, unless they end before."""
SHORTEST_S: Final = 0.00005
LONGEST_S: Final = 0.012
STEPS_MAX: Final = 60
UNTOUCHED: Final = frozenset({"close", "clerk"})


class Struck(KeyboardInterrupt):
    """The interrupt, or the cancellation."""


@dataclass(slots=True)
class Striker:
    """When to strike. made: by call. missed: struck, and ended as if nothing had been."""

    chance: random.Random
    made: Counter[str] = field(default_factory=Counter[str])
    missed: int = 0
    is_off: bool = False
    last: str = ""

    def chooses(self, what: str) -> bool:
        """Returns whether to strike this call."""
        self.last = ""
        if self.is_off or what in UNTOUCHED or self.chance.random() > SHARE:
            return False
        self.last = what
        return True

    def moment_s(self) -> float:
        """Returns when to strike: equally often within each doubling of the time."""
        return math.exp(self.chance.uniform(math.log(SHORTEST_S), math.log(LONGEST_S)))

    @contextlib.contextmanager
    def noting(self, what: str) -> Generator[None]:
        """A block that counts what ends because of a strike."""
        try:
            yield
        except Struck:
            self.made[what] += 1
            raise


class Alarm:
    """Ctrl-C at a moment of a block, by a timer's signal."""

    def __init__(self, striker: Striker) -> None:
        self.striker = striker
        self._is_armed = self._fired = False
        signal.signal(signal.SIGALRM, self._fire)

    def _fire(self, *_: object) -> None:
        if self._is_armed:
            self._is_armed, self._fired = False, True
            raise Struck

    @contextlib.contextmanager
    def around(self, what: str) -> Generator[None]:
        """A block that may be struck."""
        if self._is_armed or not self.striker.chooses(what):  # inside a block that is struck as one
            yield
            return
        self._fired = False
        with self.striker.noting(what):
            try:
                self._is_armed = True
                signal.setitimer(signal.ITIMER_REAL, self.striker.moment_s())
                yield
            finally:
                self._is_armed = False
                signal.setitimer(signal.ITIMER_REAL, 0)
            self.striker.missed += self._fired


class Exposed:
    """Something of onceq, sync, whose calls may be struck."""

    def __init__(self, inner: Any, alarm: Alarm) -> None:
        self._inner = inner
        self._alarm = alarm

    def __getattr__(self, name: str) -> Any:
        value = getattr(self._inner, name)
        if name == "transaction":
            return self._transaction
        return self._call(name, value) if callable(value) else value

    def _call(self, name: str, method: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **options: Any) -> Any:
            with self._alarm.around(name):
                answer = method(*args, **options)
            if answer is self._inner:
                return self
            return Exposed(answer, self._alarm) if name == "clerk" else answer

        return call

    @contextlib.contextmanager
    def _transaction(self) -> Generator[Any]:
        with self._alarm.around("transaction"), self._inner.transaction() as work:
            yield work


class Cancelling:
    """Runs coroutines to their end in a loop of its own, and cancels some at a random await."""

    def __init__(self, striker: Striker) -> None:
        self.striker = striker
        self.loop = asyncio.new_event_loop()

    def run(self, what: str, call: Coroutine[Any, Any, Any]) -> Any:
        """Returns what a coroutine returns; Struck: it was cancelled."""
        with self.striker.noting(what):
            return self.loop.run_until_complete(self._run(what, call))

    async def _run(self, what: str, call: Coroutine[Any, Any, Any]) -> Any:
        running = asyncio.ensure_future(call)
        if self.striker.chooses(what):
            await self._strike(running)
        return await self.ended(running)

    async def ended(self, running: asyncio.Future[Any]) -> Any:
        """Waits for one that may have been cancelled."""
        was_asked = isinstance(running, asyncio.Task) and running.cancelling() > 0
        try:
            answer = await running
        except asyncio.CancelledError as error:
            raise Struck from error
        self.striker.missed += was_asked
        return answer

    async def _strike(self, running: asyncio.Future[Any]) -> None:
        """Cancels at a step of the loop, or at a moment."""
        if self.striker.chance.random() < 1 / 2:
            for _ in range(self.striker.chance.randint(0, STEPS_MAX)):
                await asyncio.sleep(0)
        else:
            await asyncio.wait([running], timeout=self.striker.moment_s())
        if not running.done():
            running.cancel()


class ExposedAsync:
    """Something of onceq, async, whose calls may be cancelled; all of them sync here."""

    def __init__(self, inner: Any, cancelling: Cancelling) -> None:
        self._inner = inner
        self._cancelling = cancelling

    def __getattr__(self, name: str) -> Any:
        value = getattr(self._inner, name)
        if name == "transaction":
            return self._transaction
        return self._call(name, value) if callable(value) else value

    def _call(self, name: str, method: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **options: Any) -> Any:
            answer = method(*args, **options)
            if inspect.iscoroutine(answer):
                answer = self._cancelling.run(name, answer)
            if answer is self._inner:
                return self
            return ExposedAsync(answer, self._cancelling) if name == "clerk" else answer

        return call

    @contextlib.contextmanager
    def _transaction(self) -> Generator[Any]:
        """The block is one task, as in a program; what is in it is done there, step by step."""
        block = _Block(self._inner, self._cancelling)
        with self._cancelling.striker.noting("transaction"):
            try:
                yield block.begun()
                block.end()
            finally:
                block.abandon()


class _Block:
    """A transaction of an async clerk, as a task of the loop."""

    def __init__(self, clerk: Any, cancelling: Cancelling) -> None:
        self._cancelling = cancelling
        self._calls: asyncio.Queue[Awaitable[Any] | None] = asyncio.Queue()
        self._answers: asyncio.Queue[Any] = asyncio.Queue()
        self._running = cancelling.loop.create_task(self._live(clerk))
        self._strikes = cancelling.striker.chooses("transaction")

    async def _live(self, clerk: Any) -> None:
        async with clerk.transaction() as work:
            self._answers.put_nowait(work)
            while (call := await self._calls.get()) is not None:
                self._answers.put_nowait(await call)

    def begun(self) -> Any:
        """Returns the work of the block."""
        work = self._step(self._answers.get())
        return _Works(work, self)

    def perform(self, call: Awaitable[Any]) -> Any:
        """Does something in the block."""
        self._calls.put_nowait(call)
        return self._step(self._answers.get())

    def end(self) -> None:
        """Lets the block commit."""
        self._calls.put_nowait(None)
        self._cancelling.loop.run_until_complete(self._end())

    def abandon(self) -> None:
        """Ends the block, if what was done in its block has failed."""
        if not self._running.done():
            self._running.cancel()
            self._cancelling.loop.run_until_complete(asyncio.wait([self._running]))

    async def _end(self) -> None:
        await self._strike(self._running)
        await self._cancelling.ended(self._running)

    def _step(self, wanted: Coroutine[Any, Any, Any]) -> Any:
        return self._cancelling.loop.run_until_complete(self._stepped(wanted))

    async def _stepped(self, wanted: Coroutine[Any, Any, Any]) -> Any:
        answer = asyncio.ensure_future(wanted)
        await self._strike(answer)
        await asyncio.wait([answer, self._running], return_when=asyncio.FIRST_COMPLETED)
        if answer.done() and not self._running.cancelling():
            return answer.result()
        answer.cancel()  # a program whose block was cancelled does nothing more in it
        return await self._cancelling.ended(self._running)

    async def _strike(self, until: asyncio.Future[Any]) -> None:
        """Cancels the block within this step, perhaps."""
        if not self._strikes or self._running.done():
            return
        first = [until, self._running]
        timeout_s = self._cancelling.striker.moment_s()
        await asyncio.wait(first, timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED)
        if not until.done() and not self._running.done():
            self._strikes = False
            self._running.cancel()


class _Works:
    """The work of an async block; what its connection does is done in the block."""

    def __init__(self, work: Any, block: _Block) -> None:
        self._work = work
        self._block = block
        self.connection = self

    def __getattr__(self, name: str) -> Any:
        return getattr(self._work, name)

    def execute(self, *args: Any) -> Any:
        """Executes a statement on the client's own connection."""
        answer = self._work.connection.execute(*args)
        return self._block.perform(answer) if inspect.iscoroutine(answer) else answer
