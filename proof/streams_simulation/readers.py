"""Lives of receivers that are simulated: the product's Programs and core, judged as they show."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any

from onceq.model.ops.base import Program
from onceq.streams.model import asks, encoding, events
from onceq.streams.model.frames import FrameKind, decode
from onceq.streams.model.log import epoch_at
from onceq.streams.model.quorum import StoreList
from onceq.streams.receiver.acknowledging import Acknowledging, acknowledge
from onceq.streams.receiver.catching_up import Patience, follow
from onceq.streams.receiver.delivering import Delivering
from onceq.streams.receiver.ops import Message, Show, Shown
from onceq.streams.receiver.placing import Who, place, register
from onceq.streams.store.records import key_of
from proof.streams_model.disks import VOID
from proof.streams_model.rules import I3, I5, I6
from proof.streams_simulation.net import Caller
from proof.streams_simulation.performing import Performing
from proof.streams_simulation.senders import SESSION, TOPIC, SourceNode

if TYPE_CHECKING:
    from proof.streams_simulation.world import World

PATIENCE = Patience(read_s=0.5, ask_s=1.0, rest_s=0.4)
QUEUE_MAX = 20
"""Frames on their way from the source; a receiver with more is cut off."""


class ReceiverNode:
    """A life of a receiver. seen: the contents that it was shown, by number; epochs: of these.

    lost: numbers that it was told not to get. expected: the number that must come next.
    """

    def __init__(self, world: World, name: str, known: StoreList, *, from_newest: bool) -> None:
        self.world = world
        self.name = name
        self.is_stable_only = name.startswith("stable")
        session = world.sessions[name]
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
        self.seen: dict[int, int] = {}
        self.epochs: dict[int, int] = {}
        self.lost: set[int] = set()
        self.expected = 0
        self.is_over = False
        self.source: SourceNode | None = None
        self.queue: deque[bytes] = deque()
        self._telling: Acknowledging | None = None
        self._is_telling = False
        self._program = self._life()
        self._follow(self._program, None)

    def _life(self) -> Program[None]:
        position = yield from place(self.who, PATIENCE.ask_s)
        if position is None:
            return
        registration = yield from register(self.who, position, PATIENCE.ask_s)
        if registration is None:
            return
        self._telling = Acknowledging(self.who, registration)
        self.expected = registration.begin
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

    def _follow(self, program: Program[Any], answer: Any) -> None:
        """Go on with a Program; when its own ends, so does the life."""
        while not self.is_over:
            try:
                op = program.send(answer)
            except StopIteration:
                if program is self._program:
                    self.kill()
                self._is_telling = False
                return
            if not isinstance(op, Show):
                Performing(self.caller, op, lambda given: self._follow(program, given))
                return
            answer = None
            self._show(op.shown)

    @property
    def is_newborn(self) -> bool:
        """Whether it is registered, and was shown nothing yet."""
        return not self.is_over and self.core is not None and self.core.next == self.core.begin

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

    def leave(self) -> None:
        """Lose the connection."""
        self.source = None
        self.queue.clear()

    def publish(self, source: SourceNode, data: bytes) -> None:
        """Let something be on its way from the source that it is connected to."""
        if self.source is source and not self.is_over:
            self.queue.append(data)
            if len(self.queue) > QUEUE_MAX:
                self.leave()

    def take(self) -> None:
        """Let what comes next from the source arrive."""
        data = self.queue.popleft()
        core = self.core
        if core is None or self.is_over:
            return
        frame = decode(data)
        if frame.kind is FrameKind.ANSWER:
            known = encoding.answer_of(frame.body)
            if isinstance(known, asks.Information):
                self._show(core.inform(known))
        else:
            self._show(core.live(data))

    # what it shows

    def _show(self, shown: tuple[Shown, ...] | list[Shown]) -> None:
        for one in shown:
            match one:
                case Message():
                    self._see(one)
                case events.Loss(first=first, last=last, why=why):
                    self._lose(first, last + 1, why)
                case events.RolledBack(first=first, last=last):
                    self._go_back(first, last)

    def _come(self, number: int, below: int) -> None:
        """Judge that numbers come next: none is left out, and none comes twice.

        What was told as lost may come after all, when a later epoch goes back behind it.
        """
        if number < self.expected and self.lost.issuperset(range(number, self.expected)):
            self._forget(number)
        elif number != self.expected:
            text = f"{self.name} is shown {number}, and {self.expected} comes next"
            self.world.promises.breach(I5, text)
        self.expected = below

    def _forget(self, number: int) -> None:
        """Forget what was shown from a number on: it comes again."""
        self.seen = {one: content for one, content in self.seen.items() if one < number}
        self.lost = {one for one in self.lost if one < number}

    def _see(self, one: Message) -> None:
        number, epoch = one.number, one.epoch
        content = int.from_bytes(one.body, "big")
        self._come(number, number + 1)
        self.seen[number], self.epochs[number] = content, epoch
        promises = self.world.promises
        if promises.sent.get((epoch, number)) != content:
            text = f"{self.name} was shown {content} as {(epoch, number)}, which nobody sent"
            promises.breach(I3, text)
        told = None if self.core is None else self.core.told
        if self.is_stable_only:
            promises.deliver(self.name, number, content, is_stable_only=True)
            if self.world.judge.entries.get(number) != (epoch, content):
                promises.breach(I5, f"{self.name} was shown {number} of {epoch}, not stable so")
        elif told is not None and epoch_at(told.firsts, number) != epoch:
            text = f"{self.name} was shown {number} of {epoch}, and follows {told.firsts}"
            promises.breach(I5, text)

    def _lose(self, first: int, below: int, why: events.WhyLost) -> None:
        world, promises = self.world, self.world.promises
        world.did[f"losses told to receivers: {why.value}"] += 1
        self._come(first, below)
        promises.advance(self.name, self.seen)
        gone = range(first, below)
        self.lost.update(gone)
        if why is not events.WhyLost.RECLAIMED:
            promises.lose(self.name, first, below)
            return
        if not world.judge.given_up.issuperset(gone):
            promises.breach(I6, f"{self.name} was told that {gone} was given up")
        self.seen |= dict.fromkeys(gone, VOID)

    def _go_back(self, first: int, last: int) -> None:
        gone = {
            number: (self.epochs[number], content)
            for number, content in self.seen.items()
            if number >= first and number not in self.lost
        }
        if self.is_stable_only or not gone or (min(gone), max(gone)) != (first, last):
            text = f"{self.name} saw {sorted(gone)}, and was told ({first}, {last})"
            self.world.promises.breach(I5, text)
        self.world.judge.rolled_back(self.name, gone)
        self._forget(first)
        self.expected = first

    def acknowledge(self) -> None:
        """Tell stores what has been shown, as far as it is known to be stable."""
        if self.core is None or self._telling is None or self._is_telling or self.is_over:
            return
        self._is_telling = True
        below, known = self.core.sure, self.world.judge.acknowledged
        known[self.name] = max(below, known.get(self.name, 0))
        self._follow(acknowledge(self._telling, self.core, below, PATIENCE.read_s), None)
