"""The connection that a handler is given: inside a transaction that it may not end.

Used by servers, and by the bridge that receives messages of a stream. Savepoints are fine. A COMMIT
that a handler sends as SQL text is found at the end of its transaction.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from onceq.errors import HandlerMisuse

if TYPE_CHECKING:
    import psycopg

REFUSED = frozenset(
    {
        "autocommit",
        "cancel",
        "cancel_safe",
        "close",
        "commit",
        "deferrable",
        "isolation_level",
        "read_only",
        "rollback",
        "set_autocommit",
        "set_deferrable",
        "set_isolation_level",
        "set_read_only",
        "tpc_begin",
        "tpc_commit",
        "tpc_prepare",
        "tpc_rollback",
    }
)
"""What a handler may not do to its connection: only onceq commits."""


class HandlerConnection:
    """A connection during one execution, without the means to end its transaction."""

    __slots__ = ("_inner",)

    def __init__(self, inner: psycopg.BaseConnection[Any]) -> None:
        object.__setattr__(self, "_inner", inner)

    def __getattr__(self, name: str) -> Any:
        _refuse(name)
        inner = object.__getattribute__(self, "_inner")
        if inner is None:
            raise HandlerMisuse("this execution is over: its connection cannot be used any more")
        return getattr(inner, name)

    def __setattr__(self, name: str, value: object) -> None:
        _refuse(name)
        raise HandlerMisuse(f"connection.{name} cannot be set inside a handler")

    def expire(self) -> None:
        """Ends the use of this object; called when the handler has returned."""
        object.__setattr__(self, "_inner", None)


def _refuse(name: str) -> None:
    if name in REFUSED:
        raise HandlerMisuse(
            f"a handler cannot use connection.{name}: its transaction commits together with the "
            "reply when it returns, and rolls back when it raises; use connection.transaction() "
            "for a savepoint"
        )


def said_by(error: BaseException) -> str:
    """Returns the text of an error, or a note that it cannot be had."""
    try:
        return str(error)
    except Exception as second:  # noqa: BLE001 # the handler's boundary: its __str__ raised
        return f"its text cannot be had: {type(second).__name__}"
