"""Which types the requests and replies of a queue may have: checked when the queue is made.

Pure. `bytes`, and whatever JSON can hold and be read back as: docs/types.md has the table.
Types that would fail at each send are refused here. A type that names another one which is not
available yet is passed over.
"""

from __future__ import annotations

from typing import Any, Final

from msgspec import inspect

from onceq.errors import InvalidValue
from onceq.model import names, stable_json

_READ: Final = (str, int, float, bool, list, dict, type(None))
"""What JSON is read as if a type asks for nothing in particular."""
_USE: Final = "use a msgspec.Struct, a dataclass, a TypedDict, a NamedTuple or a class of attrs"


def check_value_type(what: str, kind: Any) -> None:
    """Checks the type of requests or replies. Raises InvalidValue, which says what to use."""
    try:
        nodes = [*stable_json.nodes(kind)]
    except NameError:
        return
    except TypeError as error:
        given = names.shown(kind) if isinstance(kind, type) else repr(kind)[:80]
        raise InvalidValue(
            f"{what}: {given} is no type that JSON can be read into ({error}): give the class or "
            f"type itself; {_USE}, or bytes"
        ) from None
    for node in nodes:
        if isinstance(node, inspect.CustomType) and not _takes_json(node.cls):
            _refuse(what, node.cls)


def _takes_json(kind: type[Any]) -> bool:
    """Returns whether something that JSON is read as is of a class, such as object or Hashable."""
    try:
        return any(issubclass(one, kind) for one in _READ)
    except TypeError:  # a protocol that isinstance cannot check
        return False


def _refuse(what: str, kind: type[Any]) -> None:
    if _is_pydantic(kind):
        raise InvalidValue(
            f"{what}: {kind.__qualname__} is a pydantic model, which is not encoded here: {_USE}, "
            f"and make the model of it where you need one"
        )
    raise InvalidValue(
        f"{what}: the class {kind.__qualname__} does not say which fields it has: {_USE}"
    )


def _is_pydantic(kind: type[Any]) -> bool:
    """Returns whether it is a model of pydantic 1 or 2; pydantic need not be installed."""
    return any(
        one.__name__ == "BaseModel" and one.__module__.partition(".")[0] == "pydantic"
        for one in kind.__mro__
    )
