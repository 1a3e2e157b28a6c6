"""The properties that are the queue manager's own: how they are given, and what is kept. Pure.

They travel as `onceq_...` keys of `properties`, so that none needs a column, a parameter or a
statement of its own. `RESERVED` is the one table of them, and `refuse` the one place that keeps
users from giving such a key themselves.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from onceq.errors import InvalidName, InvalidValue, TooLarge
from onceq.model import attributes, end_user, names, reports, trace

PREFIX: Final = "onceq_"
SCRATCH_BYTES_MAX: Final = 65_536


@dataclass(frozen=True, slots=True, kw_only=True)
class Reserved:
    """A key. keyword: by which a program gives it; None: only onceq does.

    stored: checks what a program gives, and returns what is kept. InvalidValue, InvalidName,
    TooLarge.
    """

    keyword: str | None = None
    stored: Callable[[Any], Any] = lambda value: value


def _reply_to(name: object) -> str:
    """Checks the name of a queue. A client's own takes only replies to its requests (G1)."""
    queue = names.check_queue(name)
    if names.RESERVED_QUEUE.fullmatch(queue):
        raise InvalidName(
            f"reply_to {queue!r} is a client's own reply queue, where only the replies to its "
            "requests come: name another queue"
        )
    return queue


def _scratch(pad: object) -> dict[str, Any]:
    given: Any = pad
    if not isinstance(pad, Mapping):
        raise InvalidValue(f"a scratch pad is a mapping, not {names.shown(given)}")
    for key in given:
        if not isinstance(key, str):
            raise InvalidValue(f"the keys of a scratch pad are texts, not {names.shown(key)}")
    try:
        size = len(json.dumps(dict(given), allow_nan=False).encode())
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidValue(f"the scratch pad does not fit into JSON: {error}") from None
    if size > SCRATCH_BYTES_MAX:
        raise TooLarge(f"a scratch pad has at most {SCRATCH_BYTES_MAX} bytes of JSON, not {size}")
    return dict(given)


RESERVED: Final[Mapping[str, Reserved]] = {
    end_user.KEY: Reserved(keyword="end_user", stored=end_user.parts_of),
    attributes.MESSAGE_ID: Reserved(
        keyword="message_id", stored=lambda given: names.check_id("message id", given)
    ),
    attributes.REPLY_TO: Reserved(keyword="reply_to", stored=_reply_to),
    attributes.SCRATCH: Reserved(keyword="scratch", stored=_scratch),
    attributes.REPORTS: Reserved(keyword="reports", stored=reports.stored),
    attributes.REPORT: Reserved(),
    "onceq_stream": Reserved(),
    trace.KEY: Reserved(),
}
"""By key. What a report is of, what a bridge notes of a message, and the trace context of a send,
have no keyword."""


def refuse(properties: object, whose: str = "") -> None:
    """Refuses properties with a key of the queue manager's own. InvalidValue.

    whose: which properties these are. What is no mapping is not judged here.
    """
    given: Any = properties
    for key in given if isinstance(properties, Mapping) else ():
        if isinstance(key, str) and key.startswith(PREFIX):
            keyword = RESERVED[key].keyword if key in RESERVED else None
            hint = f"say {keyword}=..." if keyword else "choose another name"
            raise InvalidValue(
                f"{key!r} is not a property{whose}: keys that begin with {PREFIX!r} are the queue "
                f"manager's own; {hint}"
            )


def attributes_of(given: Mapping[str, Any]) -> dict[str, Any]:
    """Returns attributes with those that have a key of their own among the properties.

    InvalidValue, InvalidName, TooLarge; also if a program gives such a key itself.
    """
    sent = dict(given)
    properties: Any = sent.get("properties")
    refuse(properties)
    if not isinstance(properties, Mapping | None):
        raise InvalidValue(f"properties are a mapping, not {type(properties).__name__}")
    own: dict[str, Any] = {}
    for key, one in RESERVED.items():
        value = None if one.keyword is None else sent.pop(one.keyword, None)
        if value is not None:
            own[key] = one.stored(value)
    if own:
        sent["properties"] = {**(properties or {}), **own}
    return sent
