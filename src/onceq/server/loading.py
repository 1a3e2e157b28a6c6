"""Finds a user's server or queue: `module:attribute`, the module imported from this directory.

Used by the child processes of `onceq serve`, and by the command line. An error in the user's module
is shown as Python shows it, without the frames of the code that imported it.
"""

from __future__ import annotations

import importlib
import os
import sys
from functools import reduce
from types import ModuleType
from typing import Any, Final

from onceq.errors import InvalidValue, OperatingError
from onceq.server.traces import cut, shown

HIDDEN: Final = ("<frozen importlib", str(importlib.__file__), "<string>")
"""Files that import modules, and what a dataclass generates."""


def load(spec: str, what: str = "server") -> Any:
    """Returns the object that `module:attribute` names. InvalidValue if there is none.

    Also InvalidValue, with the traceback, if its module fails; but an error that the environment
    is to blame for is raised as it is.
    """
    module_name, colon, attribute = spec.partition(":")
    if not (colon and module_name and attribute):
        raise InvalidValue(f"{spec!r} names no {what}: give MODULE:ATTRIBUTE, as in app:server")
    if os.getcwd() not in sys.path:  # noqa: PTH109 # as it stands in sys.path
        sys.path.insert(0, os.getcwd())  # noqa: PTH109 # likewise
    module = _imported(module_name)
    try:
        return reduce(getattr, attribute.split("."), module)
    except AttributeError:
        raise InvalidValue(
            f"module {module_name!r} has no {attribute!r}: name the variable that holds the {what}"
        ) from None


def _imported(name: str) -> ModuleType:
    try:
        return importlib.import_module(name)
    except OperatingError:
        raise
    except Exception as error:  # noqa: BLE001 # the user's program, as a handler is
        missing = error.name if isinstance(error, ModuleNotFoundError) else None
        if missing is not None and f"{name}.".startswith(f"{missing}."):
            raise InvalidValue(
                f"there is no module {missing!r} in {os.getcwd()} or on Python's path: "  # noqa: PTH109 # as above
                "run this where your module is"
            ) from None
        told = cut(shown(error, HIDDEN)).rstrip()
        raise InvalidValue(f"module {name!r} could not be loaded:\n{told}") from None
