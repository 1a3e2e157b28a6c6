"""The words that the checker compares, as the texts that rows and events have.

Private to the checker, which reads millions of them: a constant is found much sooner than a member
of an enum is.
"""

from __future__ import annotations

from typing import Final

from onceq.model.element import TOOK_EFFECT, ElementState, KillAnswer, RequestOutcome, Role

DONE: Final = RequestOutcome.DONE.value
FAILED: Final = RequestOutcome.FAILED.value
CANCELLED: Final = RequestOutcome.CANCELLED.value
FAILED_OR_EXPIRED: Final = frozenset({FAILED, RequestOutcome.EXPIRED.value})
PROCESSED: Final = frozenset(one.value for one in TOOK_EFFECT)
"""Outcomes."""

REQUEST: Final = Role.REQUEST.value
DATAGRAM: Final = Role.DATAGRAM.value
REPLY: Final = Role.REPLY.value
IN_ERROR_QUEUE: Final = Role.FAILED.value
"""Roles."""

FINISHED: Final = ElementState.FINISHED.value
HELD: Final = ElementState.HELD.value
"""States."""

KILLED: Final = KillAnswer.KILLED.value
NOT_FOUND: Final = KillAnswer.NOT_FOUND.value
"""Answers to kills."""
