"""What a kind of ledger is: where it keeps its entry, and how that is joined to the repository.

A kind is a value that the user makes; making it opens nothing. Its `Answers` are Programs. Its
`Executor` runs their statements if it has a database of its own. Implemented beside this module.
"""

from __future__ import annotations

import abc
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeAlias, TypeVar

from onceq.errors import InvalidValue, LedgerRefused
from onceq.model.ledger import decode_entry
from onceq.model.names import shown

if TYPE_CHECKING:
    from onceq.engine.connect.async_connection import AsyncLink
    from onceq.engine.connect.connection import Link
    from onceq.model.ledger import Entry, Joint
    from onceq.model.ledger_ops import Statement
    from onceq.model.ops import Op, Program

C = TypeVar("C")
A = TypeVar("A")
Rows: TypeAlias = list[tuple[Any, ...]]


class Executor(Protocol):
    """Runs the statements of a ledger on its database. connection: for the client's own work."""

    @property
    def connection(self) -> Any:
        """The connection to the ledger's database."""

    def execute(self, op: Statement) -> Rows:
        """Runs a statement and returns its rows."""
        ...

    def close(self) -> None:
        """Closes what was opened for the ledger; idempotent."""


class AsyncExecutor(Protocol):
    """`Executor`, awaited."""

    @property
    def connection(self) -> Any:
        """The connection to the ledger's database."""

    async def execute(self, op: Statement) -> Rows:
        """See Executor.execute."""
        ...

    async def close(self) -> None:
        """See Executor.close."""


class Answers(Protocol):
    """Answers the Ops of `ledger_ops`, each with a Program. It serves one life of one client."""

    def answer(self, op: Op[Any]) -> Program[Any]:
        """Returns the Program that does what the Op says."""
        ...


class Ledger(abc.ABC, Generic[C, A]):
    """A client's own record of its last request; given to `QueueManager.clerk`.

    C, A: what `transaction` gives to the client's work, sync and async.
    """

    @property
    @abc.abstractmethod
    def joint(self) -> Joint:
        """How its writes and the repository's operations become one."""

    @abc.abstractmethod
    def answers(self) -> Answers:
        """Returns the Answers for one life."""

    @abc.abstractmethod
    def open(self, link: Link) -> Executor:
        """Opens the ledger's database. CannotConnect, LedgerRefused: nothing happened."""

    @abc.abstractmethod
    async def open_async(self, link: AsyncLink) -> AsyncExecutor:
        """See open."""


def check_ledger(where: str, ledger: object) -> None:
    """Checks that a clerk is given a ledger. InvalidValue."""
    if not isinstance(ledger, Ledger):
        raise InvalidValue(
            f"{where}: a ledger is an onceq.SqliteLedger, PostgresLedger or QueueLedger, not "
            f"{shown(ledger)}: make one of them"
        )


def read_entry(where: str, text: str, digest: str) -> Entry:
    """Returns a ledger's entry. Raises LedgerRefused if it is not what was written."""
    entry = decode_entry(text, digest)
    if entry is None:
        raise LedgerRefused(
            f"{where} is corrupt: its content does not have its digest; put it aside, and start "
            "the client with a new one: the repository's session still has its last request"
        )
    return entry


def refuse_other_owner(where: str, found: str, wanted: str) -> None:
    """Raises LedgerRefused if a ledger belongs to another client or another repository."""
    if found != wanted:
        raise LedgerRefused(
            f"{where} is another client's: it is of {found}, and this client is {wanted}; "
            "each client of each repository has a ledger of its own"
        )
