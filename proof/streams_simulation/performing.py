"""The Ops of streams, performed over simulated wires.

Who gives up waiting for a promise or an admission cuts the wire, so that the ask has no effect any
more. Any other answer may come late, on a wire that goes on.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from onceq.streams.model import asks, ops
from onceq.streams.net.asker import BINDING
from onceq.streams.receiver.ops import ReadStore

if TYPE_CHECKING:
    from proof.streams_simulation.net import Caller


class Performing:
    """An Op that is performed. resume: called with its answer, once, unless it is dropped."""

    def __init__(self, caller: Caller, op: Any, resume: Callable[[Any], None]) -> None:
        self.caller = caller
        self.op = op
        self._resume = resume
        self._is_done = False
        self._answers: dict[str, asks.Answer] = {}
        self._left: set[str] = set()
        self._binding: set[str] = set()
        caller.net.later(op.within_s, self._late, caller.name)
        match op:
            case ops.AskStores(asked=asked):
                self._left = set(asked)
                for store, ask in asked.items():
                    self._ask(store, ask)
                self._check()
            case ops.AskStore(store=store, ask=ask) | ops.FetchRange(store=store, ask=ask):
                self._left = {store}
                self._ask(store, ask)
            case ReadStore(store=store, ask=ask):
                self._left = {store}
                self._ask(store, ask)
            case ops.WaitUntil():
                pass
            case _:
                raise TypeError(f"{op!r} is not performed here")

    def _ask(self, store: str, ask: asks.Ask) -> None:
        if isinstance(ask, BINDING):
            self._binding.add(store)
        self.caller.ask(store, ask, lambda answer, data: self._heard(store, answer, data))

    def _heard(self, store: str, answer: asks.Answer | None, data: tuple[bytes, ...]) -> None:
        if self._is_done or store not in self._left:
            return
        self._left.discard(store)
        match self.op:
            case ops.AskStores():
                if answer is not None:
                    self._answers[store] = answer
                self._check()
            case ops.FetchRange():
                self._end(data if isinstance(answer, asks.Range) else None)
            case ReadStore():
                self._end(None if answer is None else (answer, data))
            case _:
                self._end(answer)

    def _check(self) -> None:
        if not self._left or self.op.enough(self._answers):
            self._end(self._answers)

    def _late(self) -> None:
        if not self._is_done:
            self._end(self._answers if isinstance(self.op, ops.AskStores) else None)

    def _end(self, answer: Any) -> None:
        """Answer; nobody waits for the rest."""
        if self._is_done:
            return
        self.drop()
        if self.caller.is_alive:
            self.caller.net.later(0.0, lambda: self._go_on(answer), self.caller.name)

    def _go_on(self, answer: Any) -> None:
        if self.caller.is_alive:
            self._resume(answer)

    def drop(self) -> None:
        """Nobody waits for the answer any more."""
        self._is_done = True
        left, self._left = self._left, set()
        for store in sorted(left & self._binding):
            self.caller.cut(store, "it has not answered in time")
