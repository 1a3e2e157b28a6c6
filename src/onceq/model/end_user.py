"""The end user's part of a request, among its properties (spec C19). Pure.

Source: BHM90 11, the protocol between the user and the client.
"""

from __future__ import annotations

from collections.abc import Mapping  # at run time too
from typing import Any

from onceq.errors import InvalidValue
from onceq.model import names
from onceq.model.element import EndUser

KEY = "onceq_end_user"


def parts_of(user: object) -> dict[str, str | None]:
    """Returns what is kept of an end user. InvalidValue, InvalidName, TooLarge."""
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
