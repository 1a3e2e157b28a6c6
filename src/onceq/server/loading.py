"""Finds a user's server or queue: `module:attribute`, the module imported from this directory.

Used by the child processes of `onceq serve`, and by `onceq spark serve`. Only what can be said
better than Python does is caught: an exception inside the user's module stays the user's.
"""

from __future__ import annotations

import importlib
import os
import sys
from functools import reduce
from typing import Any

from onceq.errors import InvalidValue


def load(spec: str, what: str = "server") -> Any:
    """Returns the object that `module:attribute` names. InvalidValue when there is none."""
    module_name, colon, attribute = spec.partition(":")
    if not (colon and module_name and attribute):
        raise InvalidValue(f"{spec!r} names no {what}: give MODULE:ATTRIBUTE, as in app:server")
    if os.getcwd() not in sys.path:  # noqa: PTH109 # as it stands in sys.path
        sys.path.insert(0, os.getcwd())  # noqa: PTH109 # likewise
    try:
        module = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        if not module_name.startswith(error.name or module_name + "."):
            raise
        raise InvalidValue(
            f"there is no module {error.name!r} in {os.getcwd()} or on Python's path: "  # noqa: PTH109 # likewise
            "run this where your module is"
        ) from None
    try:
        return reduce(getattr, attribute.split("."), module)
    except AttributeError:
        raise InvalidValue(
            f"module {module_name!r} has no {attribute!r}: name the variable that holds the {what}"
        ) from None
