"""What the systems of the scoreboard share: the protocol, and the handler's own work.

`python -m proof.scoreboard.servers.MODULE JSON` does one thing and exits, or serves until it is
killed. The handler of each says which request it runs, works, writes one row to the user's table
with a connection as its documentation advises, works again, and returns. The table has no unique
key. Requests are run one at a time everywhere, so that a kill finds one request at work.

Imports no third party.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Protocol

    class System(Protocol):
        """A system of the scoreboard: what its module does when it is asked."""

        def prepare(self, asked: Asked) -> None:
            """Make its tables."""

        def send(self, asked: Asked) -> None:
            """Enqueue a request for each rid, durably."""

        def serve(self, asked: Asked) -> None:
            """Execute requests until killed."""


EFFECT = "insert into effect (rid) values (%s)"
EFFECT_NUMBERED = "insert into effect (rid) values ($1)"  # for those without psycopg
POISON = "poison"
HALF_S = 0.015
"""The work before the row is written, and again after it."""
LEASE_S = 3
"""What leases and heartbeats are shortened to, where they can be set, so that a run ends soon."""
LIMIT = 3
"""How often a poison may be tried; other requests as often as the system lets them by itself."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """What a process of a system is to do. reports: the file in which it says what it runs.

    limit: how often a request may be tried; None for what the system does by itself.
    """

    do: Literal["prepare", "send", "serve"]
    conninfo: str
    setting: Literal["default", "safest", "outside"]
    rids: tuple[str, ...] = ()
    reports: str = ""
    limit: int | None = None

    @property
    def is_safest(self) -> bool:
        """Whether it is to be set up as its documentation says is the safest."""
        return self.setting == "safest"


class Reports:
    """Says which request is at work, before anything else is done; a poison dies right after."""

    def __init__(self, path: str) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)

    def begin(self, rid: str) -> None:
        """Report a request in one write."""
        os.write(self._file, f"{rid}\n".encode())
        if rid == POISON:
            os.kill(os.getpid(), signal.SIGKILL)


def main(system: System) -> None:
    """Do what is asked for on the command line."""
    given: Mapping[str, object] = json.loads(sys.argv[1])
    asked = Asked(**given)  # type: ignore[arg-type]  # its own encoding
    {"prepare": system.prepare, "send": system.send, "serve": system.serve}[asked.do](asked)
