"""The cutter: a process with a proxy before PostgreSQL, which cuts when it is told to.

Run by the nursery, one for clients and one for servers. A process of its own, so that a SIGSTOP of
it is a network on which nothing passes. It is told by datagrams: the side, and of what.
"""

from __future__ import annotations

import re
import socket
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Final

from onceq.history.events import Fault
from onceq.testing.proxy import Cut, Proxy, Side
from onceq.testing.torture.life import Living

if TYPE_CHECKING:
    from onceq.testing.torture.life import Life

CLIENTS_COMMIT: Final = {
    "send": re.compile(r"\.send(?:_many)?\("),
    "any": re.compile(r"\.(?:send|send_many|receive|acknowledge)\("),
}
"""What clients say is single statements, each a transaction; servers say COMMIT."""
CONTROL: Final = "control"
_WORDS_BYTES: Final = 32
_WAIT_S: Final = 3600.0


def cutter(life: Life) -> None:
    """Passes on, and cuts; until it is killed."""
    living = Living(life)
    directory = Path(life.sockets)
    for stale in directory.iterdir():
        stale.unlink()
    control = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    proxy = Proxy(life.conninfo, directory)
    control.bind(str(directory / CONTROL))
    threading.Thread(target=_note, args=(living, proxy), daemon=True).start()
    while True:  # until this process is killed
        side, what = control.recv(_WORDS_BYTES).decode().split()
        pattern = CLIENTS_COMMIT[what] if life.name == "cutter-client" else None
        proxy.plan(Cut(side=Side(side), pattern=pattern))


def _note(living: Living, proxy: Proxy) -> None:
    """Writes down each cut when it has been made."""
    whom = living.life.name.removeprefix("cutter-")
    count = 0
    while True:  # until this process is killed
        if proxy.wait_made(count + 1, _WAIT_S):
            cut, _ = proxy.made[count]
            count += 1
            living.recorder.record(Fault(what=f"cut {whom} {cut.side.value}", target=whom))
