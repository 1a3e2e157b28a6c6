"""In the process where Spark plans a stream: Java hung up, which is how it stops a query.

Spark stops a query by closing the connection of this process, which may be about to answer. The
process then ends with the error of its answer that nobody takes, below the end of file that it
read: said on stderr, it would alarm an operator who has stopped a server. All else is said.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from types import TracebackType

_HOOK = sys.excepthook


def hung_up(error: BaseException) -> bool:
    """Says whether an answer found nobody, after the end of what was asked."""
    first = error
    while isinstance(first, (BrokenPipeError, ConnectionResetError)) and first.__context__:
        first = first.__context__
    return first is not error and isinstance(first, EOFError)


def _say(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    if not hung_up(error):
        _HOOK(kind, error, trace)


def say_no_hanging_up() -> None:
    """From now on this process ends without a word if Java has hung up."""
    sys.excepthook = _say
