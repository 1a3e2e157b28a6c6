"""Runs Programs: the loop of everything that performs Ops. Pure.

A base class, not a function: a function that is given `perform` takes a sixth longer for each Op.
"""

from __future__ import annotations

import abc
from collections.abc import Awaitable
from typing import TypeVar

from onceq.errors import OnceqError
from onceq.model.ops.base import Op, Program

T = TypeVar("T")


class RunsAsync(abc.ABC):
    """Performs Ops, and can therefore run Programs."""

    __slots__ = ()

    @abc.abstractmethod
    def perform(self, op: Op[T]) -> Awaitable[T]:
        """Performs one Op and returns its answer."""

    async def run(self, program: Program[T]) -> T:
        """Runs a Program to its end and closes it; an Op's OnceqError is thrown into it.

        Whatever cuts it short closes it too.
        """
        try:
            op = next(program)
            while True:
                try:
                    answer = await self.perform(op)
                except OnceqError as error:
                    op = program.throw(error)
                else:
                    op = program.send(answer)
        except StopIteration as end:
            return end.value  # type: ignore[no-any-return] # the Program's own type
        finally:
            program.close()
            self._leave()

    @abc.abstractmethod
    def _leave(self) -> None:
        """Gives back what a Program that has ended may still hold here."""
