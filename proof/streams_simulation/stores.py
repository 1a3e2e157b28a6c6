"""Stores that are simulated: the product's core over a memory store.

It outlives its process, or, as a store in memory really is, it does not.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from onceq.streams.model.choice import Stage
from onceq.streams.model.frames import FrameKind, decode
from onceq.streams.store import acts
from onceq.streams.store.memory_store import MemoryStore
from onceq.streams.store.serving import Serving
from onceq.streams.store.weights import Weights
from proof.streams_simulation.net import Caller, Wire
from proof.streams_simulation.performing import Performing

if TYPE_CHECKING:
    from onceq.streams.store.limits import Limits
    from onceq.streams.store.records import Held
    from onceq.streams.store.store import Store
    from proof.streams_simulation.net import Net

TICK_S = 0.3
RANGE_BYTES = 150
"""Some frames: what is longer is copied, and read, in several steps."""
STEP_BYTES = 64
"""A store knows how much it has to a frame or two."""
Entry = tuple[int, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """What a store is told. may_keep: its limits. filled: called when it holds the stream.

    trimmed: called with numbers that it does not have any more.
    """

    may_keep: Limits
    filled: Callable[[str], None]
    trimmed: Callable[[str, range], None]


class StoreNode:
    """A store. refused: why it closed links. What its memory store has counts as synced.

    keeps: whether it keeps messages; outlives: whether what it has outlives its process.
    """

    keeps = True
    outlives = True

    def __init__(self, net: Net, name: str, told: Told) -> None:
        self.net = net
        self.name = name
        self.may_keep = told.may_keep
        self.is_up = False
        self.filled = told.filled
        self.trimmed = told.trimmed
        self.refused: list[str] = []
        self.wires: dict[int, Wire] = {}
        self.wipe()

    def wipe(self) -> None:
        """Lose everything; it must not run."""
        self.store: Store = MemoryStore(may_keep=self.may_keep, clock=lambda: self.net.now_s)
        self.store.weights = Weights(step=STEP_BYTES)
        self._begin = 0

    def start(self) -> None:
        """Start the process."""
        self.is_up = True
        self.serving = Serving(self.store, self.name, range_bytes=RANGE_BYTES)
        self.caller = Caller(self.net, self.name)
        self._performing: dict[int, Performing] = {}
        self._tick(self.serving)

    def _tick(self, serving: Serving) -> None:
        if self.is_up and serving is self.serving:
            self._step(acts.Ticked())
            self.net.later(TICK_S, lambda: self._tick(serving), self.name)

    def kill(self) -> None:
        """End the process."""
        self.is_up = False
        self.caller.close()
        for wire in list(self.wires.values()):
            self.net.end(wire, "the store was killed")

    # wires

    def opened(self, wire: Wire) -> None:
        """Notice a wire."""
        self.wires[wire.number] = wire
        self._step(acts.Opened(link=wire.number))

    def came(self, wire: Wire, data: bytes) -> None:
        """Take a frame or an ask."""
        self._step(acts.Came(link=wire.number, data=data))
        if self.is_filled():
            self.filled(self.name)

    def is_filled(self) -> bool:
        """Whether it holds the stream."""
        held = self.held
        return held.bridge is not None and held.bridge.stage is not Stage.CREATING

    def gone(self, wire: Wire) -> None:
        """Notice that a wire is cut."""
        self.wires.pop(wire.number, None)
        if self.is_up:
            self._step(acts.Gone(link=wire.number))

    def _step(self, given: acts.Given) -> None:
        for act in self.serving.step(given):
            self._do(act)
        begin = self.held.begin
        if begin > self._begin:
            self.trimmed(self.name, range(self._begin, begin))
            self._begin = begin

    def _do(self, act: acts.Act) -> None:
        match act:
            case acts.Send(link=link, data=data) if link in self.wires:
                if self.wires[link].is_open:
                    self.wires[link].to_caller.append(data)
            case acts.Refuse(why=why):
                self.refused.append(why)
            case acts.Ask():
                self._perform(act)
            case acts.Drop(program=program) if program in self._performing:
                self._performing.pop(program).drop()
            case _:
                pass

    def _perform(self, act: acts.Ask) -> None:
        serving = self.serving

        def resume(answer: object) -> None:
            if serving is self.serving and self.is_up:
                self._step(acts.Answered(program=act.program, answer=answer))

        self._performing[act.program] = Performing(self.caller, act.op, resume)

    @property
    def is_at_rest(self) -> bool:
        """Whether all that it has is synced."""
        return True

    def mend(self) -> None:
        """Let nothing befall it any more by itself."""

    def close(self) -> None:
        """Let go of what the schedule no longer needs."""

    # what it has

    @property
    def held(self) -> Held:
        """What it knows of the stream: there is one."""
        streams = list(self.store.catalogue.streams.values())
        settled = [one for one in streams if one.bridge is not None]
        return (settled or streams or [self.store.catalogue.of(0)])[-1]

    def entries(self, numbers: range) -> dict[int, Entry]:
        """Return the epoch and the content of those of some numbers that it has."""
        found: dict[int, Entry] = {}
        for data in self.store.read(self.held.stream, numbers):
            found |= dict(enumerate(entries(data), decode(data).number))
        return {number: found[number] for number in numbers if number in found}


class FleetingNode(StoreNode):
    """A store in memory: what it has goes with its process."""

    outlives = False

    def kill(self) -> None:
        """End the process."""
        super().kill()
        self.wipe()


def entries(data: bytes) -> list[Entry]:
    """Return the epoch and the content of each message of a frame; a void one's is 0."""
    frame = decode(data)
    if frame.kind is FrameKind.VOID:
        return [(frame.epoch, 0)] * frame.count
    return [(frame.epoch, int.from_bytes(one, "big")) for one in frame.messages()]
