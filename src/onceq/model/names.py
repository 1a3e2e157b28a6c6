"""Names and limits: what may be called what, checked before anything is sent.

Pure. PostgreSQL checks names and numbers of queues, priorities and times once more.
"""

from __future__ import annotations

import difflib
import inspect
import json
import re
import reprlib
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime
from typing import Any, NewType
from uuid import UUID

from onceq.errors import InvalidName, InvalidValue, TooLarge
from onceq.model import trace

Rid = NewType("Rid", str)
"""A request id, chosen by the client: 1 to 200 bytes of UTF-8 without control characters."""

QUEUE_NAME = re.compile(r"[A-Za-z0-9_.-]{1,63}")
RESERVED_QUEUE = re.compile(r"reply-[0-9]+(\.error)?")
REPOSITORY_NAME = re.compile(r"[a-z][a-z0-9_]{0,40}")
CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]")
ID_BYTES_MAX = 200
PRIORITY_MAX = 9
BODY_BYTES_MAX = 1_048_576
TAG_BYTES_MAX = 65_536
LIMIT_MAX = 2**31 - 1
MOMENT_MIN = datetime(1, 1, 2, tzinfo=UTC)
MOMENT_MAX = datetime(9999, 12, 31, tzinfo=UTC)
"""A point in time between these can be written in every time zone."""
_PLAIN = (str, bytes, int, float, datetime, UUID)
TIMEOUT_S_MAX = 1e9
"""About thirty years: longer than anybody waits, and a number that every clock can hold."""


def shown(value: object) -> str:
    """Returns a value for the message that refuses it: the value itself if plain, else its type."""
    if inspect.iscoroutine(value):
        return f"a coroutine that nobody awaited: write `await` before {value.__qualname__}(...)"
    if isinstance(value, type):
        return f"the class {value.__qualname__}"
    if value is None or isinstance(value, _PLAIN):
        return reprlib.repr(value)
    return f"a value of class {type(value).__qualname__}"


def whose(registrant: str) -> str:
    """Returns whose connection, or place at a desk, it is, for error messages about it."""
    return f"the clerk of client {shown(registrant)}"


def _named(kind: str, name: object, pattern: re.Pattern[str], rule: str) -> str:
    if not isinstance(name, str):
        hint = ": give its name" if hasattr(name, "name") else ""
        raise InvalidName(f"a {kind} name is a str, not {type(name).__name__}{hint}")
    if not pattern.fullmatch(name):
        raise InvalidName(f"{kind} name {name[:80]!r} is not valid: {rule}")
    return name


def check_queue(name: object) -> str:
    """Returns the queue name, or raises InvalidName."""
    return _named("queue", name, QUEUE_NAME, "1 to 63 of A-Z a-z 0-9 _ . -")


def check_periodic(name: object) -> str:
    """Returns the name of a periodic request, or raises InvalidName."""
    return _named("periodic request's", name, QUEUE_NAME, "1 to 63 of A-Z a-z 0-9 _ . -")


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
    if CONTROL.search(text):
        raise InvalidName(f"{kind} {text[:80]!r} contains a control character")
    return text


def check_rid(rid: object) -> str | None:
    """Returns the rid of a request, or None if none is named; otherwise raises InvalidName."""
    return None if rid is None else check_id("rid", rid)


def client_said(registrant: str, thread: str) -> str:
    """Returns the name of a client, and of its thread if it has one, in words."""
    return f'client "{registrant}"' + (f', thread "{thread}",' if thread else "")


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
        check_moment(name, attributes.get(name))
    if attributes.get("correlation_id") is not None:
        check_id("correlation id", attributes["correlation_id"])
    _check_properties(attributes.get("properties"))


def check_moment(kind: str, when: object) -> None:
    """Checks that this is None, or a time that all can read, wherever they are. InvalidValue."""
    if when is None:
        return
    if not isinstance(when, datetime) or when.tzinfo is None:
        raise InvalidValue(f"{kind} is a datetime with a time zone, not {reprlib.repr(when)}")
    try:
        is_readable = MOMENT_MIN <= when.astimezone(UTC) < MOMENT_MAX
    except OverflowError:
        is_readable = False
    if not is_readable:
        raise InvalidValue(
            f"{kind} is a moment from year 1 to before {MOMENT_MAX:%Y-%m-%d}, in UTC, not {when}: "
            "leave it out where there is no such moment"
        )


def _check_properties(properties: object) -> None:
    """Checks that properties are a JSON object; PostgreSQL checks the texts in it."""
    if properties is None:
        return
    if not isinstance(properties, Mapping):
        raise InvalidValue(f"properties are a mapping, not {type(properties).__name__}")
    if trace.KEY in properties:
        raise InvalidValue(
            f"{trace.KEY!r} is not a property: onceq writes it, where OpenTelemetry is switched on"
        )
    try:
        json.dumps(properties, allow_nan=False)
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidValue(f"properties do not fit into JSON: {error}") from None


def check_text(kind: str, value: object, bytes_max: int) -> str:
    """Returns a text that PostgreSQL can keep in JSON, of at most this many bytes of UTF-8.

    InvalidValue, TooLarge.
    """
    if not isinstance(value, str) or "\0" in value:
        raise InvalidValue(f"a {kind} is a str without NUL, not {reprlib.repr(value)}")
    try:
        size = len(value.encode())
    except UnicodeEncodeError as error:
        raise InvalidValue(f"{kind} {value[:80]!r} is not valid Unicode: {error.reason}") from None
    if size > bytes_max:
        raise TooLarge(f"a {kind} has at most {bytes_max} bytes, not {size}")
    return value


def check_range(kind: str, value: object, low: int, high: int) -> int:
    """Returns an int between low and high, both included, or raises InvalidValue."""
    if not isinstance(value, int) or isinstance(value, bool) or not low <= value <= high:
        raise InvalidValue(f"{kind} is an int from {low} to {high}, not {reprlib.repr(value)}")
    return value


def check_flag(kind: str, value: object) -> bool:
    """Returns a bool, or raises InvalidValue."""
    if not isinstance(value, bool):
        raise InvalidValue(f"{kind} is True or False, not {reprlib.repr(value)}")
    return value


def check_keywords(where: str, given: Mapping[str, object], known: type[Any]) -> None:
    """Checks that keywords are those of a TypedDict; InvalidValue suggests the intended one."""
    there = known.__annotations__
    for name in given:
        if name not in there:
            close = difflib.get_close_matches(name, there, 1)
            meant = f"; {close[0]!r} was meant?" if close else "."
            raise InvalidValue(
                f"{where} has no keyword {name!r}{meant} There are: {', '.join(there)}"
            )


def check_choice(kind: str, value: object, choices: tuple[str, ...]) -> str:
    """Returns one of the choices, or raises InvalidValue."""
    if value not in choices:
        raise InvalidValue(f"{kind} is one of {choices}, not {reprlib.repr(value)}")
    return str(value)


def check_eid(value: object) -> UUID:
    """Returns the eid of an element, or raises InvalidValue."""
    if not isinstance(value, UUID):
        raise InvalidValue(f"an eid is a UUID, not {type(value).__name__}")
    return value


def check_timeout(value: object) -> float | None:
    """Returns how many seconds to wait; None: for ever. Negative counts as zero. InvalidValue."""
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, (int, float)) or value != value:  # noqa: PLR0124 # NaN
        raise InvalidValue(f"a timeout is a number of seconds, not {reprlib.repr(value)}")
    return float(min(max(value, 0), TIMEOUT_S_MAX))


def check_seconds(kind: str, value: object) -> float:
    """Returns a number of seconds, 0 or more, or raises InvalidValue."""
    given: Any = value
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    if is_number and 0 <= given <= TIMEOUT_S_MAX:
        return float(given)
    raise InvalidValue(
        f"{kind} is a number of seconds from 0 to {TIMEOUT_S_MAX:g}, not {reprlib.repr(value)}"
    )


def check_iterator(kind: str, values: object) -> Iterator[Any]:
    """Returns an iterator over a list or any other iterable; otherwise raises InvalidValue."""
    given: Any = values
    if isinstance(values, (str, bytes, Mapping)) or not isinstance(values, Iterable):
        raise InvalidValue(f"{kind} are a list, not a {type(given).__name__}")
    try:
        return iter(given)
    except TypeError as error:  # a class that only looks like one
        raise InvalidValue(f"{kind} are a list, not a {type(given).__name__}: {error}") from None


def check_each(kind: str, values: object) -> list[Any]:
    """Returns the values of a list or any other iterable; otherwise raises InvalidValue."""
    return [*check_iterator(kind, values)]


def check_outgoing(kind: str, value: object) -> tuple[Any, Any, Any]:
    """Returns the rid, the value and the end user (None: there is none) of a request to be sent.

    value: a tuple or list of two or three; otherwise InvalidValue.
    """
    given: Any = value
    if not isinstance(value, (tuple, list)) or len(given) not in {2, 3}:
        raise InvalidValue(
            f"a {kind} is (rid, value) or (rid, value, end_user), not a {type(given).__name__}"
        )
    return (given[0], given[1], given[2] if len(given) == 3 else None)


def check_tag(tag: object, kind: str = "tag") -> bytes | None:
    """Returns a tag, or None; otherwise raises InvalidValue. kind: what the tag is called."""
    return None if tag is None else check_bytes(kind, tag)


def check_search(search: Mapping[str, Any]) -> None:
    """Checks the fields of a search; None: anything. InvalidName, InvalidValue."""
    for name in ("rid", "registrant", "state", "queue"):
        value = search[name]
        if value is not None:
            check_id(name, value)
    if search["eid"] is not None:
        check_eid(search["eid"])
    check_range("limit", search["limit"], 1, LIMIT_MAX)
