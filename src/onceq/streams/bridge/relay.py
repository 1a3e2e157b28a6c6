"""The sending bridge: datagrams of a queue become messages of a stream, each once.

The number of each is planned, in the transaction that claims it, before it is sent; it ends in its
queue when that number is stable. A later life finishes what the stream has as planned, and plans
the rest again: what its stores do not have when they have fenced the former life never comes.
Source: spec M38; streams.md 8.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Final, TypeVar

import msgspec

from onceq import telemetry
from onceq.engine.connect.async_connection import AsyncLink
from onceq.engine.faultpoints import faultpoint
from onceq.errors import InvalidValue
from onceq.model import ops, stream_ops
from onceq.streams import logged
from onceq.streams.bridge.epochs import Epochs
from onceq.streams.bridge.fetching import fetched
from onceq.streams.bridge.moving import hexed
from onceq.streams.bridge.reading import Asked, Piece
from onceq.streams.bridge.trying import AWAY, Tries, tell_store
from onceq.streams.bridge.waiting import Waiting
from onceq.streams.errors import FlightFull, NotRegistered, StreamReplaced
from onceq.streams.model.events import Event, Reclaimed
from onceq.streams.model.fragments import FRAGMENT_BYTES_MAX
from onceq.streams.net.tls import Certificates
from onceq.streams.source.async_source import AsyncSource
from onceq.streams.source.sending import Sending

if TYPE_CHECKING:
    from onceq.engine.embedded.locate import Located
    from onceq.streams.net.address import Address

log = logging.getLogger(__name__)
T = TypeVar("T")
STABLE_S: Final = 0.1
"""How long it waits for what was sent before it looks for more to plan."""


class From(msgspec.Struct, frozen=True, kw_only=True):
    """What is relayed. name: of the relay, in which it is known; queue: whose datagrams.

    batch: most of them that are planned at once; ahead: most that are planned and not yet stable.
    idle_s: how long an empty queue is left before the next look. stop_s: how long a life that is
    stopped waits for what was sent to be stable, and for a database that is away.
    """

    name: str
    queue: str
    batch: int = 1_000
    ahead: int = 4_000
    idle_s: float = 0.2
    stop_s: float = 5.0

    def __post_init__(self) -> None:
        if self.batch < 1 or self.ahead < self.batch or min(self.idle_s, self.stop_s) <= 0:
            raise InvalidValue(
                "batch is at least 1, ahead at least batch, and idle_s and stop_s above 0"
            )


class AsyncRelay:
    """One life of a relay, with its own life of the source: all that `run` does.

    core: of the source, made for it alone; nobody else sends by it. database: where it is, and the
    repository in it.
    """

    def __init__(
        self,
        of: From,
        core: Sending,
        database: tuple[Located, str],
        *,
        listen: Address | None = None,
        certificates: Certificates | None = None,
    ) -> None:
        self.of = of
        self._core = core
        self._certificates = certificates
        self._link = AsyncLink(*database, whose="this relay")
        self._source = AsyncSource(
            core, listen=listen, certificates=certificates, on_event=self._heard
        )
        self._epoch = 0
        self._next = 0
        self._planned = self._sent = 0
        self._voids: set[int] = set()
        self._stopping = asyncio.Event()

    async def run(self) -> None:
        """Relay until `stop`: what is planned by then is stable, and has ended, if that is soon.

        Raises StreamReplaced (the stream is not the one that it sent to, or has lost what had
        ended), Fenced or SourceSucceeded (a later life has taken over), NumberConflict,
        QueueNotFound, IllegalState (the name is another queue's relay), CannotConnect at the
        beginning.
        """
        try:
            await self._link.reconnect()
            async with self._source:
                await self._live_until_stopped()
        finally:
            await self._link.close()
            if self._epoch:
                name, left = self.of.name, self._planned
                stopped = logged.RelayStopped(bridge=name, sent=self._sent, left=left)
                telemetry.tell(log, stopped)

    def stop(self) -> None:
        """End the life, when what was sent is stable, or soon; the next life settles the rest."""
        self._stopping.set()

    async def _live_until_stopped(self) -> None:
        """Live; when it is stopped, go on until all that was sent has ended, but not for ever."""
        living = asyncio.ensure_future(self._live())
        stopping = asyncio.ensure_future(self._stopping.wait())
        try:
            await asyncio.wait({living, stopping}, return_when=asyncio.FIRST_COMPLETED)
            await asyncio.wait({living}, timeout=self.of.stop_s)
            if living.done():
                living.result()
        finally:
            for one in (living, stopping):
                one.cancel()
            await asyncio.gather(living, stopping, return_exceptions=True)

    async def _live(self) -> None:
        await self._begin()
        while await self._go_on():
            pass

    @property
    def stream(self) -> str:
        """The id of the stream, once the source is registered."""
        return hexed(0 if self._core.begun is None else self._core.begun.stream)

    # how a life begins

    async def _begin(self) -> None:
        """Register, look for what former lives had planned, and fence them."""
        of = self.of
        await self._insist(self._opening)
        await self._source.wait_registered()
        self._epoch, self._next = self._core.epoch, self._source.next_number
        state = await self._insist(self._opening)
        self._refuse_replaced(state)
        planned = await self._insist(stream_ops.RelayPlanned(name=of.name))
        there = await self._found([one for one in planned if one.number < self._next])
        begin = stream_ops.RelayBegin(
            name=of.name, stream=self.stream, epoch=self._epoch, end=self._next, there=there
        )
        await self._begin_certainly(begin)
        event = logged.RelayBegan(
            bridge=of.name,
            queue=of.queue,
            topic=self._core.life.topic,
            epoch=self._epoch,
            next=self._next,
            finished=len(there),
            again=len(planned) - len(there),
        )
        telemetry.tell(log, event)

    @property
    def _opening(self) -> stream_ops.RelayOpen:
        return stream_ops.RelayOpen(
            name=self.of.name,
            queue=self.of.queue,
            topic=self._core.life.topic,
            session=hexed(self._core.life.session),
        )

    async def _begin_certainly(self, begin: stream_ops.RelayBegin) -> None:
        """Begin a life, also if an answer is lost: then the epoch says whether it has begun."""
        tries = self._tries()
        has_begun = False
        while not has_begun:
            try:
                await self._link.perform(begin)
                has_begun = True
            except AWAY as error:
                await tries.failed(error)
                has_begun = (await self._insist(self._opening)).epoch == begin.epoch
        tries.succeeded()

    def _refuse_replaced(self, state: stream_ops.RelayState) -> None:
        """Raise StreamReplaced unless the stream is the one whose numbers have ended."""
        if state.stream is None or self._core.begun is None:
            return
        created = self._core.begun.bridge.firsts[0][0]
        is_same = state.stream == self.stream and created <= state.epoch
        if is_same and state.lowest <= self._next:
            return
        raise StreamReplaced(
            f"relay {self.of.name!r} had finished all below {state.lowest} of stream"
            f" {state.stream}, and the stores have stream {self.stream}, made in epoch {created},"
            f" up to {self._next}: nothing was sent; if that is meant, have {self.of.name!r}"
            " forgotten"
        )

    async def _found(self, planned: Sequence[stream_ops.Planned]) -> list[int]:
        """Return which numbers the stream has as they were planned. All are below its end: stable.

        The others are void; what is lost is read as that, whatever stores had there.
        """
        begun = self._core.begun
        if not planned or begun is None:
            return []
        epochs = Epochs(firsts=begun.bridge.firsts, losses=begun.bridge.losses)
        bodies = {one.number: one.body for one in planned}
        stores = sorted({store for one in self._core.needed for store in one.stores})
        asked = Asked(
            stream=begun.stream,
            begin=min(bodies),
            end=max(bodies) + 1,
            stores=(*stores,),
            epochs=epochs,
        )
        waiting = Waiting(self.of.name, self._core.life.topic)
        pieces = await fetched(asked, lambda unread: waiting.note(unread.why), self._certificates)
        return [number for piece in pieces for number in has_as_planned(piece, bodies)]

    # how it goes on

    async def _go_on(self) -> bool:
        """Plan, send and finish once; return whether to go on: not, when all has ended."""
        room = self.of.ahead - self._planned
        planned: list[stream_ops.Planned] = []
        if room > 0 and not self._stopping.is_set():
            planned = await self._plan(min(self.of.batch, room))
        for one in planned:
            await self._send(one)
        if planned:
            faultpoint("relay.sent")
        await self._finish(waits=len(planned) < self.of.batch or room <= len(planned))
        if self._planned:
            return True
        if not planned and not self._stopping.is_set():
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self.of.idle_s):
                    await self._stopping.wait()
        return not self._stopping.is_set()

    async def _plan(self, n: int) -> list[stream_ops.Planned]:
        plan = stream_ops.RelayPlan(
            name=self.of.name,
            stream=self.stream,
            epoch=self._epoch,
            next=self._next,
            n=n,
            bytes_max=FRAGMENT_BYTES_MAX,
        )
        planned = await self._planned_certainly(plan)
        self._next += len(planned)
        self._planned += len(planned)
        if planned:
            faultpoint("relay.planned")
        return planned

    async def _planned_certainly(self, plan: stream_ops.RelayPlan) -> list[stream_ops.Planned]:
        """Plan, also if an answer is lost: then what is planned says whether that was done."""
        tries = self._tries()
        while True:
            try:
                planned = await self._link.perform(plan)
                break
            except AWAY as error:
                await tries.failed(error)
                known = await self._insist(stream_ops.RelayPlanned(name=plan.name))
                planned = [one for one in known if one.number >= plan.next]
                if planned:
                    break
        tries.succeeded()
        return planned

    async def _send(self, one: stream_ops.Planned) -> None:
        """Send what was planned, under its number, as soon as there is room for it."""
        number: int | None = None
        while number is None:
            try:
                number = self._source.send(one.body)
            except FlightFull:
                with contextlib.suppress(NotRegistered):
                    await self._source.wait_room(len(one.body))
            except NotRegistered:
                await self._source.wait_registered()
        if number != one.number:
            raise AssertionError(f"{one.number} was planned for what was sent as {number}")

    async def _finish(self, *, waits: bool) -> None:
        """Finish what is stable. waits: for a while, until all that was sent is."""
        if not self._planned:
            return
        if waits:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(STABLE_S):
                    await self._source.wait_stable()
        below = self._source.stable_below
        voids = sorted(one for one in self._voids if one < below)
        lowest = self._next - self._planned
        if below <= lowest:
            return
        finish = stream_ops.RelayFinish(
            name=self.of.name, epoch=self._epoch, below=below, voids=voids
        )
        await self._insist(finish)
        self._voids.difference_update(voids)
        self._planned = self._next - below
        self._sent += below - lowest - len(voids)

    def _heard(self, event: Event) -> None:
        """Note numbers that were given up: what was planned for them is planned again."""
        tell_store(self.of.name, self._core.life.topic, event)
        if isinstance(event, Reclaimed) and event.unstable:
            self._voids.update(range(event.first, event.last + 1))
            again = logged.RelayedAgain(
                bridge=self.of.name,
                topic=self._core.life.topic,
                first=event.first,
                last=event.last,
            )
            telemetry.tell(log, again)

    # the database

    async def _insist(self, op: ops.Op[T]) -> T:
        """Perform an Op that may be performed twice, until its outcome is known."""
        tries = self._tries()
        while True:
            try:
                await self._link.reconnect()
                answer = await self._link.perform(op)
            except AWAY as error:
                await tries.failed(error)
            else:
                tries.succeeded()
                return answer

    def _tries(self) -> Tries:
        return Tries(self.of.name, asyncio.Event())


def has_as_planned(piece: Piece, planned: Mapping[int, bytes]) -> Iterator[int]:
    """Yield the planned numbers that a piece of the stream has as planned.

    What stores have given up, as all receivers have it, was a message: the relay gives up none
    itself.
    """
    for number in range(piece.begin, piece.end):
        if piece.bodies is None:
            is_there = not piece.is_void
        else:
            is_there = piece.bodies[number - piece.begin] == planned.get(number)
        if is_there and number in planned:
            yield number
