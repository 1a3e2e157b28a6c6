"""The end user's part of a request, among its properties (spec C19). Pure.

Source: BHM90 11, the protocol between the user and the client.
"""

from __future__ import annotations

from collections.abc import Mapping  # at run time too
from typing import Any, cast

from onceq.errors import InvalidValue
from onceq.model import names
from onceq.model.element import EndUser, RequestAttributes, SendAttributes

KEY = "onceq_end_user"


def attributes_of(attributes: RequestAttributes) -> SendAttributes:
    """Returns the attributes with the end user among the properties. InvalidValue, TooLarge."""
    sent = dict(attributes)
    user: Any = sent.pop("end_user", None)
    properties: Any = sent.get("properties")
    if not isinstance(properties, Mapping | None):
        raise InvalidValue(f"properties are a mapping, not {type(properties).__name__}")
    if KEY in (properties or {}):
        raise InvalidValue(f"{KEY!r} is not a property: say end_user=EndUser(...)")
    if user is not None:
        sent["properties"] = {**(properties or {}), KEY: _parts(user)}
    return cast("SendAttributes", sent)


def _parts(user: object) -> dict[str, str | None]:
    if not isinstance(user, EndUser):
        raise InvalidValue(f"an end user is an EndUser, not a {type(user).__name__}")
    checkpoint = user.checkpoint
    if checkpoint is not None:
        names.check_text("checkpoint of an end user", checkpoint, names.TAG_BYTES_MAX)
    return {"id": names.check_id("id of an end user", user.id), "checkpoint": checkpoint}


def end_user_in(properties: Mapping[str, Any] | None) -> EndUser | None:
    """Returns the end user among the properties of a request or reply; None if there is none."""
    return end_user_of((properties or {}).get(KEY))


def end_user_of(parts: Mapping[str, Any] | None) -> EndUser | None:
    """Returns the end user that these parts describe."""
    return None if parts is None else EndUser(parts["id"], parts["checkpoint"])
