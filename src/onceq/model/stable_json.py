"""JSON that is the same in every process: a request that is sent again is recognised by it.

Pure. A set has no order of its own, and Python's order differs from process to process.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import Any, Final

import msgspec
from msgspec import inspect

_SETS: Final = (inspect.SetType, inspect.FrozenSetType)
_FIELDS: Final = ("__struct_fields__", "__dataclass_fields__", "__attrs_attrs__")


def encode(kind: Any, value: Any) -> bytes:
    """Returns the JSON of a value of a type. If a set is inside, it and all dicts are sorted.

    Raises what msgspec raises.
    """
    body = msgspec.json.encode(value)
    try:
        may_hold_sets = _may_hold_sets(kind)
    except TypeError:  # it cannot be cached
        may_hold_sets = True
    if may_hold_sets and _holds_set(value):
        plain = msgspec.to_builtins(value, str_keys=True, order="deterministic")
        return msgspec.json.encode(plain)
    return body


def nodes(kind: Any) -> Iterator[inspect.Type]:
    """Yields a type and each type inside it, once. Raises what `type_info` raises."""
    seen: set[Any] = set()
    rest: list[Any] = [inspect.type_info(kind)]
    while rest:
        node = rest.pop()
        if isinstance(node, tuple):
            rest += node
        elif isinstance(node, inspect.Type | inspect.Field):
            known = getattr(node, "cls", id(node))
            if known not in seen:
                seen.add(known)
                rest += [getattr(node, name) for name in node.__struct_fields__]
                if isinstance(node, inspect.Type):
                    yield node


@functools.lru_cache(maxsize=1000)
def _may_hold_sets(kind: Any) -> bool:
    """Returns whether values of a type may hold sets; those of type Any may."""
    return any(isinstance(node, (*_SETS, inspect.AnyType)) for node in nodes(kind))


def _holds_set(value: Any) -> bool:
    """Returns whether a value holds a set somewhere; it has been encoded, so this ends."""
    rest: list[Any] = [value]
    while rest:
        one = rest.pop()
        if isinstance(one, set | frozenset):
            return True
        if isinstance(one, dict):
            rest += one.values()
        elif isinstance(one, list | tuple):
            rest += one
        else:
            rest += [getattr(one, name) for name in _field_names(type(one))]  # type: ignore[arg-type] # a class is hashable
    return False


@functools.lru_cache(maxsize=1000)
def _field_names(kind: type[Any]) -> tuple[str, ...]:
    """Returns the field names of a Struct, a dataclass or an attrs class; otherwise none."""
    for name in _FIELDS:
        if hasattr(kind, name):
            return tuple(getattr(one, "name", one) for one in getattr(kind, name))
    return ()
