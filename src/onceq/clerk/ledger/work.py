"""What a transaction of a client with a ledger is to do, beside the client's own SQL.

Given by `transaction` of AsyncClerk and Clerk.
"""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from typing import Generic, TypeVar, Unpack

from onceq.clerk.ledger import program
from onceq.clerk.ledger.program import Kept, Unit
from onceq.clerk.program import request_of
from onceq.clerk.session import Reply
from onceq.errors import IllegalState, OnceqError
from onceq.model.send_attributes import RequestAttributes

T = TypeVar("T")
R = TypeVar("R")
C = TypeVar("C")


class Work(Generic[T, R, C]):
    """What a transaction of the client is to do. connection: for its own SQL, where the ledger is.

    Leave committing, rolling back and preparing to the block.
    """

    def __init__(self, kept: Kept, connection: C) -> None:
        self.connection = connection
        self.unit = Unit()
        self._kept = kept

    def send(self, rid: str, request: T, **attributes: Unpack[RequestAttributes]) -> None:
        """Sends a request when the block commits; one in a block. See Clerk.send."""
        if self.unit.request is not None:
            raise IllegalState("one request in a transaction: the first is there already")
        sent = request_of(self._kept.session.queue, rid, request, attributes)
        if self.unit.done is None:
            program.may_send(self._kept)
        self.unit.request = sent

    def done(self, reply: Reply[R]) -> None:
        """Notes, when the block commits, that a reply was processed in it."""
        program.may_finish(self._kept, reply.rid)
        self.unit.done = reply.rid


@contextmanager
def still(ended_by: BaseException) -> Generator[None]:
    """A rollback that fails after a cancellation, or Ctrl-C, does not take its place."""
    try:
        yield
    except OnceqError as error:
        if isinstance(ended_by, Exception):
            raise
        ended_by.add_note(f"its transaction could not be rolled back: {error}")
