"""Lives of a source that are simulated: the product's Program and core, and who judges them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from onceq.streams.errors import FlightFull, NotRegistered, SourceSucceeded
from onceq.streams.model import asks, events
from onceq.streams.model.frames import FrameKind, decode
from onceq.streams.model.log import epoch_at
from onceq.streams.model.quorum import StoreList
from onceq.streams.model.window import Flight
from onceq.streams.source import acts
from onceq.streams.source.epochs import SourceLife, Timing, WhyEnded
from onceq.streams.source.program import Over, SendOn, TellShort, live
from onceq.streams.source.sending import Sending
from proof.streams_model.disks import VOID
from proof.streams_model.rules import I1, I3, I4
from proof.streams_simulation.net import Caller
from proof.streams_simulation.performing import Performing
from proof.streams_simulation.stores import entries

if TYPE_CHECKING:
    from collections.abc import Callable

    from proof.streams_simulation.world import World

TIMING = Timing(
    ask_s=1.0,
    admit_s=2.0,
    interval_s=0.5,
    retry_s=0.3,
    resend_s=1.5,
    unresponsive_s=1.0,
    copy_s=2.0,
    change_s=4.0,
    room_s=4.0,
)
TICK_S = 0.2
TOPIC, SESSION, REGID = "bars", 9, 1_000
FLIGHT = 8
BORN_S = 1_000
"""What the clock says when a schedule begins."""


class SourceNode:
    """A life of the source. contents: of the numbers that it sent. heard: called with frames."""

    def __init__(self, world: World, own: StoreList) -> None:
        self.world = world
        number = world.net.number()
        self.name = f"source {number}"
        self.life = SourceLife(
            life=number,
            born_s=BORN_S + int(world.net.now_s),
            own=own,
            topic=TOPIC,
            session=SESSION,
            address=self.name,
            regids=dict.fromkeys(own.stores, REGID) if world.has_regids else {},
        )
        self.caller = Caller(world.net, self.name)
        self.caller.linked = lambda store: self._step(acts.Opened(store=store))
        self.caller.unlinked = lambda store, why: self._step(acts.Gone(store=store, why=why))
        self.caller.answered = lambda store, answer: self._step(
            acts.Came(store=store, answer=answer)
        )
        self.core = Sending(self.life, Flight(messages_max=FLIGHT), TIMING)
        self.program = live(self.life, TIMING)
        self.contents: dict[int, int] = {}
        self.is_over = False
        self._is_in_epoch = False
        self._follow(None)
        self._tick()

    @property
    def is_sending(self) -> bool:
        """Whether it sends in an epoch."""
        return not self.is_over and self._is_in_epoch and self.core.is_sending

    def kill(self) -> None:
        """End the process."""
        self.is_over = True
        self.caller.close()

    # its Program

    def _follow(self, answer: Any) -> None:
        """Go on with the Program."""
        while not self.is_over:
            try:
                op = self.program.send(answer)
            except StopIteration:
                self._succeed()
                return
            answer = None
            match op:
                case SendOn(begun=begun):
                    self._begin(begun)
                    return
                case TellShort(short=short):
                    self.world.did["recoveries that lacked stores"] += 1
                    self._do(self.core.lack(short))
                case _:
                    Performing(self.caller, op, self._follow)
                    return

    def _succeed(self) -> None:
        """Note that it will never send again."""
        self.world.did["sources that were succeeded"] += 1
        core = self.core
        self.world.judge.succeeded(core.needed, epoch=core.epoch, life=self.life.life)
        self.kill()

    def _begin(self, begun: Any) -> None:
        self._is_in_epoch = True
        try:
            made = self.core.begin(begun, self.world.net.now_s)
        except AssertionError as error:
            self.world.promises.breach(I4, str(error))
            self.kill()
            return
        self.world.completed(self, begun)
        self._do(made)
        for store in list(self.core.feeding.stores):
            if store not in self.caller.wires:
                self._step(acts.Unlinked(store=store))

    def _end(self, why: WhyEnded) -> None:
        self._is_in_epoch = False
        self.world.did[f"epochs ended: {why.value}"] += 1
        if why is WhyEnded.CONFLICT:
            self.world.promises.breach(I3, f"{self.name} was told of another content")
        over = Over(why=why, needed=self.core.needed, wanted=self.core.wanted)
        self.world.net.later(0.0, lambda: self._follow(over), self.name)

    # its core

    def _step(self, given: acts.Given) -> None:
        if not self.is_over:
            self._do(self.core.step(given, self.world.net.now_s))

    def _do(self, made: list[acts.Act]) -> None:
        if self._is_in_epoch:
            self.world.promises.govern(self.core.epoch, self.core.needed)
        for act in made:
            match act:
                case acts.Send(store=store, data=data):
                    self.caller.send(store, data)
                case acts.Publish(data=data):
                    self._publish(data)
                case acts.Ask():
                    self._ask(act)
                case acts.Tell(event=event):
                    self._tell(event)
                case acts.End(why=why):
                    self._end(why)
        self._report_voids()

    def _publish(self, data: bytes) -> None:
        frame = decode(data)
        if frame.kind is not FrameKind.ANSWER:
            for number, entry in enumerate(entries(data), frame.number):
                self.world.promises.send(number, entry)
        self.world.publish(self, data)

    def _ask(self, act: acts.Ask) -> None:
        is_done: list[bool] = []

        def heard(answer: asks.Answer | None, _: tuple[bytes, ...]) -> None:
            is_done.append(True)
            self._step(acts.Answered(store=act.store, ask=act.ask, answer=answer))

        def late() -> None:
            if not is_done:
                self.caller.cut(act.store, "it has not answered in time")

        self.caller.ask(act.store, act.ask, heard)
        self.world.net.later(TIMING.copy_s, late, self.name)

    def _tell(self, event: events.Event) -> None:
        match event:
            case events.Reclaimed(first=first, last=last, unstable=True):
                gone = range(first, last + 1)
                self.contents |= dict.fromkeys(gone, VOID)
                self.world.judge.given_up.update(gone)
            case events.Stable(first=first, last=last) if first in self.contents:
                numbers = range(first, last + 1)
                if any(self.contents[one] == VOID for one in numbers):
                    self.world.promises.breach(I1, f"{event} tells of what was given up")
                self._report_voids()
                self._report(numbers)
            case _:
                pass

    def _report_voids(self) -> None:
        """Note that what was given up keeps its number: a source is told of it only once."""
        promises = self.world.promises
        while (number := len(promises.stable)) < self.core.stable:
            if self.contents.get(number) != VOID:
                return
            self._report(range(number, number + 1))

    def _report(self, numbers: range) -> None:
        begun = self.core.begun
        firsts = () if begun is None else begun.bridge.firsts
        log = [(epoch_at(firsts, one), self.contents[one]) for one in numbers]
        self.world.judge.report(self.core.needed, log, numbers.start)

    def _tick(self) -> None:
        if self.is_over:
            return
        if self._is_in_epoch:
            for store in list(self.core.feeding.stores):
                self.caller.connect(store)
        self._step(acts.Ticked())
        self.world.net.later(TICK_S, self._tick, self.name)

    # its application

    def send(self, count: int, new: Callable[[], int]) -> None:
        """Send messages; what cannot be sent now is not sent."""
        try:
            for _ in range(count):
                content = new()
                number = self.core.send(content.to_bytes(4, "big"))
                self.contents[number] = content
        except (FlightFull, NotRegistered, SourceSucceeded) as error:
            self.world.did[f"sends refused: {type(error).__name__}"] += 1
        self._do(self.core.flush(self.world.net.now_s))

    def want(self, own: StoreList) -> None:
        """Have the list of stores changed."""
        self._step(acts.Wanted(own=own))

    def give_up(self, number: int) -> None:
        """Give up a number."""
        self._step(acts.GaveUp(number=number))
