"""What is legal, written from the documented limits and not from the product's code.

The fuzz compares: what is legal here must not be refused as invalid, and what is not must be. There
are three answers, as part of the input may not be judged: True, False, or None (either may come).
"""

from __future__ import annotations

import dataclasses
import json
import math
import tomllib
import uuid
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any, Final

BODY_BYTES: Final = 1024 * 1024
TAG_BYTES: Final = 64 * 1024
TYPED_BYTES: Final = 65_536
ID_BYTES: Final = 200
SECONDS: Final = 1_000_000_000
QUEUE_CHARACTERS: Final = 63
REPOSITORY_CHARACTERS: Final = 41
DIGITS: Final = "0123456789"
LOWER: Final = "abcdefghijklmnopqrstuvwxyz"
DEPTH_SURE: Final = 500
"""Lists in lists: this many are legal; ten times as many, Python cannot follow."""
SETTINGS: Final[dict[str, tuple[int, int]]] = {
    "abort_limit": (1, 1000),
    "retry_limit": (0, 1000),
    "backoff_ms": (0, 24 * 3600 * 1000),
    "backoff_max_ms": (0, 2**31 - 1),
    "execution_limit_s": (1, 7 * 24 * 3600),
    "body_bytes_max": (1, 256 * 1024 * 1024),
    "tag_bytes_max": (1, 16 * 1024 * 1024),
}
FLAGS: Final = ("durable", "keep_body")
DEFAULT_BACKOFF_MS: Final = {"backoff_ms": 100, "backoff_max_ms": 60_000}
DEFAULT_BACKOFF_MS_MAX: Final[dict[str, Any]] = {"backoff_ms": 0, "backoff_max_ms": 2**31 - 1}
"""With which any one setting can stand."""
KINDS: Final[dict[Any, str]] = {str: "str", int: "int", float: "float", bool: "bool"}


def both(*answers: bool | None) -> bool | None:
    """Return False if any is, else None if any is, else True."""
    if any(answer is False for answer in answers):
        return False
    return None if any(answer is None for answer in answers) else True


def is_text(value: object) -> bool:
    """Whether a value is a text that has a UTF-8."""
    return isinstance(value, str) and not any("\ud800" <= c <= "\udfff" for c in value)


def text(value: object, most: int) -> bool:
    """A text without NUL, of so many bytes of UTF-8 at most."""
    return is_text(value) and "\0" not in str(value) and len(str(value).encode()) <= most


def queue_name(value: object) -> bool:
    """1 to 63 of A-Z a-z 0-9 _ . and a hyphen."""
    allowed = LOWER + LOWER.upper() + DIGITS + "_.-"
    return (
        isinstance(value, str)
        and 1 <= len(value) <= QUEUE_CHARACTERS
        and all(c in allowed for c in value)
    )


def queue_name_of_ours(value: object) -> bool:
    """A queue's name that is none of a client's reply queue, "reply-" and a number."""
    if not isinstance(value, str) or not queue_name(value):
        return False
    kind, _, number = value.partition("-")
    return not (kind == "reply" and number.isdecimal())


def repository_name(value: object) -> bool:
    """A letter a-z, then at most 40 of a-z 0-9 _; not what belongs to PostgreSQL."""
    return (
        isinstance(value, str)
        and 1 <= len(value) <= REPOSITORY_CHARACTERS
        and value[0] in LOWER
        and all(c in LOWER + DIGITS + "_" for c in value)
        and value[:3] != "pg_"
        and value not in ("public", "information_schema")
    )


def identifier(value: object) -> bool:
    """1 to 200 bytes of UTF-8 without control characters."""
    if not isinstance(value, str) or not is_text(value):
        return False
    controls = any(ord(c) in range(0x20) or ord(c) in range(0x7F, 0xA0) for c in value)
    return 1 <= len(value.encode()) <= ID_BYTES and not controls


def optional(value: object, rule: Any) -> Any:
    """True for None, else what the rule says."""
    return True if value is None else rule(value)


def whole(value: object, low: int, high: int) -> bool:
    """A whole number between two, both included; True and False are none."""
    return type(value) is int and low <= value <= high


def flag(value: object) -> bool:
    """True or False."""
    return value is True or value is False


def eid(value: object) -> bool:
    """A UUID."""
    return isinstance(value, uuid.UUID)


def timeout(value: object) -> bool:
    """None, or a number that is not NaN."""
    return value is None or type(value) is int or (type(value) is float and not math.isnan(value))


def seconds(value: object) -> bool:
    """A number from 0 to the longest time-out."""
    return isinstance(value, (int, float)) and type(value) is not bool and 0 <= value <= SECONDS


def octets(value: object, most: int | None = None) -> bool:
    """Bytes, at most so many."""
    return type(value) is bytes and (most is None or len(value) <= most)


def several(value: object) -> bool:
    """An iterable that is not text, bytes or a mapping."""
    return isinstance(value, Iterable) and not isinstance(value, (str, bytes, Mapping))


def outgoing(value: Any) -> bool:
    """A tuple or a list of two, or of three."""
    return isinstance(value, (tuple, list)) and len(value) in {2, 3}


def when(value: object) -> bool:
    """A time with a zone."""
    if not isinstance(value, datetime) or value.tzinfo is None:
        return False
    try:
        return datetime(1, 1, 2, tzinfo=UTC) <= value < datetime(9999, 12, 31, tzinfo=UTC)
    except OverflowError:
        return False


def _depth(value: Any) -> int:
    """Return how deeply lists are nested, one in each."""
    found = 0
    while isinstance(value, list) and len(value) == 1:
        value, found = value[0], found + 1
    return found


def properties(value: object) -> bool | None:
    """A mapping that fits into JSON."""
    if value is None:
        return True
    return _fits(value) if isinstance(value, dict) else False


def _fits(value: Any) -> bool | None:
    """Whether Python writes a value as JSON that every reader takes."""
    if (depth := _depth(value)) > DEPTH_SURE:
        return False if depth >= 10 * DEPTH_SURE else None
    value = _innermost(value)
    if isinstance(value, dict):
        keys = all(isinstance(key, (str, int)) for key in value)
        return both(keys, *(_fits(one) for one in value.values()))
    if isinstance(value, (list, tuple)):
        return both(*(_fits(one) for one in value))
    if isinstance(value, float):
        return math.isfinite(value)
    return value is None or isinstance(value, (str, int))


def attributes(given: Mapping[str, Any]) -> bool | None:
    """How an element is sent or enqueued."""
    return both(
        whole(given.get("priority", 4), 0, 9),
        *(optional(given.get(name), identifier) for name in ("rid", "correlation_id")),
        *(optional(given.get(name), when) for name in ("not_before", "expires_at")),
        properties(given.get("properties")),
    )


def search(given: Mapping[str, Any]) -> bool:
    """What is looked for."""
    texts = all(
        optional(given[name], identifier) for name in ("rid", "registrant", "state", "queue")
    )
    return texts and optional(given["eid"], eid) and whole(given["limit"], 1, 2**31 - 1)


def typed(value: object) -> bool | None:
    """What fits into the queue of dictionaries, whose bodies are limited; large ones are unjudged.

    A character is at most six bytes of JSON.
    """
    try:
        fits = 6 * len(repr(value)) < TYPED_BYTES
    except RecursionError:  # nested deeper than anybody reads
        return None
    return both(encodable(dict, value), fits or None)


def settings(given: Mapping[str, Any]) -> bool:
    """Settings of a queue."""
    known = {*SETTINGS, *FLAGS, "error_queue", "on_failure", "history_days"}
    numbers = all(whole(given[name], *SETTINGS[name]) for name in SETTINGS if name in given)
    flags = all(flag(given[name]) for name in FLAGS if name in given)
    fate = given.get("on_failure", "fail")
    is_fate = type(fate) is str and fate in {"fail", "hold"}
    days = optional(given.get("history_days"), lambda value: whole(value, 1, 36_500))
    if not (known >= given.keys() and numbers and flags and is_fate and days):
        return False
    backoff = {**DEFAULT_BACKOFF_MS, **given}
    return backoff["backoff_ms"] <= backoff["backoff_max_ms"] and bool(
        optional(given.get("error_queue"), queue_name)
    )


def terms(queue: str, given: Mapping[str, Any]) -> bool:
    """On what terms something is dequeued from a queue."""
    limit, error_queue = given.get("abort_limit"), given.get("error_queue")
    return bool(
        optional(limit, lambda one: whole(one, 1, 1000))
        and optional(error_queue, lambda one: queue_name(one) and one != queue)
    )


def options(given: Mapping[str, Any]) -> bool:
    """Options of a handler."""
    levels = ("read committed", "repeatable read", "serializable")
    return (
        whole(given.get("batch", 1), 1, 1000)
        and flag(given.get("effects", True))
        and terms("orders", given)
        and isinstance(given.get("isolation", levels[0]), str)
        and given.get("isolation", levels[0]) in levels
    )


def _json_kind(value: Any) -> str | None:
    """Return as what a value travels in JSON; None: it cannot. "?": it is not judged."""
    if (depth := _depth(value)) > 0:
        return "list" if depth <= DEPTH_SURE and _json_kind(_innermost(value)) else "?"
    if isinstance(value, dict):
        return _container("dict", [*value.values(), *map(_key, value)])
    if isinstance(value, (list, tuple, set)):
        return _container("list", list(value))
    if isinstance(value, float):
        return "float" if math.isfinite(value) else "null"
    for kind, name in ((bool, "bool"), (int, "int"), (str, "str")):
        if isinstance(value, kind):
            return name if name != "str" or is_text(value) else None
    return "null" if value is None else _other_kind(value)


def _other_kind(value: object) -> str | None:
    if isinstance(value, (bytes, uuid.UUID, datetime, Decimal)):
        return "str"
    return "dict" if dataclasses.is_dataclass(value) else None


def _innermost(value: Any) -> Any:
    while isinstance(value, list) and len(value) == 1:
        value = value[0]
    return value


def _key(key: object) -> object:
    """Return what must be encodable for a key: the value itself, if of one of the key's kinds."""
    is_key = isinstance(key, (str, int)) and not isinstance(key, bool)
    return key if is_key else object


def _container(name: str, inner: list[Any]) -> str | None:
    kinds = [_json_kind(one) for one in inner]
    if None in kinds:
        return None
    return "?" if "?" in kinds else name


def encodable(kind: Any, value: Any) -> bool | None:
    """Whether a value is one of the type, as JSON or, of bytes, as it is."""
    if kind is bytes:
        return octets(value)
    found = _json_kind(value)
    if found is None or found == "?":
        return False if found is None else None
    return _is_of(kind, value, found)


def _is_of(kind: Any, value: Any, found: str) -> bool:
    if kind in KINDS:
        return found == KINDS[kind] or (kind is float and found == "int")
    if kind == list[int]:
        return found == "list" and all(_json_kind(one) == "int" for one in value)
    return found == "dict"


def decodable(kind: Any, data: bytes, *, strict: bool) -> bool | None:
    """Whether bytes are a value of the type. Not strict: a text may stand for a number."""
    if kind is bytes:
        return True
    try:
        value = json.loads(data.decode(), parse_constant=_no_constant)
    except ValueError:
        return False
    except RecursionError:
        return None
    found = _json_kind(value)
    if (
        found is None
        or found == "?"
        or _has_huge(data)
        or (not strict and found in {"str", "list"})
    ):
        return None
    return _is_of(kind, value, found)


def _has_huge(data: bytes) -> bool:
    """Whether a number in there may be too large for some readers."""
    return b"1e999" in data


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")


def configuration(name: str, content: bytes) -> bool | None:
    """Whether a file names a repository."""
    try:
        text = content.decode().replace("\r\n", "\n").replace("\r", "\n")
        table: Any = tomllib.loads(text)
    except (ValueError, RecursionError):
        return False
    if name == "pyproject.toml":
        tools = table.get("tool")
        table = tools.get("onceq") if isinstance(tools, dict) else None
    if not isinstance(table, dict) or not all(isinstance(one, str) for one in table.values()):
        return False
    if not {"url"} <= table.keys() <= {"url", "repository"}:
        return False
    if not repository_name(table.get("repository", "onceq")):
        return False
    return True if table["url"] == "service=here" else None
