"""Where in a handler an execution failed: the traceback that is kept with the attempt.

Used by native and Spark servers, and where a user's module is loaded. Frames of onceq are left
out, and local variables are never looked at. An exception's own text is included: the handler
chose those words. The source files that the traceback names are read.
"""

from __future__ import annotations

import os
import traceback
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from types import CodeType, TracebackType
from typing import Final

from onceq import errors
from onceq.server import handlers

TRACEBACK_BYTES_MAX: Final = 16_384
HEAD_BYTES: Final = 4_096
"""How much is kept of the beginning of one that is too long; the rest is its end."""
GAP: Final = "\n  ... {} bytes are left out here ...\n"
GAP_BYTES: Final = 64
CAUSES_MAX: Final = 20
OURS: Final = os.path.join(os.path.dirname(errors.__file__), "")  # noqa: PTH118, PTH120 # as it stands in frames
CALLS: Final = (handlers.sync_call.__code__.co_filename, "call")
"""The file of the functions that call handlers, and their name."""


@dataclass(frozen=True, slots=True)
class Trace:
    """A traceback. is_handlers: the handler itself was running, not the decoding of a request."""

    text: str
    is_handlers: bool


def raised(error: BaseException) -> BaseException:
    """Returns the user's code's own exception, behind the error that the server was given."""
    found = error
    for _ in range(CAUSES_MAX):
        is_whole = not isinstance(found, errors.HandlerFailed) and any(_foreign(found))
        if found.__cause__ is None or is_whole:
            break
        found = found.__cause__
    return found


def traced(error: BaseException) -> Trace | None:
    """Returns the traceback of the user's exception; None if no user's code was running."""
    origin = raised(error)
    if not any(_foreign(origin)):
        return None
    return Trace(traceback_of(origin), _is_handlers(origin))


def traceback_of(error: BaseException) -> str:
    """Returns an error's traceback without frames of onceq, in a form that can be kept."""
    try:
        text = shown(error)
    except Exception as second:  # noqa: BLE001 # the server's handler boundary: an exception may do anything
        text = f"the traceback of {type(error).__name__} cannot be had: {type(second).__name__}"
    return cut(storable(text))


def shown(error: BaseException, hidden: tuple[str, ...] = ()) -> str:
    """Returns a traceback without frames of onceq, or of files whose names begin with `hidden`."""
    whole = traceback.TracebackException.from_exception(error)
    _strip(whole, (OURS, *hidden))
    return "".join(whole.format())


def cut(text: str) -> str:
    """Returns a traceback of at most TRACEBACK_BYTES_MAX bytes, with its middle left out."""
    whole = text.encode()
    if len(whole) <= TRACEBACK_BYTES_MAX:
        return text
    tail_bytes = TRACEBACK_BYTES_MAX - HEAD_BYTES - GAP_BYTES
    head = whole[:HEAD_BYTES].decode(errors="ignore")
    tail = whole[-tail_bytes:].decode(errors="ignore")
    head = head.rpartition("\n")[0] or head
    tail = tail.partition("\n")[2] or tail
    return head + GAP.format(len(whole) - len(head.encode()) - len(tail.encode())) + tail


def storable(text: str) -> str:
    """Returns text that PostgreSQL accepts: an exception may say anything, and must be recorded."""
    return text.replace("\0", "\\0").encode(errors="backslashreplace").decode()


def _codes(trace: TracebackType | None) -> Iterator[CodeType]:
    while trace is not None:
        yield trace.tb_frame.f_code
        trace = trace.tb_next


def _foreign(error: BaseException) -> Iterator[bool]:
    """Yields, for each frame that an error passed, whether it is not onceq's."""
    return (not code.co_filename.startswith(OURS) for code in _codes(error.__traceback__))


def _is_handlers(error: BaseException) -> bool:
    """Returns whether an error passed from a handler into the function that calls it.

    Errors while a request is decoded, or a reply encoded, pass through other functions there.
    """
    return any(
        (caller.co_filename, caller.co_name) == CALLS and called.co_filename != CALLS[0]
        for caller, called in pairwise(_codes(error.__traceback__))
    )


def _strip(whole: traceback.TracebackException, hidden: tuple[str, ...]) -> None:
    """Removes the frames of these files from an exception and from those behind it."""
    left = [whole]
    while left:
        one = left.pop()
        one.stack[:] = [frame for frame in one.stack if not frame.filename.startswith(hidden)]
        left += [other for other in (one.__cause__, one.__context__) if other is not None]
        left += one.exceptions or ()
