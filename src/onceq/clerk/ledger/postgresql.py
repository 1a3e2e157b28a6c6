"""A ledger in PostgreSQL: the repository's own database, or another by two-phase commit.

In the repository's database, one transaction holds the ledger, the send and the client's work.
In another database, that one prepares, and the repository, which never prepares, decides by its own
commit. Source: BN09 4.3.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import msgspec

from onceq.clerk.ledger.kind import Ledger, read_entry, refuse_other_owner
from onceq.engine.connect import ledger as engine
from onceq.errors import DeadlineExceeded, Fenced, LedgerRefused, StatementRefused
from onceq.model import ledger_ops, ops
from onceq.model.ledger import Entry, Joint, encode_entry

if TYPE_CHECKING:
    from collections.abc import Callable

    from onceq.clerk.ledger.kind import AsyncExecutor, Executor
    from onceq.engine.connect.async_connection import AsyncLink
    from onceq.engine.connect.connection import Link
    from onceq.model.ops import Op, Program

TABLE: Final = (
    "create table if not exists onceq_ledger (client text primary key, registrant_id integer not"
    " null, owner text not null, life text not null, entry text not null, digest text not null)"
)
LOCK_TIMEOUT: Final = "set local lock_timeout = '200ms'"
TAKE: Final = (
    "insert into onceq_ledger as l (client, registrant_id, owner, life, entry, digest)"
    " values (%s, %s, %s, %s, %s, %s) on conflict (client) do update set life = excluded.life,"
    " registrant_id = excluded.registrant_id returning l.owner, l.entry, l.digest"
)
WRITE: Final = (
    "update onceq_ledger set entry = %s, digest = %s where client = %s and life = %s returning 1"
)
PREPARED: Final = (
    "select gid from pg_prepared_xacts where database = current_database() and gid ^@ %s"
    " order by prepared"
)
WHERE: Final = "the ledger table onceq_ledger"
_NO_SUCH_GID: Final = "42704"


class PostgresLedger(Ledger[engine.Connection, engine.AsyncConnection]):
    """A ledger in the table `onceq_ledger` of a PostgreSQL database.

    url: None is the repository's own database: `transaction` gives the connection on which
    the client's work, the send and the ledger are one transaction. Another database, given as for
    `onceq.open`, is joined by two-phase commit, and needs max_prepared_transactions above
    0. What a dead life left prepared there ends when its client connects again, as the
    repository has decided. The table is made, in the first schema of the search path, if it does
    not exist.
    """

    def __init__(self, url: str | None = None) -> None:
        self.url = url

    @property
    def joint(self) -> Joint:
        """See Ledger.joint."""
        return Joint.TOGETHER if self.url is None else Joint.TWO_PHASE

    def answers(self) -> TogetherAnswers:
        """See Ledger.answers."""
        return TogetherAnswers() if self.url is None else TwoPhaseAnswers()

    def open(self, link: Link) -> Executor:
        """See Ledger.open."""
        return engine.LinkExecutor(link) if self.url is None else engine.OwnExecutor(self.url)

    async def open_async(self, link: AsyncLink) -> AsyncExecutor:
        """See Ledger.open."""
        if self.url is None:
            return engine.AsyncLinkExecutor(link)
        return await engine.AsyncOwnExecutor.opened(self.url)

    def in_doubt(self) -> list[engine.InDoubtTransaction]:
        """Returns the transactions still prepared in another database, the oldest first.

        To end one, connect its client's clerk once: that asks the repository.
        """
        return [] if self.url is None else engine.in_doubt(self.url)


class TogetherAnswers:
    """Answers for a ledger in PostgreSQL that is part of the repository's transaction."""

    def __init__(self) -> None:
        self._client = ""
        self._life = ""
        self._fenced_text = ""
        self._is_open = False
        self._table: dict[type[Op[Any]], Callable[[Any], Program[Any]]] = {
            ledger_ops.TakeLedger: self._take,
            ledger_ops.WriteLedger: self._write,
            ledger_ops.BeginLedger: self._begin,
            ledger_ops.CommitLedger: self._commit,
            ledger_ops.RollbackLedger: self._rollback,
            ledger_ops.PrepareLedger: self._prepare,
            ledger_ops.EndPrepared: self._end_prepared,
            ledger_ops.ListPrepared: self._prepared,
        }

    def answer(self, op: Op[Any]) -> Program[Any]:
        """See Answers.answer."""
        return self._table[type(op)](op)

    def _begun(self) -> Op[Any]:
        return ops.BeginWork()

    def _committed(self) -> Op[Any]:
        return ops.Commit()

    def _rolled_back(self) -> Op[Any]:
        return ops.Rollback()

    def _check(self) -> Program[None]:
        """Checks that the database can do what the ledger needs."""
        yield from ()

    def _take(self, op: ledger_ops.TakeLedger) -> Program[Entry]:
        yield from self._check()
        ((there,),) = yield from ledger_ops.Statement(
            text="select to_regclass('onceq_ledger') is not null"
        )
        if not there:
            yield from ledger_ops.Statement(text=TABLE, commits=True)
        owner = msgspec.json.encode(op.owner).decode()
        try:
            found, text, digest = yield from self._taken(op, owner)
        except DeadlineExceeded:
            yield from self._rolled_back()
            raise
        refuse_other_owner(WHERE, found, owner)
        entry = read_entry(WHERE, text, digest)
        self._client, self._life, self._is_open = op.owner.digest, op.life, False
        self._fenced_text = op.owner.fenced_text
        return entry

    def _taken(self, op: ledger_ops.TakeLedger, owner: str) -> Program[tuple[str, str, str]]:
        entry = encode_entry(Entry())
        yield from self._begun()
        yield from ledger_ops.Statement(text=LOCK_TIMEOUT)
        (row,) = yield from ledger_ops.Statement(
            text=TAKE, parameters=(op.owner.digest, op.who.registrant_id, owner, op.life, *entry)
        )
        yield from self._committed()
        return (row[0], row[1], row[2])

    def _write(self, op: ledger_ops.WriteLedger) -> Program[None]:
        written = yield from ledger_ops.Statement(
            text=WRITE,
            parameters=(*encode_entry(op.entry), self._client, self._life),
            commits=not self._is_open,
            joins=self._is_open,
        )
        if not written:
            raise Fenced(f"{WHERE}: {self._fenced_text}")

    def _begin(self, _: ledger_ops.BeginLedger) -> Program[None]:
        yield from self._begun()
        self._is_open = True

    def _commit(self, _: ledger_ops.CommitLedger) -> Program[None]:
        self._is_open = False
        yield from ledger_ops.Statement(text="select 1", joins=True)
        yield from self._committed()

    def _rollback(self, _: ledger_ops.RollbackLedger) -> Program[None]:
        self._is_open = False
        yield from self._rolled_back()

    def _prepare(self, op: ledger_ops.PrepareLedger) -> Program[None]:
        self._is_open = False
        text = f"prepare transaction '{op.gid}'"
        yield from ledger_ops.Statement(text=text, commits=True, joins=True)

    def _end_prepared(self, op: ledger_ops.EndPrepared) -> Program[None]:
        text = f"{'commit' if op.commit else 'rollback'} prepared '{op.gid}'"
        try:
            yield from ledger_ops.Statement(text=text, commits=True)
        except StatementRefused as error:
            if error.sqlstate != _NO_SUCH_GID:  # otherwise a newer life ended it, as decided
                raise

    def _prepared(self, op: ledger_ops.ListPrepared) -> Program[list[str]]:
        rows = yield from ledger_ops.Statement(text=PREPARED, parameters=(op.prefix,))
        return [gid for (gid,) in rows]


class TwoPhaseAnswers(TogetherAnswers):
    """Answers for a ledger in a database of its own."""

    def _begun(self) -> Op[Any]:
        return ledger_ops.Statement(text="begin isolation level read committed")

    def _committed(self) -> Op[Any]:
        return ledger_ops.Statement(text="commit", commits=True)

    def _rolled_back(self) -> Op[Any]:
        return ledger_ops.Statement(text="rollback")

    def _check(self) -> Program[None]:
        ((most,),) = yield from ledger_ops.Statement(
            text="select current_setting('max_prepared_transactions')::integer"
        )
        if most == 0:
            raise LedgerRefused(
                "the ledger's database does not take prepared transactions: set its "
                "max_prepared_transactions to at least the number of its clients, and restart it"
            )
