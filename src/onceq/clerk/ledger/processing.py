"""The reply-processing loop of a client with a ledger, which notes what was processed.

Run by a clerk that has one. The checkpoint of a receive tells which reply a former life had begun,
and the policy says what becomes of it; unless the ledger has it as processed, which leaves no
doubt. Source: BHM90 figure 2; BN09 figure 4.6.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from onceq.clerk import processing
from onceq.clerk.ledger import program, recovery
from onceq.clerk.ledger.program import Kept
from onceq.clerk.ledger.whole import whole
from onceq.clerk.policy import Processed, ReplyPolicy
from onceq.clerk.session import Reply
from onceq.model import ops


def process(
    kept: Kept,
    handler: Callable[[Reply[Any]], object],
    policy: ReplyPolicy,
    timeout_s: float | None,
    *,
    waits: bool = True,
) -> ops.Program[list[Processed[Any]]]:
    """Settles the reply in doubt, if there is one, then processes each outstanding one.

    timeout_s, waits: see `onceq.clerk.processing.process`.
    """
    program.ready(kept)
    session = kept.session
    if session.unsettled is not None:  # `recover` counts it as not handed out, until it is noted
        recovery.hand_out(session, session.unsettled)
    free = partial(_note, kept)
    process = processing.process(session, handler, policy, timeout_s, free=free, waits=waits)
    return (yield from process)


def _note(kept: Kept, rid: str) -> ops.Program[None]:
    """Notes that a reply was processed, unless the handler did so in a transaction of its own."""
    if kept.entry.last_dequeued != rid:
        yield from whole(kept, program.finish(kept, rid))
