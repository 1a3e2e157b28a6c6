"""What a client with a ledger is refused, and what it does instead; and what needs a ledger.

Used by AsyncClerk and Clerk. When something is refused here, nothing happened.
"""

from __future__ import annotations

from typing import Final

from onceq.clerk.ledger.program import Kept
from onceq.errors import IllegalState

ONE_AT_A_TIME: Final = "there is one request at a time: send() it, and receive() its reply"

INSTEAD: Final = {
    "send_one_way": "the ledger notes what became of each send: send() waits for it",
    "send_many": ONE_AT_A_TIME,
    "stream": ONE_AT_A_TIME,
    "acknowledge": "done(reply) frees a reply, and notes that it was processed",
    "receive(connection=...)": "receive() it without, and say done(reply) in a block of "
    "transaction(), with the client's own SQL on the block's connection",
    "recover(rid)": "the ledger knows the last request: recover() without rid, acknowledged, by",
}
"""For each call what the error says is to be done."""


def refuse_with_ledger(kept: Kept | None, call: str) -> None:
    """Refuses a call of the table. IllegalState, if the client has a ledger."""
    if kept is not None:
        raise IllegalState(f"{call} is not for a client with a ledger: {INSTEAD[call]}")


def no_ledger(call: str) -> IllegalState:
    """Returns the error for a call that only a client with a ledger can make."""
    return IllegalState(
        f"{call} needs a ledger, and this client has none: give the clerk one, "
        "clerk(name, queue, ledger=onceq.SqliteLedger(path))"
    )


def needs_ledger(kept: Kept | None, call: str) -> Kept:
    """Returns what is known of the client's ledger. IllegalState: it has none."""
    if kept is None:
        raise no_ledger(call)
    return kept
