"""Ops on a client's ledger. Values like those in `ops`; answered by the ledger, not the repository.

A ledger answers each with a Program of what it rests on: `Statement` on a database of its own, or
Ops of the repository. So a ledger, too, is written once, for sync and async. Source: BN09 4.3.
"""

from __future__ import annotations

from typing import Any

from onceq.model.ledger import Entry, Owner
from onceq.model.ops import Identity, Op


class Statement(Op[list[tuple[Any, ...]]]):
    """SQL on the ledger's database; returns its rows.

    commits: a lost answer leaves its effect unknown. joins: it belongs to the transaction that
    BeginLedger began; IllegalState if someone else ended that.
    """

    text: str
    parameters: tuple[Any, ...] = ()
    commits: bool = False
    joins: bool = False


class TakeLedger(Op[Entry], changes="a life begins on a client's ledger, and fences the former"):
    """Begins a life on a ledger, which then refuses writes of the former life, and reads it.

    life: a name that no other life has. who: in the repository. LedgerRefused
    (torn, corrupt, another's), DeadlineExceeded (a former life holds it: ask again).
    """

    owner: Owner
    who: Identity
    life: str


class WriteLedger(Op[None], changes="a ledger's entry is replaced"):
    """Replaces what the ledger holds; durable at once, or with the transaction. Fenced."""

    entry: Entry


class BeginLedger(Op[None], changes="a transaction begins where the ledger is"):
    """Begins a transaction on the ledger; the client's own work joins it."""


class CommitLedger(Op[None], changes="it is committed"):
    """Commits that transaction. InDoubt."""


class RollbackLedger(Op[None], changes="it is rolled back"):
    """Rolls that transaction back; succeeds if there is nothing to roll back."""


class PrepareLedger(Op[None], changes="it is prepared: what becomes of it hangs on the repository"):
    """Prepares that transaction under this name: from now on the repository decides. InDoubt."""

    gid: str


class EndPrepared(Op[None], changes="what was prepared ends as the repository has decided"):
    """Ends a prepared transaction as the repository has decided. InDoubt."""

    gid: str
    commit: bool


class ListPrepared(Op[list[str]]):
    """The names of prepared transactions with this prefix; none if nothing is ever prepared."""

    prefix: str = ""


LEDGER_OPS = (
    TakeLedger,
    WriteLedger,
    BeginLedger,
    CommitLedger,
    RollbackLedger,
    PrepareLedger,
    EndPrepared,
    ListPrepared,
)
