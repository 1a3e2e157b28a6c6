"""Stores in memory that Programs ask, one after the other; each may be down, or answer late."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from onceq.streams.model import asks, frames, ops
from onceq.streams.model.ending import EndStream, Gone
from onceq.streams.model.frames import Frame, FrameKind, body_of, decode, encode
from onceq.streams.model.quorum import StoreList, listed
from onceq.streams.source.epochs import Begun, SourceLife, Timing
from onceq.streams.source.recovering import Past, Recovered, recover
from onceq.streams.store import ending
from onceq.streams.store.catalogue import Step
from onceq.streams.store.memory_store import MemoryStore
from onceq.streams.store.program import Keep, Perform, admit
from onceq.streams.store.ranging import ranged
from onceq.streams.store.serving import ASKS

if TYPE_CHECKING:
    from collections.abc import Callable

    from onceq.model.ops.base import Program

ABC = listed("a b c")
TIMING = Timing()


def life(number: int = 1, own: StoreList = ABC) -> SourceLife:
    return SourceLife(
        life=number, born_s=1, own=own, topic="bars", session=9, address=f"x:{number}"
    )


S = life().fresh


class Town:
    """Stores by their names. asked: what was asked of which, in order. before: called with both."""

    def __init__(self, names: str = "abc") -> None:
        self.stores = {name: MemoryStore() for name in names}
        self.down: set[str] = set()
        self.asked: list[tuple[str, Any]] = []
        self.before: Callable[[str, Any], None] = lambda _, __: None
        self.order: Callable[[list[str]], list[str]] = sorted

    def wipe(self, store: str) -> None:
        self.stores[store] = MemoryStore()

    def answer(self, store: str, ask: asks.Ask) -> asks.Answer | None:
        self.before(store, ask)
        if store in self.down or store not in self.stores:
            return None
        self.asked.append((store, ask))
        if isinstance(ask, asks.Admit) and not self.is_gone(store, ask.stream):
            return self.run(admit(ask), store)  # type: ignore[no-any-return] # as it is declared
        its = self.stores[store]
        if not isinstance(ask, EndStream) and (gone := ending.refused(its.catalogue, ask)):
            return gone
        decided = ASKS[type(ask)](its.catalogue, ask)
        if isinstance(decided, Step):
            its.do(decided)
            return decided.answer
        return decided

    def is_gone(self, store: str, stream: int) -> bool:
        return self.stores[store].catalogue.of(stream).is_gone

    def deregister(self, stores: str, stream: int = 0) -> None:
        for store in stores:
            its = EndStream(stream=stream or S, topic="bars", session=9)
            assert isinstance(self.answer(store, its), Gone)

    def perform(self, op: Any, store: str) -> Any:
        match op:
            case ops.AskStores(asked=asked):
                given = {one: self.answer(one, asked[one]) for one in self.order(list(asked))}
                return {one: answer for one, answer in given.items() if answer is not None}
            case ops.FetchRange(store=other, ask=ask):
                if other in self.down or other not in self.stores:
                    return None
                return tuple(ranged(self.stores[other], ask, frames.FRAME_BYTES_MAX)[1])
            case Perform(ask=ask, copied=copied):
                return self.stores[store].admitted(ask, copied)[0]
            case Keep(ask=ask, copies=copies):
                return self.stores[store].keep_copies(ask, copies)
            case _:
                return None

    def run(self, program: Program[Any], store: str = "", answer: Any = None) -> Any:
        while True:
            try:
                op = program.send(answer)
            except StopIteration as stop:
                return stop.value
            answer = self.perform(op, store)

    def recover(self, one: SourceLife | None = None, past: Past | None = None) -> Recovered:
        one = one or life()
        found: Recovered = self.run(recover(one, past or Past(wanted=one.own), TIMING))
        return found

    def begun(self, one: SourceLife | None = None, past: Past | None = None) -> Begun:
        found = self.recover(one, past)
        assert isinstance(found, Begun), found
        return found

    def send(self, number: int, stores: str, *, epoch: int, life: int = 1, stable: int = 0) -> None:
        """Let stores take a message, whose text tells epoch and number."""
        data = encode(
            Frame(
                kind=FrameKind.MESSAGES,
                stream=S,
                epoch=epoch,
                number=number,
                stable=stable,
                count=1,
                body=body_of([b"%d.%d" % (epoch, number)]),
            )
        )
        for store in stores:
            answer, _ = self.stores[store].take(decode(data), data, life)
            assert isinstance(answer, asks.Holding), (store, answer)

    def log(self, store: str) -> list[str]:
        its = self.stores[store]
        end = its.catalogue.of(S).end
        return [
            bytes(text).decode()
            for data in its.read(S, range(end))
            for text in decode(data).messages()
        ]

    def stages(self, store: str) -> list[str]:
        """The stages that a store was asked to note."""
        return [
            ask.bridge.stage.name
            for name, ask in self.asked
            if name == store and isinstance(ask, asks.Admit)
        ]
