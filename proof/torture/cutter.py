"""The cutter: a process with a proxy in front of PostgreSQL, which cuts and silences when told to.

Run by the nursery, one for clients and one for servers. It is a process of its own, so that a
SIGSTOP of it is a network on which nothing passes. It is told by datagrams (`Order`).
"""

from __future__ import annotations

import re
import socket
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec

from onceq.history.events import Fault
from proof.harness.proxy import Cut, Made, Proxy, Side
from proof.torture.life import Living

if TYPE_CHECKING:
    from proof.torture.life import Life

CLIENTS_COMMIT: Final = {
    "send": re.compile(r"\.send_(?:one|many)\("),
    "any": re.compile(r"\.(?:send_one|send_many|receive|acknowledge)\("),
}
"""What clients say is single statements, each a transaction; servers say COMMIT."""
CONTROL: Final = "control"
FORGET: Final = "forget"
PLANNED_MAX: Final = 3
"""How many cuts may wait for a commit: if commits are rarer, each client would be cut at each."""
_ORDER_BYTES: Final = 256
_WAIT_S: Final = 3600.0


class Strike(msgspec.Struct, kw_only=True):
    """What a cutter is to do.

    side: of a commit, "": wherever the connection stands; FORGET: what was planned and not made is
    not to be made any more. what: of which statements, in CLIENTS_COMMIT. silent_s: for how long
    the connection is to swallow all, 0: it ends at once. choice: of a connection, where no commit
    is waited for.
    """

    side: str
    what: str = "any"
    silent_s: float = 0.0
    choice: int = 0


def cutter(life: Life) -> None:
    """Passes on, cuts and silences; until it is killed."""
    living = Living(life)
    directory = Path(life.sockets)
    for stale in directory.iterdir():
        stale.unlink()
    control = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    proxy = Proxy(life.conninfo, directory)
    control.bind(str(directory / CONTROL))
    threading.Thread(target=_note, args=(living, proxy), daemon=True).start()
    while True:  # until this process is killed
        strike = msgspec.json.decode(control.recv(_ORDER_BYTES), type=Strike)
        if strike.side == FORGET:
            proxy.forget()
        elif strike.side and proxy.planned < PLANNED_MAX:
            pattern = CLIENTS_COMMIT[strike.what] if life.name == "cutter-client" else None
            proxy.plan(Cut(side=Side(strike.side), pattern=pattern, silent_s=strike.silent_s))
        elif not strike.side:
            proxy.silence_one(strike.choice, strike.silent_s)


def _note(living: Living, proxy: Proxy) -> None:
    """Writes down each cut and each silence when it has been made."""
    count = 0
    while True:  # until this process is killed
        if proxy.wait_made(count + 1, _WAIT_S):
            living.recorder.record(_fault(living.life.name, proxy.made[count]))
            count += 1


def _fault(name: str, made: Made) -> Fault:
    whom, cut = name.removeprefix("cutter-"), made.cut
    what = f"silence {whom}" if cut.silent_s else f"cut {whom} {cut.side.value}"
    until = made.at + round(cut.silent_s * 1e9)
    struck = (f"backend {made.backend}",)
    return Fault(what=what, target=whom, at=made.at, struck=struck, until=until)
