"""Forks a program from this warm process; what it raises is written where the part finds it."""

from __future__ import annotations

import os
import traceback
from typing import TYPE_CHECKING, Final, NoReturn

from proof.clients.ground import append

if TYPE_CHECKING:
    from collections.abc import Callable

    from proof.clients.ground import Ground

FAILED: Final = 70


def forked(ground: Ground, name: str, program: Callable[[], None]) -> int:
    """Runs a program in a child; returns its pid. What it raises is written down."""
    pid = os.fork()
    if pid == 0:
        _run(ground, name, program)
    return pid


def _run(ground: Ground, name: str, program: Callable[[], None]) -> NoReturn:
    code = FAILED
    try:
        program()
        code = 0
    except BaseException:
        append(ground.place / "said.txt", f"--- {name}\n{traceback.format_exc()}")
        raise
    finally:  # the child ends here, whatever was raised
        os._exit(code)
