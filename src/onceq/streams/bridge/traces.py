"""Where in a handler of a bridge an error was raised, for the log: its traceback without onceq's.

Local variables are never looked at. What an exception says is included: the handler chose it.
"""

from __future__ import annotations

import os
import traceback
from typing import Final

from onceq import errors

OURS: Final = os.path.join(os.path.dirname(errors.__file__), "")  # noqa: PTH118, PTH120 # as it stands in frames
HEAD_CHARS: Final = 4_000
TAIL_CHARS: Final = 12_000
"""How much is kept of the beginning and of the end of one that is too long."""
GAP: Final = "\n  ... {} characters are left out here ...\n"


def traceback_of(error: errors.OnceqError) -> str | None:
    """Return the traceback of what a handler raised; None: no frame of it is the handler's."""
    is_ours = isinstance(error, errors.HandlerFailed) and error.__cause__ is not None
    origin = error.__cause__ if is_ours and error.__cause__ is not None else error
    whole = traceback.TracebackException.from_exception(origin)
    if not _strip(whole):
        return None
    try:
        return _cut("".join(whole.format()))
    except Exception as second:  # noqa: BLE001 # the handler's boundary: an exception may do anything
        return f"the traceback of {type(origin).__name__} cannot be had: {type(second).__name__}"


def _strip(whole: traceback.TracebackException) -> bool:
    """Remove the frames of onceq from an exception and those behind it; return if any is left."""
    left = [whole]
    while left:
        one = left.pop()
        one.stack[:] = [frame for frame in one.stack if not frame.filename.startswith(OURS)]
        left += [other for other in (one.__cause__, one.__context__) if other is not None]
        left += one.exceptions or ()
    return bool(whole.stack)


def _cut(text: str) -> str:
    between = len(text) - HEAD_CHARS - TAIL_CHARS
    if between <= 0:
        return text
    return text[:HEAD_CHARS] + GAP.format(between) + text[-TAIL_CHARS:]
