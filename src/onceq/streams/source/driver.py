"""A life of a source over asyncio: it performs what the Program and the core of one want done.

There is one link to each store, for asks and frames alike: a store heeds the frames of a life on
the link on which it promised, or was admitted. A link on which an admission was not answered in
time is closed, so that the ask has no effect later. Nothing is decided here.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine
from typing import Any, Final

from onceq.errors import IllegalState
from onceq.model.ops.async_running import RunsAsync
from onceq.streams.model import asks, events
from onceq.streams.net.asker import Asker, Watch
from onceq.streams.net.tls import Certificates
from onceq.streams.source import acts, program
from onceq.streams.source.epochs import Begun, Succeeded, WhyEnded
from onceq.streams.source.listening import BUFFERED_BYTES_MAX, Heard, Listening
from onceq.streams.source.program import Over, SendOn, TellShort
from onceq.streams.source.sending import Sending
from onceq.streams.source.telling import refuse_if_over

TICK_S: Final = 0.1
TOLD_S: Final = 0.005
"""What is stable is told after so long, if no frame has told it."""
CLOSE_S: Final = 2.0
"""How long a link may take to send what it holds when it is closed."""

UNREACHABLE: Final = "no connection to it can be made: start it, or see what is between"


def _unheeded() -> None:
    """No thread needs to know."""


class Driver(RunsAsync):
    """What performs a life. tell: called with each event, later, in the thread of the loop.

    changed: set, and cleared at once, when something may have changed; threads are told by `moved`.
    guard: held by whoever uses the core: any thread may `take` a message, all else is the loop's.
    """

    def __init__(
        self,
        core: Sending,
        certificates: Certificates | None,
        tell: Callable[[events.Event], None],
    ) -> None:
        self.core = core
        heard = Heard(
            learn=core.learn,
            kept=self._kept,
            confirmed=lambda link, said: self.step(acts.Confirmed(link=link, said=said)),
            left=lambda link, why: self.step(acts.Left(link=link, why=why)),
        )
        self.receivers = Listening(heard, certificates)
        self.changed = asyncio.Event()
        self.moved: Callable[[], None] = _unheeded
        self.guard = threading.RLock()
        self._tell = tell
        self._asker = Asker(
            None if certificates is None else certificates.connecting(),
            Watch(
                linked=lambda store: self.step(acts.Opened(store=store)),
                unlinked=lambda store, why: self.step(acts.Gone(store=store, why=why)),
                answered=lambda store, answer: self.step(acts.Came(store=store, answer=answer)),
            ),
        )
        self._ended: asyncio.Future[WhyEnded] | None = None
        self._failed: asyncio.Future[None] | None = None
        self._flushing: asyncio.Handle | None = None
        self._is_taking = False
        self._telling: asyncio.TimerHandle | None = None
        self._ticking: asyncio.TimerHandle | None = None
        self._beside: dict[asyncio.Task[None], str] = {}
        self._is_over = False

    async def live(self) -> None:
        """Live until another life takes over, or a store has a number with another content.

        Cancelled, it sends what was taken, and ends. Raises what goes wrong in the core: a defect.
        """
        self._failed = asyncio.get_running_loop().create_future()
        life = program.live(self.core.life, self.core.timing)
        living = asyncio.ensure_future(self.run(life))
        self._tick()
        try:
            waited: set[asyncio.Future[Any]] = {living, self._failed}
            await asyncio.wait(waited, return_when=asyncio.FIRST_COMPLETED)
            if self._failed.done():
                self._failed.result()
            if isinstance(why := living.result(), Succeeded):
                self._let(self.core.succeed)
            elif why is WhyEnded.IN_USE:
                self.core.standing.ended = why
        finally:
            await self._end(living)

    @property
    def is_ending(self) -> bool:
        """Whether the life is over, and closes its links: who cancels it now leaves them open."""
        return self._is_over

    async def _end(self, living: asyncio.Task[Any]) -> None:
        """Send what was taken, and tell what is stable; close all links when that has left."""
        with self.guard:
            self._flush()
            self._let(self.core.farewell)
            self._is_over = True
        for one in (self._telling, self._ticking):
            if one is not None:
                one.cancel()
        running = [living, *self._beside]
        for each in running:
            each.cancel()
        await asyncio.gather(*running, return_exceptions=True)
        await self.receivers.close(CLOSE_S)
        await self._asker.wait_closed(CLOSE_S)
        self._note()

    # the Program

    async def perform(self, op: Any) -> Any:
        """See RunsAsync."""
        match op:
            case SendOn(begun=begun):
                return await self._send_on(begun)
            case TellShort(short=short):
                return self._let(lambda: self.core.lack(short))
            case _:
                return await self._asker.perform(op)

    def _leave(self) -> None:
        """See RunsAsync: a Program holds nothing here."""

    async def _send_on(self, begun: Begun) -> Over:
        """Send in an epoch until it ends."""
        loop = asyncio.get_running_loop()
        self._ended = loop.create_future()
        self._let(lambda: self.core.begin(begun, loop.time()))
        for store in list(self.core.feeding.stores):
            if not self._asker.is_linked(store):
                self.step(acts.Unlinked(store=store))
        self._connect()
        why = await self._ended
        return Over(why=why, needed=self.core.needed, wanted=self.core.wanted)

    # the core

    def send(self, message: bytes, given: Any = None) -> tuple[int, int]:
        """Take a message, and return its first and last number.

        It leaves when a block is full, or the loop is idle.
        """
        loop = asyncio.get_running_loop()
        with self.guard:
            numbers = self.core.take(message, given)
            made = self.core.feed(loop.time()) if self.core.is_due else []
        if made:  # else nothing has happened that somebody waits for
            self._do(made)
        if self._flushing is None:
            self._flushing = loop.call_soon(self._flush)
        return numbers

    def take(
        self, message: bytes, loop: asyncio.AbstractEventLoop, given: Any = None
    ) -> tuple[int, int]:
        """As `send`, in any thread; loop: in which the life goes on."""
        with self.guard:
            if self._is_over:
                refuse_if_over(self.core.ended, self.core.life)
                raise IllegalState("the source is closed")
            numbers = self.core.take(message, given)
            is_first, self._is_taking = not self._is_taking, True
            if is_first:
                loop.call_soon_threadsafe(self._flush)
        return numbers

    def _kept(self) -> list[bytes]:
        with self.guard:
            return self.core.kept(BUFFERED_BYTES_MAX)

    def _flush(self) -> None:
        if self._flushing is not None:
            self._flushing.cancel()
            self._flushing = None
        with self.guard:
            self._is_taking = False
        self._let(lambda: self.core.flush(asyncio.get_running_loop().time()))

    def step(self, given: acts.Given) -> None:
        """Give something to the core, and do what it wants done."""
        if not self._is_over:
            self._let(lambda: self.core.step(given, asyncio.get_running_loop().time()))

    def _tick(self) -> None:
        self._ticking = asyncio.get_running_loop().call_later(TICK_S, self._tick)
        self.step(acts.Ticked())
        self.receivers.look()
        if self.core.is_sending:
            self._asker.keep(self.core.feeding.stores)
            self._connect()

    def _tell_stable(self) -> None:
        self._telling = None
        self.step(acts.Ticked())

    def _connect(self) -> None:
        """Make links again to the stores that have none."""
        for store in self.core.feeding.stores:
            if not self._asker.is_linked(store) and store not in self._beside.values():
                self._begin(self._link(store), store)

    async def _link(self, store: str) -> None:
        timing = self.core.timing
        await self._asker.connect(store, timing.ask_s)
        if not self._asker.is_linked(store):
            self.step(acts.Gone(store=store, why=UNREACHABLE))
            await asyncio.sleep(timing.retry_s)

    def _let(self, use: Callable[[], list[acts.Act]]) -> None:
        """Use the core, and do what it wants done."""
        with self.guard:
            made = use()
        self._do(made)

    def _do(self, made: list[acts.Act]) -> None:
        for act in made:
            match act:
                case acts.Send(store=store, data=data):
                    self._asker.send(store, data)
                case acts.Publish(data=data):
                    self.receivers.publish(data)
                case acts.Ask():
                    self._begin(self._ask(act))
                case acts.Tell(event=event):
                    asyncio.get_running_loop().call_soon(self._tell, event)
                case acts.End(why=why):
                    if self._ended is not None and not self._ended.done():
                        self._ended.set_result(why)
        self._note()

    def _note(self) -> None:
        """Wake who waits for something, and have told what is stable."""
        self.changed.set()
        self.changed.clear()
        self.moved()
        if self.core.is_untold and self._telling is None and not self._is_over:
            loop = asyncio.get_running_loop()
            self._telling = loop.call_later(TOLD_S, self._tell_stable)

    async def _ask(self, act: acts.Ask) -> None:
        """Ask what the core wants asked; unanswered in time, the link is closed."""
        given = await self._asker.ask(act.store, act.ask, self.core.timing.copy_s)
        answer: asks.Answer | None = None if given is None else given[0]
        self.step(acts.Answered(store=act.store, ask=act.ask, answer=answer))

    def _begin(self, made: Coroutine[Any, Any, None], links: str = "") -> None:
        """Begin something that goes on beside. links: the store that it makes a link to."""
        one = asyncio.ensure_future(made)
        self._beside[one] = links
        one.add_done_callback(self._done)

    def _done(self, one: asyncio.Task[None]) -> None:
        del self._beside[one]
        if one.cancelled() or (error := one.exception()) is None:
            return
        if self._failed is not None and not self._failed.done():
            self._failed.set_exception(error)
