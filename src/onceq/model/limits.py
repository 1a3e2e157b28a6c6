"""The limits of declared values, so that every server accepts the same: native or Spark.

Pure. A whole number has 64 bits, sign included; a Decimal is finite, with at most 20 digits before
the point and 18 after it; an instant is in the years 1 to 9999 of UTC. JSON can hold more than
that, and so can Python, but no column of a Spark table can. Values of no declared type
(Any) are not checked.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any, Final, TypeAlias

from msgspec import UNSET
from msgspec import inspect as mi

DECIMAL_DIGITS: Final = 38
DECIMAL_PLACES: Final = 18
_INT_MIN: Final = -(2**63)
_INT_MAX: Final = 2**63 - 1

Check: TypeAlias = Callable[[Any], "tuple[str, str] | None"]
"""Returns where a value is beyond its limits, and why; None if it is not."""


def beyond_limits(kind: Any, value: Any) -> str | None:
    """Returns why and where a value of this type is beyond its limits; None if it is not."""
    try:
        check = _check_of(kind)
    except TypeError:  # a type that cannot be hashed
        check = _check(mi.type_info(kind), {})
    wrong = None if check is None else check(value)
    return None if wrong is None else f"{wrong[1]} - at `${wrong[0]}`"


@functools.lru_cache(maxsize=1024)
def _check_of(kind: Any) -> Check | None:
    return _check(mi.type_info(kind), {})


def _check(info: mi.Type, known: dict[type[Any], Check]) -> Check | None:
    """Returns the check of a type; None if there is nothing to check."""
    simple = _SIMPLE.get(type(info))
    if simple is not None:
        return simple
    match info:
        case mi.StructType() | mi.DataclassType() | mi.NamedTupleType():
            return _of_object(info, known)
        case mi.TypedDictType():
            return _of_typed_dict(info, known)
        case mi.CollectionType():
            item = _check(info.item_type, known)
            return None if item is None else _of_items(item)
        case mi.TupleType():
            return _of_tuple([_check(each, known) for each in info.item_types])
        case mi.DictType():
            return _of_dict(_check(info.key_type, known), _check(info.value_type, known))
        case mi.UnionType():
            return _of_union(info, known)
        case _:
            return None


def _int(value: int) -> tuple[str, str] | None:
    if _INT_MIN <= value <= _INT_MAX:
        return None
    return "", "a whole number has 64 bits, with its sign"


def _decimal(value: Decimal) -> tuple[str, str] | None:
    if not value.is_finite():
        return "", f"a decimal number is finite, and not {value}"
    digits, exponent = value.as_tuple()[1:]
    places = -int(exponent)
    if places > DECIMAL_PLACES and any(digits[-(places - DECIMAL_PLACES) :]):
        return "", f"a decimal number has at most {DECIMAL_PLACES} digits behind the point"
    before = DECIMAL_DIGITS - DECIMAL_PLACES
    if value and value.adjusted() >= before:
        return "", f"a decimal number has at most {before} digits before the point"
    return None


def _instant(value: datetime) -> tuple[str, str] | None:
    if value.tzinfo is not None and value.year in (1, 9999):
        try:
            value.astimezone(UTC)
        except OverflowError:
            return "", "an instant lies in the years 1 to 9999 of UTC"
    return None


_SIMPLE: Final[dict[type[Any], Check]] = {
    mi.IntType: _int,
    mi.DecimalType: _decimal,
    mi.DateTimeType: _instant,
}
_CLASSES: Final[dict[type[Any], type[Any]]] = {
    mi.IntType: int,
    mi.DecimalType: Decimal,
    mi.DateTimeType: datetime,
    mi.ListType: list,
    mi.SetType: set,
    mi.FrozenSetType: frozenset,
    mi.VarTupleType: tuple,
    mi.TupleType: tuple,
    mi.DictType: dict,
    mi.TypedDictType: dict,
}


def _of_object(
    info: mi.StructType | mi.DataclassType | mi.NamedTupleType, known: dict[type[Any], Check]
) -> Check | None:
    if info.cls in known:  # a recursive type: its check is being made
        return known[info.cls]
    checks: list[tuple[str, str, Check]] = []

    def check(value: Any) -> tuple[str, str] | None:
        for name, shown, each in checks:
            part = getattr(value, name)
            wrong = None if part is None or part is UNSET else each(part)
            if wrong is not None:
                return f".{shown}{wrong[0]}", wrong[1]
        return None

    known[info.cls] = check
    found = [(field, _check(field.type, known)) for field in info.fields]
    checks += [(field.name, field.encode_name, each) for field, each in found if each is not None]
    return check if checks else None


def _of_typed_dict(info: mi.TypedDictType, known: dict[type[Any], Check]) -> Check | None:
    if info.cls in known:
        return known[info.cls]
    checks: dict[str, Check] = {}

    def check(value: dict[str, Any]) -> tuple[str, str] | None:
        for name, each in checks.items():
            wrong = each(value[name]) if name in value else None
            if wrong is not None:
                return f".{name}{wrong[0]}", wrong[1]
        return None

    known[info.cls] = check
    found = [(field.encode_name, _check(field.type, known)) for field in info.fields]
    checks |= {name: each for name, each in found if each is not None}
    return check if checks else None


def _of_items(item: Check) -> Check:
    def check(value: Any) -> tuple[str, str] | None:
        for each in value:
            wrong = item(each)
            if wrong is not None:
                return f"[...]{wrong[0]}", wrong[1]
        return None

    return check


def _of_tuple(items: list[Check | None]) -> Check | None:
    checks = [(place, each) for place, each in enumerate(items) if each is not None]

    def check(value: Any) -> tuple[str, str] | None:
        for place, each in checks:
            wrong = each(value[place])
            if wrong is not None:
                return f"[{place}]{wrong[0]}", wrong[1]
        return None

    return check if checks else None


def _of_dict(of_key: Check | None, of_value: Check | None) -> Check | None:
    of_keys = None if of_key is None else _of_items(of_key)
    of_values = None if of_value is None else _of_items(of_value)

    def check(value: dict[Any, Any]) -> tuple[str, str] | None:
        wrong = None if of_keys is None else of_keys(value)
        if wrong is None and of_values is not None:
            wrong = of_values(value.values())
        return wrong

    return None if of_keys is None and of_values is None else check


def _of_union(info: mi.UnionType, known: dict[type[Any], Check]) -> Check | None:
    found = [(_class_of(each), _check(each, known)) for each in info.types]
    checks = {cls: each for cls, each in found if cls is not None and each is not None}

    def check(value: object) -> tuple[str, str] | None:
        each = checks.get(type(value))
        return None if each is None else each(value)

    return check if checks else None


def _class_of(info: mi.Type) -> type[Any] | None:
    if isinstance(info, (mi.StructType, mi.DataclassType, mi.NamedTupleType)):
        return info.cls
    return _CLASSES.get(type(info))
