"""What befalls a run: kills, processes that stand still, parted links, full and failing disks."""

from __future__ import annotations

import random
import signal
import time
from collections import Counter
from collections.abc import Callable
from typing import Final

from proof.streams_torture.processes import FAILS, FULL
from proof.streams_torture.proxying import Way
from proof.streams_torture.stand import Role, Stand

DOWN_S_MAX: Final = 0.5
STILL_S_MAX: Final = 1.5
APART_S_MAX: Final = 1.5
FULL_S_MAX: Final = 1.0
KILLS: Final = "processes killed"
PARTITIONS: Final = "links parted"


class Faults:
    """Strikes a run again and again. did: what, how often."""

    def __init__(self, stand: Stand, chance: random.Random) -> None:
        self.stand = stand
        self.chance = chance
        self.did: Counter[str] = Counter()
        self._later: list[tuple[float, Callable[[], None]]] = []
        self._kinds: tuple[tuple[Callable[[], None], int], ...] = (
            (self._kill, 60),
            (self._stop, 10),
            (self._part, 16),
            (self._cut, 6),
            (self._fill, 4),
            (self._fail, 4),
        )

    def strike(self) -> None:
        """Let one thing befall the run."""
        kinds, weights = zip(*self._kinds, strict=True)
        self.chance.choices(kinds, weights)[0]()

    def tick(self) -> None:
        """End what has lasted long enough."""
        now = time.monotonic()
        due = [one for one in self._later if one[0] <= now]
        self._later = [one for one in self._later if one[0] > now]
        for _, does in due:
            does()

    def end(self) -> None:
        """End all faults."""
        for _, does in self._later:
            does()
        self._later.clear()

    def _lasting(self, most_s: float, does: Callable[[], None]) -> None:
        self._later.append((time.monotonic() + self.chance.random() * most_s, does))

    def _a_store(self) -> tuple[int, Role]:
        number = self.chance.randrange(len(self.stand.stores))
        return number, self.stand.stores[number]

    def _kill(self) -> None:
        role = self.chance.choice(self.stand.roles)
        if role.kill(self.chance.random() * DOWN_S_MAX):
            self.did[KILLS] += 1

    def _stop(self) -> None:
        role = self.chance.choice(self.stand.roles)
        role.signal(signal.SIGSTOP)
        role.paused_until = time.monotonic() + self.chance.random() * STILL_S_MAX
        self.did["processes that stood still"] += 1

    def _part(self) -> None:
        number, _ = self._a_store()
        way = self.chance.choice((Way.NONE, Way.TO_STORE, Way.FROM_STORE))
        self.stand.proxies.turn(number, way)
        self._lasting(APART_S_MAX, lambda: self.stand.proxies.turn(number, Way.BOTH))
        self.did[PARTITIONS] += 1

    def _cut(self) -> None:
        number, _ = self._a_store()
        self.stand.proxies.cut(number)
        self.did["links cut"] += 1

    def _fill(self) -> None:
        _, role = self._a_store()
        path = self.stand.places[role.name].with_suffix(f".{FULL}")
        path.touch()
        self._lasting(FULL_S_MAX, lambda: path.unlink(missing_ok=True))
        self.did["disks filled"] += 1

    def _fail(self) -> None:
        _, role = self._a_store()
        self.stand.places[role.name].with_suffix(f".{FAILS}").touch()
        self.did["syncs that failed"] += 1
