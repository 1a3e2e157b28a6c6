"""Hot rows: few accounts to which many orders add, from several servers and batches at once.

Used by the servers, the database of a run and its judgement. Which account an order adds to follows
from its eid, so that the sum of what has taken effect can be told from the ledger. Each row that a
transaction holds bars all others that come to it, in any order: they wait, and deadlock.
"""

from __future__ import annotations

from typing import Final

ACCOUNTS: Final = 40
EVERY: Final = 4
"""One order in this many adds to an account."""
_MAKE: Final = (
    "create table {r}.accounts (account integer primary key, n bigint not null);"
    " insert into {r}.accounts select generate_series(0, {last}), 0"
)
_ADD: Final = "update {r}.accounts set n = n + 1 where account = %s"
WRONG: Final = """
    select format('G2: account %s is at %s, and %s orders added to it', a.account, a.n,
            count(e.eid))
        from {r}.accounts a left join {r}.effects e
            on e.pid > 0 and ('x' || right(e.eid, 4))::bit(16)::integer % 4 = 0
            and ('x' || right(e.eid, 8))::bit(32)::bigint / 4 % 40 = a.account
        group by a.account, a.n having a.n <> count(e.eid) limit 3
"""
"""Asked of one snapshot. Spark's effects have no pid."""


def adds(eid: str) -> bool:
    """Returns whether this order adds to an account."""
    return int(eid[-4:], 16) % EVERY == 0


def account(eid: str) -> int:
    """Returns to which."""
    return int(eid[-8:], 16) // EVERY % ACCOUNTS


def addition(repository: str) -> bytes:
    """Returns the statement of a handler."""
    return _ADD.format(r=repository).encode()


def making(repository: str) -> str:
    """Returns the statements that make the accounts."""
    return _MAKE.format(r=repository, last=ACCOUNTS - 1)
