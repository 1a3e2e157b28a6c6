"""How each kind of fault is made: one table from its name to what is done.

Used by the conductor, at the moments of the schedule. A fault says why it could not be made; what
lasts is undone when its time is over.
"""

from __future__ import annotations

import heapq
import math
import signal
import socket
import time
from collections import Counter
from typing import TYPE_CHECKING, Final

import msgspec

from onceq.history.events import ALL, Fault
from proof.torture.cutter import CONTROL, FORGET, Strike
from proof.torture.fleet import STRIKES_MAX
from proof.torture.spark import NOT_THERE

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from onceq.history.events import Recorder
    from proof.torture.database import Database
    from proof.torture.fleet import Fleet
    from proof.torture.plan import Planned
    from proof.torture.spark import SparkServer

CLIENTS: Final = ("clerk", "stream", "desk", "notes")
SERVERS: Final = ("server", "batch")
NOBODY: Final = "nobody was there"
UNANSWERED: Final = f"it had been struck {STRIKES_MAX} times since its last answer"
NOT_HEARD: Final = "the cutter was stopped, or not there yet"
FORGETS_MAX: Final = 100
FORGET_EVERY_S: Final = 0.05
SPARE_BYTES: Final = 1 << 20
SENDS_CUT: Final = 9
"""How many of ten cuts of clients are for sends only: most of what clients say is receives."""
SILENT_AT: Final = ("before", "after", "")
"""Where a connection falls silent: a third each, before a commit, after it, and anywhere."""
LATER_S: Final = 3.0
"""How long after its end a lack of room, or of memory, may still be felt."""


class Faults:
    """Makes faults. made: by kind; not_made: how often, and why, by kind and reason.

    sockets: of the cutters; behind: the participants that go through each. last_ns: when the last
    of what was made is over.
    """

    def __init__(
        self, fleet: Fleet, database: Database, spark: SparkServer | None, recorder: Recorder
    ) -> None:
        self.made: Counter[str] = Counter()
        self.not_made: Counter[tuple[str, str]] = Counter()
        self.sockets: dict[str, Path] = {}
        self.behind: dict[str, list[str]] = {}
        self.last_ns = 0
        self._fleet = fleet
        self._database = database
        self._spark = spark
        self._recorder = recorder
        self._undo: list[tuple[float, int, Callable[[], None]]] = []
        self._control = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._control.settimeout(0)  # a cutter that is stopped takes nothing

    def make(self, fault: Planned) -> None:
        """Makes a fault, and writes it down."""
        what, _, whom = fault.kind.partition(" ")
        maker: Callable[[Planned, str], str | None] = getattr(self, f"_{what}")
        why_not = maker(fault, whom)
        if why_not is None:
            self.made[fault.kind] += 1
        else:
            self.not_made[fault.kind, why_not] += 1

    def undo(self, now: float) -> None:
        """Undoes what has lasted long enough; with infinity, everything."""
        while self._undo and self._undo[0][0] <= now:
            heapq.heappop(self._undo)[2]()

    def stop(self) -> None:
        """Undoes everything, and has no cut made any more that was only planned."""
        self.undo(math.inf)
        for whom in self.sockets:
            for _ in range(FORGETS_MAX):  # it was just let go on, and has others to read first
                if self._tell(whom, Strike(side=FORGET)) is None:
                    break
                time.sleep(FORGET_EVERY_S)

    def close(self) -> None:
        """Closes the line to the cutters."""
        self._control.close()

    def _note(
        self, fault: Planned, target: str = "", *struck: str, at: int = 0, more_s: float = 0.0
    ) -> None:
        """Writes a fault down. struck: whom, unless it is the target; more_s: longer than it is."""
        at = at or time.monotonic_ns()
        until = at + round((fault.lasts_s + more_s) * 1e9)
        self._over(until)
        whom = struck or (target,)
        self._recorder.record(
            Fault(what=fault.kind, target=target, at=at, struck=whom, until=until)
        )

    def _over(self, until: int) -> None:
        self.last_ns = max(self.last_ns, until)

    def _later(self, fault: Planned, call: Callable[[], None]) -> None:
        due = time.monotonic() + fault.lasts_s
        heapq.heappush(self._undo, (due, fault.choice, call))

    def _pick(self, fault: Planned, *kinds: str) -> str | None:
        alive = self._fleet.alive(*kinds)
        return alive[fault.choice % len(alive)] if alive else None

    def _kill(self, fault: Planned, whom: str) -> str | None:
        at, struck = time.monotonic_ns(), ALL
        if whom in ("postmaster", "backend"):
            why_not = self._database.crash(fault.kind, fault.choice)
        elif whom.startswith("spark"):
            why_not, struck = NOT_THERE, whom
            if self._spark is not None:
                why_not = self._spark.kill(whom.removeprefix("spark "), fault.choice)
        else:
            return self._signal(fault, whom, signal.SIGKILL)
        if why_not is None:
            self._note(fault, "", struck, at=at)
        return why_not

    def _signal(self, fault: Planned, whom: str, number: signal.Signals) -> str | None:
        target = self._pick(fault, *(CLIENTS if whom == "client" else SERVERS))
        if target is None:
            return NOBODY
        if whom == "client" and not self._fleet.bears_a_strike(target):
            return UNANSWERED
        self._note(fault, target)
        self._fleet.strike(target, number)
        if number == signal.SIGSTOP:
            self._later(fault, lambda: self._fleet.signal(target, signal.SIGCONT))
        return None

    def _stop(self, fault: Planned, whom: str) -> str | None:
        return self._signal(fault, whom, signal.SIGSTOP)

    def _freeze(self, fault: Planned, _whom: str) -> str | None:
        target = self._pick(fault, "server")
        if target is None:
            return NOBODY
        self._note(fault, target)
        self._fleet.signal(target, signal.SIGSTOP)
        self._later(fault, lambda: self._fleet.signal(target, signal.SIGCONT))
        return None

    def _end(self, fault: Planned, whom: str) -> str | None:
        kinds = CLIENTS if whom == "client" else SERVERS

        def told(name: str, backend: int) -> None:
            self._note(fault, name, f"backend {backend}")

        return self._database.end_session(self._fleet.alive(*kinds), fault.choice, told)

    def _cut(self, fault: Planned, whom: str) -> str | None:
        name, side = whom.split()
        what = "send" if fault.choice % 10 < SENDS_CUT else "any"
        return self._tell(name, Strike(side=side, what=what))

    def _silence(self, fault: Planned, whom: str) -> str | None:
        side = SILENT_AT[fault.choice % len(SILENT_AT)]
        self._over(time.monotonic_ns() + round(fault.lasts_s * 1e9))
        strike = Strike(side=side, silent_s=fault.lasts_s, choice=fault.choice // len(SILENT_AT))
        return self._tell(whom, strike)

    def _tell(self, whom: str, strike: Strike) -> str | None:
        """Tells a cutter what to do; it writes that down when it has done it."""
        try:
            path = str(self.sockets[whom] / CONTROL)
            self._control.sendto(msgspec.json.encode(strike), path)
        except OSError:
            return NOT_HEARD
        return None

    def _stall(self, fault: Planned, _whom: str) -> str | None:
        target = self._pick(fault, "cutter")
        if target is None:
            return NOBODY
        self._note(fault, target, *self.behind[target])
        self._fleet.signal(target, signal.SIGSTOP)
        self._later(fault, lambda: self._fleet.signal(target, signal.SIGCONT))
        return None

    def _fill(self, fault: Planned, _whom: str) -> str | None:
        why_not = self._database.fill()
        if why_not is None:
            self._note(fault, "", ALL, more_s=LATER_S)
            self._later(fault, self._database.clear)
        return why_not

    def _starve(self, fault: Planned, _whom: str) -> str | None:
        target = self._pick(fault, *SERVERS)
        if target is None:
            return NOBODY
        self._note(fault, target, more_s=LATER_S)
        self._fleet.starve(target, SPARE_BYTES)
        life = self._fleet.participants[target].lives

        def end() -> None:
            if self._fleet.participants[target].lives == life:
                self._fleet.signal(target, signal.SIGKILL)

        self._later(fault, end)
        return None
