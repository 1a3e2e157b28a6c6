"""What is still prepared in the database of a client's ledger, and waits to be decided."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from datetime import datetime

from onceq.engine.connect.ledger import OwnExecutor
from onceq.engine.sessions.faults import translated

IN_DOUBT = (
    "select p.gid, p.prepared, l.owner from pg_prepared_xacts p left join onceq_ledger l"
    " on split_part(p.gid, ':', 3) = l.registrant_id::text"
    " and position(split_part(p.gid, ':', 2) in replace(l.owner, '-', '')) > 0"
    " where p.database = current_database() and p.gid ^@ 'onceq:' order by p.prepared"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class InDoubtTransaction:
    """A transaction prepared in a ledger's database whose client has died or is waiting.

    owner: the client and its repository, as JSON; None if it belongs to no ledger here.
    """

    gid: str
    prepared_at: datetime
    owner: str | None


def in_doubt(url: str) -> list[InDoubtTransaction]:
    """Returns the transactions prepared in a ledger's database, the oldest first. CannotConnect."""
    with contextlib.closing(OwnExecutor.opened(url)) as own, translated():
        if own.connection.execute("select to_regclass('onceq_ledger')").fetchone() == (None,):
            return []
        rows = own.connection.execute(IN_DOUBT).fetchall()
    return [InDoubtTransaction(gid=row[0], prepared_at=row[1], owner=row[2]) for row in rows]
