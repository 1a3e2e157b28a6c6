"""A ledger in PostgreSQL: the repository's own database, or another by two-phase commit.

In the repository's database, one transaction holds the ledger, the send and the client's work.
In another database, that one prepares, and the repository, which never prepares, decides by its own
commit. Source: BN09 4.3.
"""

from __future__ import annotations

from typing import Any, ClassVar, Final

from onceq.clerk.ledger.kind import Answers, AsyncExecutor, Executor, Ledger, owner_text
from onceq.engine.connect import prepared
from onceq.engine.connect.async_connection import AsyncLink
from onceq.engine.connect.async_ledger import AsyncConnection, AsyncLinkExecutor, AsyncOwnExecutor
from onceq.engine.connect.connection import Link
from onceq.engine.connect.ledger import Connection, LinkExecutor, OwnExecutor
from onceq.errors import DeadlineExceeded, LedgerRefused, StatementRefused
from onceq.model import ledger_ops, ops
from onceq.model.ledger import Entry, Joint, encode_entry
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


class PostgresLedger(Ledger[Connection, AsyncConnection]):
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
        return LinkExecutor(link) if self.url is None else OwnExecutor.opened(self.url)

    async def open_async(self, link: AsyncLink) -> AsyncExecutor:
        """See Ledger.open."""
        if self.url is None:
            return AsyncLinkExecutor(link)
        return await AsyncOwnExecutor.opened(self.url)

    def in_doubt(self) -> list[prepared.InDoubtTransaction]:
        """Returns the transactions still prepared in another database, the oldest first.

        To end one, connect its client's clerk once: that asks the repository.
        """
        return [] if self.url is None else prepared.in_doubt(self.url)


class TogetherAnswers(Answers):
    """Answers for a ledger in PostgreSQL that is part of the repository's transaction."""

    commits: ClassVar[Op[Any]] = ops.Commit()

    def __init__(self) -> None:
        super().__init__(WHERE)
        self._table[ledger_ops.PrepareLedger] = self._prepare
        self._table[ledger_ops.EndPrepared] = self._end_prepared

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
        try:
            owner, text, digest = yield from self._row(op)
        except DeadlineExceeded:
            yield from self.rolls_back
            raise
        entry = self._entry(owner, text, digest, op)
        self._taken(op)
        return entry

    def _row(self, op: ledger_ops.TakeLedger) -> Program[tuple[str, str, str]]:
        entry = encode_entry(Entry())
        yield from self.begins
        yield from ledger_ops.Statement(text=LOCK_TIMEOUT)
        (row,) = yield from ledger_ops.Statement(
            text=TAKE,
            parameters=(op.owner.digest, op.who.registrant_id, owner_text(op), op.life, *entry),
        )
        yield from self.commits
        return (row[0], row[1], row[2])

    def _write(self, op: ledger_ops.WriteLedger) -> Program[None]:
        life = self._life
        written = yield from ledger_ops.Statement(
            text=WRITE,
            parameters=(*encode_entry(op.entry), life.owner.digest, life.life),
            commits=not self._is_open,
            joins=self._is_open,
        )
        self._fence(written)

    def _commit(self, _: ledger_ops.CommitLedger) -> Program[None]:
        self._is_open = False
        yield from ledger_ops.Statement(text="select 1", joins=True)
        yield from self.commits

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

    begins = ledger_ops.Statement(text="begin isolation level read committed")
    commits = ledger_ops.Statement(text="commit", commits=True)
    rolls_back = ledger_ops.Statement(text="rollback")

    def _check(self) -> Program[None]:
        ((most,),) = yield from ledger_ops.Statement(
            text="select current_setting('max_prepared_transactions')::integer"
        )
        if most == 0:
            raise LedgerRefused(
                "the ledger's database does not take prepared transactions: set its "
                "max_prepared_transactions to at least the number of its clients, and restart it"
            )
