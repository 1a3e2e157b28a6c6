"""A terminal that a test gives to a command: a pseudo-terminal, or a pipe that passes for one.

Some machines, and most containers without /dev/pts, have no pseudo-terminal. There a command is
told by its environment that what it writes to is a terminal, as where a pipeline's log shows one.
"""

from __future__ import annotations

import os
import pty
from collections.abc import Mapping


def open_terminal(columns: int) -> tuple[int, int, Mapping[str, str]]:
    """Opens a terminal of so many columns.

    Returns where its output is read, where a command writes it, and what its environment is to say.
    """
    environment = {"TERM": "xterm", "COLUMNS": str(columns), "LINES": "30"}
    try:
        reads, writes = pty.openpty()
    except OSError:
        reads, writes = os.pipe()
        environment["TTY_COMPATIBLE"] = "1"
    return reads, writes, environment
