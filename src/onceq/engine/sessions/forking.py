"""A forked child lets go of its parent's connections: it must neither use nor keep them.

Used by both drivers for every session of ours. If a child held the socket too, it would outlive
the parent, and so would the session, its locks and its transaction; a server's death must end them.
"""

from __future__ import annotations

import os
import weakref
from typing import TYPE_CHECKING, Any

from onceq.errors import IllegalState

if TYPE_CHECKING:
    import psycopg

_ours: weakref.WeakSet[psycopg.BaseConnection[Any]] = weakref.WeakSet()
_left: weakref.WeakSet[psycopg.BaseConnection[Any]] = weakref.WeakSet()


def keep(connection: psycopg.BaseConnection[Any]) -> None:
    """Notes a session of this process."""
    _ours.add(connection)


def is_left(connection: psycopg.BaseConnection[Any]) -> bool:
    """Returns whether this session belongs to the process that this one was forked from."""
    return connection in _left


def refuse_left(connection: psycopg.BaseConnection[Any]) -> None:
    """Raises IllegalState for a session of the parent, which keeps it: nothing happened."""
    if _left and connection in _left:
        raise IllegalState(
            "this connection is of the process that forked this one, and stays with it: "
            "connect() again, or make what needs one after the fork"
        )


def _leave() -> None:
    """In a child: replaces each socket by nothing, so that its number stays taken."""
    nothing = os.open(os.devnull, os.O_RDWR)
    try:
        for connection in list(_ours):
            if not connection.closed:
                os.dup2(nothing, connection.fileno(), inheritable=False)
                _left.add(connection)
    finally:
        os.close(nothing)
    _ours.clear()


os.register_at_fork(after_in_child=_leave)
