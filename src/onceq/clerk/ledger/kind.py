"""What a kind of ledger is: where it keeps its entry, and how that is joined to the repository.

A kind is a value that the user makes; making it opens nothing. Its `Answers` are Programs. Its
`Executor` runs their statements. The kinds are beside this module.
"""

from __future__ import annotations

import abc
from collections.abc import Callable
from typing import Any, ClassVar, Generic, Protocol, TypeAlias, TypeVar

import msgspec

from onceq.engine.connect.async_connection import AsyncLink
from onceq.engine.connect.connection import Link
from onceq.errors import Fenced, InvalidValue, LedgerRefused
from onceq.model import ledger_ops, ops
from onceq.model.ledger import Entry, Joint, decode_entry
from onceq.model.names import shown
from onceq.model.ops import Op, Program

C = TypeVar("C")
A = TypeVar("A")
Rows: TypeAlias = list[tuple[Any, ...]]


class Executor(Protocol):
    """Runs the statements of a ledger on its database. connection: for the client's own work."""

    @property
    def connection(self) -> Any:
        """The connection to the ledger's database."""

    def execute(self, op: ledger_ops.Statement) -> Rows:
        """Runs a statement and returns its rows."""
        ...

    def close(self) -> None:
        """Closes what was opened for the ledger; idempotent."""


class AsyncExecutor(Protocol):
    """`Executor`, awaited."""

    @property
    def connection(self) -> Any:
        """The connection to the ledger's database."""

    async def execute(self, op: ledger_ops.Statement) -> Rows:
        """See Executor.execute."""
        ...

    async def close(self) -> None:
        """See Executor.close."""


class Answers(abc.ABC):
    """Answers the Ops of `ledger_ops`, each with a Program. It serves one life of one client.

    where: what errors call the ledger. begins, rolls_back: what does that to its transaction, by
    default to the repository's.
    """

    begins: ClassVar[Op[Any]] = ops.BeginWork()
    rolls_back: ClassVar[Op[Any]] = ops.Rollback()

    def __init__(self, where: str) -> None:
        self._where = where
        self._is_open = False
        self._taken_by: ledger_ops.TakeLedger | None = None
        self._table: dict[type[Op[Any]], Callable[[Any], Program[Any]]] = {
            ledger_ops.TakeLedger: self._take,
            ledger_ops.WriteLedger: self._write,
            ledger_ops.BeginLedger: self._begin,
            ledger_ops.CommitLedger: self._commit,
            ledger_ops.RollbackLedger: self._rollback,
            ledger_ops.ListPrepared: self._prepared,
        }

    def answer(self, op: Op[Any]) -> Program[Any]:
        """Returns the Program that does what the Op says."""
        return self._table[type(op)](op)

    @abc.abstractmethod
    def _take(self, op: ledger_ops.TakeLedger) -> Program[Entry]: ...

    @abc.abstractmethod
    def _write(self, op: ledger_ops.WriteLedger) -> Program[None]: ...

    @abc.abstractmethod
    def _commit(self, _: ledger_ops.CommitLedger) -> Program[None]: ...

    def _begin(self, _: ledger_ops.BeginLedger, /) -> Program[None]:
        yield from self.begins
        self._is_open = True

    def _rollback(self, _: ledger_ops.RollbackLedger) -> Program[None]:
        self._is_open = False
        yield from self.rolls_back

    def _prepared(self, _: ledger_ops.ListPrepared, /) -> Program[list[str]]:
        yield from ()
        return []

    def _taken(self, op: ledger_ops.TakeLedger) -> None:
        """Notes that this life has the ledger."""
        self._taken_by, self._is_open = op, False

    @property
    def _life(self) -> ledger_ops.TakeLedger:
        """The life that took it."""
        if self._taken_by is None:
            raise LookupError("a ledger is taken before it is written")
        return self._taken_by

    def _fence(self, written: list[Any]) -> None:
        """Raises Fenced if a write found no ledger of this life."""
        if not written:
            raise Fenced(f"{self._where}: {self._life.owner.fenced_text}")

    def _entry(self, owner: str, text: str, digest: str, op: ledger_ops.TakeLedger) -> Entry:
        """Returns an entry. LedgerRefused: it is another's, or not what was written."""
        wanted = owner_text(op)
        if owner != wanted:
            raise LedgerRefused(
                f"{self._where} is another client's: it is of {owner}, and this client is "
                f"{wanted}; each client of each repository has a ledger of its own"
            )
        entry = decode_entry(text, digest)
        if entry is None:
            raise LedgerRefused(
                f"{self._where} is corrupt: its content does not have its digest; put it aside, "
                "and start the client with a new one: the repository's session still has its last "
                "request"
            )
        return entry


def owner_text(op: ledger_ops.TakeLedger) -> str:
    """Returns whose a ledger is, as it says itself."""
    return msgspec.json.encode(op.owner).decode()


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
        """Opens the ledger's database. CannotConnect, EnvironmentFault, LedgerRefused."""

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
