"""In the process where Spark plans a stream: Java hung up, which is how it stops a query.

Spark stops a query by closing the connection of this process, which may be about to answer. The
process then ends with the error of its answer that nobody takes, maybe over the end of file that
it read: said on stderr, it would alarm an operator who has stopped a server. All else is said.
"""

from __future__ import annotations

import sys
from types import TracebackType

_HOOK = sys.excepthook
_NOBODY = (BrokenPipeError, ConnectionResetError)


def hung_up(error: BaseException) -> bool:
    """Says whether an answer found nobody, and nothing else had gone wrong before."""
    before: BaseException | None = error.__context__
    while isinstance(before, (EOFError, *_NOBODY)):
        before = before.__context__
    return isinstance(error, _NOBODY) and before is None


def _say(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    if not hung_up(error):
        _HOOK(kind, error, trace)


def say_no_hanging_up() -> None:
    """From now on this process ends without a word if Java has hung up."""
    sys.excepthook = _say
