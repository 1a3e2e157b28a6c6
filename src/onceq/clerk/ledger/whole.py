"""A call of a client with a ledger that is cut short: nothing but a connect may follow it.

Used by the ledger's Programs and its clerks. A cancellation, or Ctrl-C, closes a Program wherever
it is, and whatever it began on the ledger's connection is then still open.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from onceq import errors
from onceq.model import ops

if TYPE_CHECKING:
    from onceq.clerk.ledger.program import Kept

T = TypeVar("T")


def refuse_working(kept: Kept) -> None:
    """Refuses any call that would join what is open, or what nobody knows. IllegalState."""
    if kept.is_working or not kept.session.sure:
        raise errors.IllegalState(
            "a transaction is open, or the effect of the last call is unknown: end the block of "
            "the one, or connect() again"
        )


def whole(kept: Kept, call: ops.Program[T]) -> ops.Program[T]:
    """Runs a call of the clerk; if it is cut short, only connect may follow.

    Nobody commits what a cancellation or Ctrl-C leaves open on the ledger: any call that could
    commit it is refused.
    """
    kept.is_working = True
    answer = yield from known_if_it_failed(kept, call)
    kept.is_working = False
    return answer


def known_if_it_failed(kept: Kept, steps: ops.Program[T]) -> ops.Program[T]:
    """Runs steps; a failure whose outcome is known leaves nothing under way."""
    try:
        return (yield from steps)
    except errors.OnceqError as error:
        kept.is_working = error.outcome is errors.Outcome.UNKNOWN
        raise
