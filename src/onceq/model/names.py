"""Names and limits: what may be called what, checked before anything is sent.

Pure. The same rules stand as CHECK constraints in the schema (spec, reliability: bad input).
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from datetime import datetime
from typing import Any, NewType

from onceq.errors import InvalidName, InvalidValue

Rid = NewType("Rid", str)
"""A request id, chosen by the client: 1 to 200 bytes of UTF-8 without control characters."""

QUEUE_NAME = re.compile(r"[A-Za-z0-9_.-]{1,63}")
REPOSITORY_NAME = re.compile(r"[a-z][a-z0-9_]{0,40}")
ID_BYTES_MAX = 200
PRIORITY_MAX = 9
BODY_BYTES_MAX = 1_048_576
TAG_BYTES_MAX = 65_536


def _named(kind: str, name: object, pattern: re.Pattern[str], rule: str) -> str:
    if not isinstance(name, str):
        raise InvalidName(f"a {kind} name is a str, not {type(name).__name__}")
    if not pattern.fullmatch(name):
        raise InvalidName(f"{kind} name {name[:80]!r} is not valid: {rule}")
    return name


def check_queue(name: object) -> str:
    """Returns the queue name, or raises InvalidName."""
    return _named("queue", name, QUEUE_NAME, "1 to 63 of A-Z a-z 0-9 _ . -")


def check_repository(name: object) -> str:
    """Returns the repository name, or raises InvalidName."""
    rule = "a letter a-z, then at most 40 of a-z 0-9 _"
    named = _named("repository", name, REPOSITORY_NAME, rule)
    if named.startswith("pg_") or named in {"public", "information_schema"}:
        raise InvalidName(f"repository name {named!r} belongs to PostgreSQL: choose another")
    return named


def check_id(kind: str, text: object) -> str:
    """Returns a rid, registrant or thread name, or raises InvalidName.

    1 to 200 bytes of UTF-8, no control characters, no lone surrogates.
    """
    if not isinstance(text, str):
        raise InvalidName(f"a {kind} is a str, not {type(text).__name__}")
    try:
        size = len(text.encode())
    except UnicodeEncodeError as error:
        raise InvalidName(f"{kind} {text[:80]!r} is not valid Unicode: {error.reason}") from None
    if not 1 <= size <= ID_BYTES_MAX:
        raise InvalidName(f"a {kind} has 1 to {ID_BYTES_MAX} bytes, not {size}")
    if any(ord(c) < 0x20 or 0x7F <= ord(c) < 0xA0 for c in text):
        raise InvalidName(f"{kind} {text[:80]!r} contains a control character")
    return text


def check_bytes(kind: str, value: object) -> bytes:
    """Returns bytes, or raises InvalidValue."""
    if not isinstance(value, bytes):
        raise InvalidValue(f"a {kind} is bytes, not {type(value).__name__}")
    return value


def check_attributes(attributes: Mapping[str, Any]) -> None:
    """Checks how an element is to be sent or enqueued. InvalidValue, InvalidName."""
    check_range("priority", attributes.get("priority", 4), 0, PRIORITY_MAX)
    if attributes.get("rid") is not None:
        check_id("rid", attributes["rid"])
    for name in ("not_before", "expires_at"):
        when = attributes.get(name)
        if when is not None and (not isinstance(when, datetime) or when.tzinfo is None):
            raise InvalidValue(f"{name} is a datetime with a time zone, not {when!r}")
    if attributes.get("correlation_id") is not None:
        check_id("correlation id", attributes["correlation_id"])
    _check_properties(attributes.get("properties"))


def _check_properties(properties: object) -> None:
    """Checks that properties are an object of JSON; its texts, PostgreSQL checks."""
    if properties is None:
        return
    if not isinstance(properties, Mapping):
        raise InvalidValue(f"properties are a mapping, not {type(properties).__name__}")
    try:
        json.dumps(properties, allow_nan=False)
    except (TypeError, ValueError) as error:
        raise InvalidValue(f"properties do not fit into JSON: {error}") from None


def check_range(kind: str, value: object, low: int, high: int) -> int:
    """Returns an int between low and high, both included, or raises InvalidValue."""
    if not isinstance(value, int) or isinstance(value, bool) or not low <= value <= high:
        raise InvalidValue(f"{kind} is an int from {low} to {high}, not {value!r}")
    return value
