"""Lives of receivers that are simulated: the product's Programs and core, judged as they show."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any

from onceq.model.ops.base import Program
from onceq.streams.model import asks, events
from onceq.streams.model.frames import FrameKind, decode
from onceq.streams.model.quorum import StoreList
from onceq.streams.receiver.catching_up import Patience, follow
from onceq.streams.receiver.delivering import Delivering
from onceq.streams.receiver.ops import Message, Show, Shown
from onceq.streams.receiver.placing import Registration, Who, place, register
from onceq.streams.store.records import key_of
from proof.streams_model.disks import VOID
from proof.streams_model.rules import I5, I6
from proof.streams_simulation.net import Caller
from proof.streams_simulation.performing import Performing
from proof.streams_simulation.senders import SESSION, TOPIC, SourceNode

if TYPE_CHECKING:
    from proof.streams_simulation.world import World

PATIENCE = Patience(read_s=0.5, ask_s=1.0, rest_s=0.4)
SESSIONS = {"stable": 21, "live": 22}
QUEUE_MAX = 20
"""Frames on their way from the source; a receiver with more is cut off."""


class ReceiverNode:
    """A life of a receiver. seen: the contents that it was shown, by number."""

    def __init__(self, world: World, name: str, known: StoreList, *, from_newest: bool) -> None:
        self.world = world
        self.name = name
        self.is_stable_only = name == "stable"
        session = SESSIONS[name]
        self.who = Who(
            topic=TOPIC,
            source=SESSION,
            session=session,
            key=key_of(0, session),
            known=known,
            from_newest=from_newest,
        )
        self.caller = Caller(world.net, f"{name} {world.net.number()}")
        self.core: Delivering | None = None
        self.registration: Registration | None = None
        self.seen: dict[int, int] = {}
        self.is_over = False
        self.source: SourceNode | None = None
        self.queue: deque[bytes] = deque()
        self._program = self._life()
        self._follow(None)

    def _life(self) -> Program[None]:
        position = yield from place(self.who, PATIENCE.ask_s)
        if position is None:
            return
        registration = yield from register(self.who, position, PATIENCE.ask_s)
        if registration is None:
            return
        self.registration = registration
        self.world.promises.begin_life(self.name, registration.begin)
        self.world.promises.register(self.name)
        self.core = Delivering(
            position.stream,
            registration.begin,
            position.lists,
            is_stable_only=self.is_stable_only,
            acknowledged=position.acknowledged,
        )
        yield from follow(self.core, self.who, PATIENCE)

    def _follow(self, answer: Any) -> None:
        while not self.is_over:
            try:
                op = self._program.send(answer)
            except StopIteration:
                self.kill()
                return
            if not isinstance(op, Show):
                Performing(self.caller, op, self._follow)
                return
            answer = None
            self._show(op.shown)

    def kill(self) -> None:
        """End the life."""
        self.is_over = True
        self.world.promises.advance(self.name, self.seen)
        self.caller.close()

    # the source

    def join(self, source: SourceNode) -> None:
        """Connect to a life of the source."""
        self.source = source
        self.queue.clear()
        known = source.core.information()
        if known is not None and self.core is not None:
            self._show(self.core.inform(known))

    def publish(self, source: SourceNode, data: bytes) -> None:
        """Let something be on its way from the source that it is connected to."""
        if self.source is source and not self.is_over:
            self.queue.append(data)
            if len(self.queue) > QUEUE_MAX:
                self.source = None
                self.queue.clear()

    def take(self) -> None:
        """Let what comes next from the source arrive."""
        data = self.queue.popleft()
        core = self.core
        if core is None or self.is_over:
            return
        frame = decode(data)
        if frame.kind is FrameKind.ANSWER:
            known = asks.answer_of(frame.body)
            if isinstance(known, asks.Information):
                self._show(core.inform(known))
        else:
            self._show(core.live(data))

    # what it shows

    def _show(self, shown: tuple[Shown, ...] | list[Shown]) -> None:
        for one in shown:
            match one:
                case Message(number=number, body=body):
                    self._see(number, int.from_bytes(body, "big"))
                case events.Loss(first=first, last=last, why=why):
                    self._lose(first, last, why)
                case events.RolledBack(first=first, last=last):
                    self._go_back(first, last)

    def _see(self, number: int, content: int) -> None:
        if number in self.seen:
            self.world.promises.breach(I5, f"{self.name} was shown {number} twice")
        self.seen[number] = content
        self.world.promises.deliver(self.name, number, content, is_stable_only=self.is_stable_only)

    def _lose(self, first: int, last: int, why: events.WhyLost) -> None:
        self.world.did["losses told to receivers"] += 1
        promises = self.world.promises
        promises.advance(self.name, self.seen)
        if why is events.WhyLost.RECLAIMED:
            gone = range(first, last + 1)
            if not self.world.given_up.issuperset(gone):
                promises.breach(I6, f"{self.name} was told that {gone} was given up")
            self.seen |= dict.fromkeys(gone, VOID)
        else:
            promises.lose(self.name, first, last + 1)

    def _go_back(self, first: int, last: int) -> None:
        self.world.did["receivers rolled back"] += 1
        gone = [one for one in self.seen if one >= first]
        if self.is_stable_only or not gone or max(gone) > last:
            self.world.promises.breach(I5, f"{self.name} saw {gone}, told ({first}, {last})")
        for one in gone:
            del self.seen[one]

    def acknowledge(self) -> None:
        """Tell a store what has been shown, as far as it is known to be stable."""
        core, registration = self.core, self.registration
        if core is None or registration is None or self.is_over:
            return
        store = self.world.chance.choice(sorted(registration.regids))
        ask = asks.Acknowledge(
            stream=core.stream,
            regid=registration.regids[store],
            below=core.sure,
            session=self.who.session,
        )
        self.caller.ask(store, ask, lambda *_: None)
