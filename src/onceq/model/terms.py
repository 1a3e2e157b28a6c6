"""On what terms something is dequeued, in place of its queue's (Q4). Pure."""

from __future__ import annotations

from typing import Final, TypedDict

from onceq.errors import InvalidValue
from onceq.model import names

ABORT_LIMIT: Final = (1, 1000)
"""The least and the greatest number of charged aborts at which an element fails."""


class Terms(TypedDict, total=False):
    """On what terms something is dequeued, as keywords, in place of its queue's (Q4).

    abort_limit: the number of charged aborts at which it fails, 1 to 1000. error_queue: where it is
    held then; one that does not exist is made. None: as the queue says.
    """

    abort_limit: int | None
    error_queue: str | None


def check_terms(queue: str, abort_limit: object, error_queue: object) -> None:
    """Raises InvalidName or InvalidValue unless a queue may be dequeued on these terms (Q4).

    None: as the queue says.
    """
    if abort_limit is not None:
        names.check_range("abort_limit", abort_limit, *ABORT_LIMIT)
    if error_queue is not None and names.check_queue(error_queue) == queue:
        raise InvalidValue(f"error_queue: {queue!r} is the queue itself; name another one")
