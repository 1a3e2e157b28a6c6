"""What a client with a ledger does, beside its calls: the parts that are alike for both clerks.

Used by `LedgerClerk` and `AsyncLedgerClerk`.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Generic, TypeVar

from onceq.clerk import program as clerk_program
from onceq.clerk.alone import Alone
from onceq.clerk.ledger import program, recovery
from onceq.clerk.ledger.program import Kept, Unit
from onceq.clerk.shown import Shown
from onceq.errors import IllegalState, OnceqError
from onceq.model import names

if TYPE_CHECKING:
    from collections.abc import Callable, Generator
    from typing import Unpack

    from onceq.clerk.ledger.async_runner import AsyncLedgerLink
    from onceq.clerk.ledger.recovery import Policy
    from onceq.clerk.ledger.runner import LedgerLink
    from onceq.clerk.session import Reply, Session
    from onceq.model.element import RequestAttributes
    from onceq.model.ops import Request

T = TypeVar("T")
R = TypeVar("R")
C = TypeVar("C")


class Work(Generic[T, R, C]):
    """What a transaction of the client is to do. connection: for its own SQL, where the ledger is.

    Leave committing, rolling back and preparing to the block.
    """

    def __init__(self, calls: LedgerCalls[T, R], connection: C) -> None:
        self.connection = connection
        self.unit = Unit()
        self._calls = calls

    def send(self, rid: str, request: T, **attributes: Unpack[RequestAttributes]) -> None:
        """Sends a request when the block commits; one in a block. See Clerk.send."""
        if self.unit.request is not None:
            raise IllegalState("one request in a transaction: the first is there already")
        self.unit.request = self._calls.request(rid, request, attributes)
        self._calls.check_send(self.unit)

    def done(self, reply: Reply[R]) -> None:
        """Notes, when the block commits, that a reply was processed in it."""
        program.may_finish(self._calls.kept, reply.rid)
        self.unit.done = reply.rid


class LedgerCalls(Shown[T, R]):
    """What both ledger clerks know and check."""

    def __init__(
        self,
        session: Session[T, R],
        link: LedgerLink | AsyncLedgerLink,
        who: Callable[[], object],
    ) -> None:
        names.check_range("window, with a ledger,", session.window, 1, 1)
        names.check_range("keep, with a ledger,", session.keep, 0, 0)
        super().__init__(session)
        self._alone = Alone(who)
        self.kept = Kept(session=session, joint=link.joint, repository=link.repository)

    def request(self, rid: str, request: T, attributes: RequestAttributes) -> Request:
        """Returns a request to be sent. InvalidName, InvalidValue, TooLarge."""
        return clerk_program.request_of(self._session.queue, rid, request, attributes)

    def check_send(self, unit: Unit) -> None:
        """Raises IllegalState where nothing may be sent now."""
        if unit.done is None:
            program.may_send(self.kept)

    def policy(self, policy: Policy) -> Policy:
        """Returns a policy of `recover`. InvalidValue if there is none of that name."""
        names.check_choice("policy", policy, recovery.POLICIES)
        return policy


@contextmanager
def still(ended_by: BaseException) -> Generator[None]:
    """A rollback that fails after a cancellation, or Ctrl-C, does not take its place."""
    try:
        yield
    except OnceqError as error:
        if isinstance(ended_by, Exception):
            raise
        ended_by.add_note(f"its transaction could not be rolled back: {error}")
