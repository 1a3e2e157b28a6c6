"""A Program within a Program: it does the same, and has a span for each Op of a table.

So there is one way for threads and for asyncio, for clerks with a connection and at a desk, for
servers and for queue managers: each runs Programs.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar

from onceq.errors import OnceqError
from onceq.model import ops
from onceq.otel.spans import CUT_SHORT, Teller
from onceq.otel.steps import STEPS, Memory, Step, within_one
from onceq.server.charges import code_of

T = TypeVar("T")


class Watch:
    """One run of a Program, and the span of the Op that is being performed."""

    def __init__(self, teller: Teller) -> None:
        self._teller = teller
        self._memory = Memory()
        self._step: Step | None = None

    def begin(self, op: ops.Op[Any]) -> ops.Op[Any]:
        """Returns what is performed in place of this Op."""
        kind = STEPS.get(type(op))
        if kind is None or within_one.get():
            return op
        begin = partial(kind, self._teller, self._memory, op)
        self._step = self._teller.safely(f"begin {type(op).__name__}", begin)
        return op if self._step is None else self._step.op

    def answered(self, op: ops.Op[Any], answer: Any) -> None:
        """Notes that it was performed."""
        step, self._step = self._step, None
        if step is not None:
            self._teller.safely(f"end {type(op).__name__}", partial(step.answered, answer))
        else:
            self._memory.learn(op, answer)

    def failed(self, code: str) -> None:
        """Notes that it failed, if one is still being performed."""
        step, self._step = self._step, None
        if step is not None:
            self._teller.safely(f"end {type(step.op).__name__}", partial(step.failed, code))


def watched(teller: Teller, program: ops.Program[T]) -> ops.Program[T]:
    """Returns a Program that does the same, and is told of."""
    watch = Watch(teller)
    try:
        op = next(program)
        while True:
            try:
                answer = yield watch.begin(op)
            except OnceqError as error:
                watch.failed(code_of(error))
                op = program.throw(error)
            else:
                watch.answered(op, answer)
                op = program.send(answer)
    except StopIteration as end:
        return end.value  # type: ignore[no-any-return] # the Program's own type
    finally:
        watch.failed(CUT_SHORT)
        program.close()


def watching(teller: Teller, run: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    """Returns the method `run` of what performs Ops, with each Program told of."""
    return lambda performs, program: run(performs, watched(teller, program))


def flushing(teller: Teller, run: Callable[..., Any]) -> Callable[..., Any]:
    """Returns the method `run` of a server, after which all that was told is exported.

    A process of `onceq serve` ends at once after it.
    """

    def call(server: Any, *arguments: Any, **named: Any) -> Any:
        try:
            return run(server, *arguments, **named)
        finally:
            teller.flush()

    return call
