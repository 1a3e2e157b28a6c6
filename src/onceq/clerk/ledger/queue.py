"""A ledger in a queue of the repository: the client keeps nothing ("state queue", BN09 4.3).

The entry is one element, replaced in the transaction of the send, or of the work done with the
reply, or in one of its own. The client's epoch fences its writes.
"""

from __future__ import annotations

from uuid import UUID

import msgspec

from onceq.clerk.ledger.kind import Answers, Ledger, owner_text
from onceq.engine.connect.async_connection import AsyncLink
from onceq.engine.connect.async_ledger import AsyncConnection, AsyncLinkExecutor
from onceq.engine.connect.connection import Link
from onceq.engine.connect.ledger import Connection, LinkExecutor
from onceq.errors import OnceqError
from onceq.model import ledger_ops, names, ops
from onceq.model.code_pages import JSON
from onceq.model.ledger import Entry, Joint, encode_entry
from onceq.model.ops import Program
from onceq.model.queue import QueueSettings


class _Element(msgspec.Struct, kw_only=True):
    """The body of the element."""

    owner: str
    entry: str
    digest: str


class QueueLedger(Ledger[Connection, AsyncConnection]):
    """A ledger in a queue of the repository, made if it does not exist; no server serves it.

    name: of the queue, which many clients may share. Each write leaves a row in history.
    """

    def __init__(self, name: str = "ledgers") -> None:
        self.name = names.check_queue(name)

    @property
    def joint(self) -> Joint:
        """See Ledger.joint."""
        return Joint.TOGETHER

    def answers(self) -> QueueAnswers:
        """See Ledger.answers."""
        return QueueAnswers(self.name)

    def open(self, link: Link) -> LinkExecutor:
        """See Ledger.open."""
        return LinkExecutor(link)

    async def open_async(self, link: AsyncLink) -> AsyncLinkExecutor:
        """See Ledger.open."""
        return AsyncLinkExecutor(link)


class QueueAnswers(Answers):
    """Answers for a ledger in a queue. eid: of the element that holds the entry."""

    def __init__(self, queue: str) -> None:
        super().__init__(f"the ledger in queue {queue!r}")
        self._queue = queue
        self._eid: UUID | None = None
        self._pending: UUID | None = None

    def _take(self, op: ledger_ops.TakeLedger) -> Program[Entry]:
        yield from ops.CreateQueue(queue=self._queue, settings=QueueSettings())
        self._taken(op)
        self._eid = None
        places = yield from ops.LookUp(
            rid=op.owner.digest, queue=self._queue, state="queued", limit=1
        )
        if not places:
            yield from self._write(ledger_ops.WriteLedger(entry=Entry()))
            return Entry()
        self._eid = places[0].eid
        element = yield from ops.ReadElement(eid=places[0].eid)
        found = msgspec.json.decode(b"" if element is None else element.body, type=_Element)
        return self._entry(found.owner, found.entry, found.digest, op)

    def _write(self, op: ledger_ops.WriteLedger) -> Program[None]:
        if self._is_open:
            yield from ledger_ops.Statement(text="select 1", joins=True)
            self._pending = yield from self._replace(op.entry)
            return
        yield from ops.BeginWork()
        try:
            written = yield from self._replace(op.entry)
        except OnceqError:
            yield from ops.Rollback()
            raise
        yield from ops.Commit()
        self._eid = written

    def _replace(self, entry: Entry) -> Program[UUID]:
        """Replaces the element. Fenced: a newer life has connected, and this waited for it."""
        life = self._life
        yield from ops.Outstanding(who=life.who)
        if self._eid is not None:
            yield from ops.Dequeue(queue=self._queue, eid=self._eid)
        text, digest = encode_entry(entry)
        body = _Element(owner=owner_text(life), entry=text, digest=digest)
        return (
            yield from ops.Enqueue(
                queue=self._queue,
                body=msgspec.json.encode(body),
                rid=life.owner.digest,
                content_type=JSON,
                own_transaction=False,
            )
        )

    def _begin(self, op: ledger_ops.BeginLedger) -> Program[None]:
        yield from super()._begin(op)
        self._pending = None

    def _commit(self, _: ledger_ops.CommitLedger) -> Program[None]:
        self._is_open = False
        yield from ops.Commit()
        self._eid = self._pending or self._eid
