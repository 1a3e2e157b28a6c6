"""A call of a client with a ledger is made whole, or nothing follows it but a connect.

Used by the ledger's Programs and its clerks. A cancellation, or Ctrl-C, closes a Program wherever
it is, and what it had begun on the ledger's connection is still open there.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from onceq import errors

if TYPE_CHECKING:
    from onceq.clerk.ledger.program import Kept
    from onceq.model import ops

T = TypeVar("T")


def whole(kept: Kept, call: ops.Program[T]) -> ops.Program[T]:
    """Runs a call of the clerk, after which, cut short, there is none but connect.

    What a cancellation or Ctrl-C leaves open on the ledger is committed by nobody: whatever would
    come next, with it, is refused. IllegalState.
    """
    set_working(kept)
    answer = yield from known_if_it_failed(kept, call)
    kept.is_working = False
    return answer


def beside(kept: Kept, call: ops.Program[T]) -> ops.Program[T]:
    """Runs a call that leaves the ledger alone, and that may be cut short. IllegalState."""
    _refuse_working(kept)
    return (yield from call)


def _refuse_working(kept: Kept) -> None:
    if kept.is_working or not kept.session.sure:
        raise errors.IllegalState(
            "a transaction is open, or the effect of the last call is unknown: end the block of "
            "the one, or connect() again"
        )


def set_working(kept: Kept) -> None:
    """Notes that a call is under way that must not be cut short. IllegalState."""
    _refuse_working(kept)
    kept.is_working = True


def known_if_it_failed(kept: Kept, steps: ops.Program[T]) -> ops.Program[T]:
    """Runs steps; a failure whose outcome is known leaves nothing under way."""
    try:
        return (yield from steps)
    except errors.OnceqError as error:
        kept.is_working = error.outcome is errors.Outcome.UNKNOWN
        raise
