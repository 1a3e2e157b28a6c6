"""A child made by fork lets go of its parent's connections: it must neither use them nor keep them.

Used by both drivers for every session of ours. A socket that a child holds too outlives its parent,
and with it the session, its locks and its open transaction, which the death of a server must end.
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
    """Takes note of a session of this process."""
    _ours.add(connection)


def is_left(connection: psycopg.BaseConnection[Any]) -> bool:
    """Returns whether this session is the parent's, of which this process is a child by fork."""
    return connection in _left


def refuse_left(connection: psycopg.BaseConnection[Any]) -> None:
    """Raises IllegalState for a session of the parent, which goes on: nothing happened."""
    if _left and connection in _left:
        raise IllegalState(
            "this connection is of the process that forked this one, and stays with it: "
            "connect() again, or make what needs one after the fork"
        )


def _leave() -> None:
    """In a child: puts nothing in the place of each socket, so that its number stays taken."""
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
