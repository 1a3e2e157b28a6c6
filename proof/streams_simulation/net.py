"""Time, and wires between those who ask and stores: what goes one way comes in order, or not.

A wire that is cut loses what is on its way. While two are apart, nothing comes on their wires, or
nothing in one direction. While a process is paused, nothing comes to it, and nothing in it is due.
"""

from __future__ import annotations

import heapq
import itertools
import random
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from onceq.streams.model import asks, encoding
from onceq.streams.model.frames import FrameKind, Splitter, decode
from onceq.streams.net.wire import ask_frame

if TYPE_CHECKING:
    from proof.streams_simulation.stores import StoreNode

Done = Callable[[asks.Answer | None, tuple[bytes, ...]], None]
"""Called with an answer, and the frames behind it; None: the wire was cut, or there is none."""


@dataclass(slots=True)
class Wire:
    """One connection of a caller to a store. number: by which the store knows it.

    is_open: the caller has not cut it. lingers: what was on its way to the store comes still.
    """

    caller: Caller
    store: StoreNode
    number: int
    to_store: deque[bytes] = field(default_factory=deque[bytes])
    to_caller: deque[bytes] = field(default_factory=deque[bytes])
    is_open: bool = True
    lingers: bool = False


class Net:
    """Everything that is on its way, and what is due at some time."""

    def __init__(self, chance: random.Random) -> None:
        self.chance = chance
        self.now_s = 0.0
        self.apart: set[tuple[str, str]] = set()
        self.deaf: set[tuple[str, str, bool]] = set()
        self.paused: dict[str, float] = {}
        self.stores: dict[str, StoreNode] = {}
        self.wires: list[Wire] = []
        self.lost = 0.0
        self.doubled = 0.0
        self.lingering = 0.0
        self._count = itertools.count(1)
        self._due: list[tuple[float, int, Callable[[], None], str]] = []

    def number(self) -> int:
        """Return a number that was never returned before."""
        return next(self._count)

    def later(self, seconds: float, does: Callable[[], None], of: str = "") -> None:
        """Have something done in a while. of: whose process does it."""
        heapq.heappush(self._due, (self.now_s + seconds, self.number(), does, of))

    def pass_time(self) -> bool:
        """Go on to what is due next, and do it; return whether anything is."""
        if not self._due:
            return False
        at, _, does, of = heapq.heappop(self._due)
        self.now_s = max(self.now_s, at)
        if self.is_paused(of):
            self.later(self.paused[of] - self.now_s, does, of)
        else:
            does()
        return True

    def is_paused(self, who: str) -> bool:
        """Whether a process does nothing now."""
        return self.now_s < self.paused.get(who, 0.0)

    def are_apart(self, caller: Caller, store: str) -> bool:
        """Whether nothing comes from one to the other."""
        return (caller.name, store) in self.apart

    def moving(self) -> list[tuple[Wire, bool]]:
        """Return the wires on which something may come now, and whether it is for the store."""
        found: list[tuple[Wire, bool]] = []
        for wire in self.wires:
            caller, store = wire.caller.name, wire.store.name
            if not self.are_apart(wire.caller, store):
                for queue, is_to_store in ((wire.to_store, True), (wire.to_caller, False)):
                    if queue and self._hears(caller, store, is_to_store=is_to_store):
                        found.append((wire, is_to_store))
        return found

    def _hears(self, caller: str, store: str, *, is_to_store: bool) -> bool:
        """Whether one end of a wire may now get something."""
        is_deaf = (caller, store, is_to_store) in self.deaf
        return not is_deaf and not self.is_paused(store if is_to_store else caller)

    def deliver(self, wire: Wire, *, is_to_store: bool) -> None:
        """Let one thing arrive; a frame, or the answer to one, may be lost, or come twice."""
        queue = wire.to_store if is_to_store else wire.to_caller
        data = queue.popleft()
        if _may_be_lost(data):
            draw = self.chance.random()
            if draw < self.lost:
                return
            if draw < self.lost + self.doubled:
                queue.appendleft(data)
        if is_to_store:
            wire.store.came(wire, data)
            if wire.lingers and not wire.to_store:
                self._forget(wire)
        else:
            wire.caller.came(wire, data)

    def cut(self, wire: Wire, why: str) -> None:
        """Cut a wire; both ends notice, the store perhaps after what was on its way to it."""
        if not wire.is_open:
            return
        wire.is_open = False
        wire.to_caller.clear()
        wire.lingers = bool(wire.to_store) and self.chance.random() < self.lingering
        if not wire.lingers:
            self._forget(wire)
        wire.caller.gone(wire, why)

    def _forget(self, wire: Wire) -> None:
        if wire in self.wires:
            self.wires.remove(wire)
            wire.to_store.clear()
            wire.store.gone(wire)

    def end(self, wire: Wire, why: str) -> None:
        """End a wire with the process of its store: nothing of it is left."""
        wire.to_store.clear()
        self.cut(wire, why)
        self._forget(wire)


def _may_be_lost(data: bytes) -> bool:
    frame = decode(next(Splitter().feed(data)))
    return frame.kind in {FrameKind.MESSAGES, FrameKind.VOID} or (
        frame.kind is FrameKind.ANSWER and frame.number == 0
    )


class Caller:
    """Who asks stores, with one wire to each.

    answered: called with a store and its answer to frames; linked, unlinked: with a store.
    """

    def __init__(self, net: Net, name: str) -> None:
        self.net = net
        self.name = name
        self.wires: dict[str, Wire] = {}
        self.is_alive = True
        self.answered: Callable[[str, asks.Answer], None] = _unheeded
        self.linked: Callable[[str], None] = _unheeded
        self.unlinked: Callable[[str, str], None] = _unheeded
        self._asked: dict[tuple[str, int], Done] = {}

    def connect(self, store: str) -> Wire | None:
        """Return the wire to a store; None: it does not run."""
        node = self.net.stores.get(store)
        if not self.is_alive or node is None or not node.is_up:
            return None
        if store not in self.wires:
            wire = Wire(caller=self, store=node, number=self.net.number())
            self.wires[store] = wire
            self.net.wires.append(wire)
            node.opened(wire)
            self.linked(store)
        return self.wires.get(store)

    def ask(self, store: str, ask: asks.Ask, done: Done) -> None:
        """Ask a store."""
        wire = self.connect(store)
        if wire is None:
            self.net.later(0.0, lambda: done(None, ()), self.name)
            return
        tag = self.net.number()
        self._asked[store, tag] = done
        wire.to_store.append(ask_frame(getattr(ask, "stream", 0), tag, ask))

    def send(self, store: str, data: bytes) -> None:
        """Send a frame on the wire that there is."""
        if store in self.wires:
            self.wires[store].to_store.append(data)

    def came(self, wire: Wire, data: bytes) -> None:
        """Take an answer, with what follows it."""
        first, *rest = Splitter().feed(data)
        frame = decode(first)
        answer = encoding.answer_of(frame.body)
        if frame.number == 0:
            self.answered(wire.store.name, answer)
            return
        done = self._asked.pop((wire.store.name, frame.number), None)
        if done is not None:
            done(answer, tuple(rest))

    def cut(self, store: str, why: str) -> None:
        """Cut the wire to a store: what was asked on it has an effect no more."""
        if store in self.wires:
            self.net.cut(self.wires[store], why)

    def gone(self, wire: Wire, why: str) -> None:
        """Notice that a wire is cut."""
        store = wire.store.name
        self.wires.pop(store, None)
        waiting = [key for key in self._asked if key[0] == store]
        done = [self._asked.pop(key) for key in waiting]
        if self.is_alive:
            self.unlinked(store, why)
            for one in done:
                one(None, ())

    def close(self) -> None:
        """Die: all wires are cut, and nothing is heard any more."""
        self.is_alive = False
        self._asked.clear()
        for wire in list(self.wires.values()):
            self.net.cut(wire, "the caller died")


def _unheeded(*_: object) -> None:
    """Nobody listens."""
