"""PostgreSQL run by the library itself, in a directory of the user.

For the engine and the command line. `server` is the public face. Below it, `cluster` starts
and stops; `directory`, `locks`, `process`, `sockets`, `privileges` and `binaries` each
know one thing; and `launch` is the small program between us and PostgreSQL.
"""

from onceq.engine.embedded.binaries import Binaries, find_binaries
from onceq.engine.embedded.server import (
    EmbeddedServer,
    EmbeddedStatus,
    embedded_status,
    open_embedded,
    stop_embedded,
)

__all__ = [
    "Binaries",
    "EmbeddedServer",
    "EmbeddedStatus",
    "embedded_status",
    "find_binaries",
    "open_embedded",
    "stop_embedded",
]
