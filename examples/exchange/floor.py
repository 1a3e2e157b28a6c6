"""The floor of the exchange while it works: its parts, and what is done to them.

Used by the runner. `Floor` looks, and starts again what ended unasked; `Striker` strikes what is
due, and sees when the part was at work again: it has done something that it had not done before.
"""

from __future__ import annotations

import dataclasses
import shutil
import socket
from typing import TYPE_CHECKING, Final

from examples.exchange.faults import POSTGRES, STORES, Deed, Strike, Struck
from examples.exchange.feed import SUCCEEDED
from examples.exchange.market import FEEDS

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from examples.exchange.database import Database
    from examples.exchange.market import RunDirectory, Setup
    from examples.running.child import Child
    from examples.running.progress import Display

RESTARTS_MAX: Final = 20
CONNECT_S: Final = 0.2
COUNTED: Final = {
    **dict.fromkeys(FEEDS, "stable"),
    "mover": "lines",
    "tape": "taped",
}
"""By which of its counts a part is seen to work; the others are by what is booked or filed."""


class GivenUp(Exception):
    """The run cannot go on; the text says why."""


@dataclasses.dataclass(slots=True)
class Floor:
    """The parts of a run, by name, and what was last seen of them. frozen: lives of feeds."""

    directory: RunDirectory
    setup: Setup
    database: Database
    parts: dict[str, Child]
    totals: Mapping[str, int]
    booked: int = 0
    frozen: list[Child] = dataclasses.field(default_factory=list["Child"])
    unasked: list[str] = dataclasses.field(default_factory=list[str])

    @property
    def children(self) -> list[Child]:
        """All that has been started, and may run."""
        return [*self.parts.values(), *self.frozen]

    def count(self, name: str, of: str) -> int:
        """What a part has told last."""
        return self.parts[name].counts.get(of, 0)

    def told(self, of: str) -> dict[str, int]:
        """What each feed has told last."""
        return {feed: self.count(feed, of) for feed in FEEDS}

    @property
    def sent(self) -> int:
        return sum(self.told("sent").values())

    @property
    def stable(self) -> int:
        return sum(self.told("stable").values())

    @property
    def filed(self) -> int:
        return self.count("mover", "lines")

    @property
    def is_done(self) -> bool:
        """Whether every bar is stable, booked and taped, and every move in the file."""
        return (
            all(self.has_fed(feed) for feed in FEEDS)
            and self.is_taped
            and self.booked >= self.totals["bars"]
            and self.filed >= self.totals["moves"]
        )

    @property
    def is_taped(self) -> bool:
        """Whether every bar is on a tape: no life of it is shown any more."""
        return all(self.count("tape", feed) >= self.totals[feed] for feed in FEEDS)

    def look(self) -> None:
        """Looks how much is booked, and starts again what ended without being asked."""
        found = self.database.booked()
        if found is not None:
            self.booked = found
        for name, part in self.parts.items():
            if not part.is_running:
                self.unasked.append(f"{name}, exit code {part.exit_code}")
                if len(self.unasked) > RESTARTS_MAX:
                    raise GivenUp(f"{name} keeps ending; its log ends with\n{part.log_tail()}")
                part.start()

    def work(self, target: str) -> int:
        """What a part has done so far."""
        if target in COUNTED:
            return self.count(target, COUNTED[target])
        return self.filed if target == "relay" else self.booked

    def is_ready(self, target: str) -> bool:
        """Whether a part is there."""
        if target in STORES:
            return _listens(self.setup.stores[STORES.index(target)])
        return target == POSTGRES or self.parts[target].is_ready

    def is_at_work(self, target: str) -> bool:
        """Whether a part is there, and has something left to do."""
        if target in FEEDS:
            return self.parts[target].is_running and self.is_ready(target)
        return self.booked < self.totals["bars"] and self.is_ready(target)

    def has_fed(self, target: str) -> bool:
        """Whether a part is a feed that has nothing left to do: there is nothing left to strike."""
        return target in FEEDS and self.work(target) >= self.totals[target]

    def wipe(self, store: str) -> None:
        """Kills a store, deletes what it has, and starts it anew."""
        part = self.parts[store]
        part.kill()
        shutil.rmtree(self.directory.store(STORES.index(store) + 1))
        part.start()


def _listens(address: str) -> bool:
    host, _, port = address.rpartition(":")
    try:
        with socket.create_connection((host, int(port)), CONNECT_S):
            return True
    except OSError:
        return False


@dataclasses.dataclass(slots=True)
class Watched:
    """A strike whose part is not yet at work again. work: what it had done by then."""

    place: int
    work: int
    frozen: Child | None = None


@dataclasses.dataclass(slots=True)
class Striker:
    """Strikes one after the other, each part once at a time. `step` never waits long."""

    floor: Floor
    display: Display
    pending: list[Strike]
    successor: Callable[[str], Child]
    struck: list[Struck] = dataclasses.field(default_factory=list[Struck])
    missed: list[Strike] = dataclasses.field(default_factory=list[Strike])
    fenced: int = 0
    not_fenced: list[str] = dataclasses.field(default_factory=list[str])
    _due_s: float | None = None
    _watched: list[Watched] = dataclasses.field(default_factory=list[Watched])
    _thawed: list[Child] = dataclasses.field(default_factory=list["Child"])

    @property
    def is_idle(self) -> bool:
        """Whether all that was struck is at work again."""
        return not self._watched and not self._thawed

    def step(self) -> None:
        """Strikes what is due; watches what was struck."""
        self._watched = [one for one in self._watched if not self._is_over(one)]
        self._thawed = [one for one in self._thawed if not self._has_ended(one)]
        while self.pending and self.floor.has_fed(self.pending[0].target):
            self.missed.append(self._next())
        if self._is_due() and self._strike(self.pending[0]):
            self._next()

    def _next(self) -> Strike:
        self._due_s = None
        return self.pending.pop(0)

    def _is_due(self) -> bool:
        if not self.pending:
            return False
        now, strike = self.display.seconds, self.pending[0]
        if self._due_s is None and self.floor.booked >= strike.share * self.floor.totals["bars"]:
            self._due_s = now + strike.delay_s
        return self._due_s is not None and now >= self._due_s

    def _strike(self, strike: Strike) -> bool:
        """Strikes if the part is at work; False when it is not, now."""
        floor, target = self.floor, strike.target
        busy = {self.struck[one.place].target for one in self._watched}
        if target in busy or not floor.is_at_work(target):
            return False
        if strike.deed is not Deed.KILL and busy:
            return False  # one store wiped, and another one's disk is there
        watched = Watched(len(self.struck), floor.work(target))
        self.struck.append(
            Struck(deed=strike.deed, target=target, at_s=self.display.seconds, booked=floor.booked)
        )
        self.display.note(f"{target}: {strike.deed}, {floor.booked:,} booked")
        match strike.deed:
            case Deed.WIPE:
                floor.wipe(target)
            case Deed.FREEZE:
                watched.frozen = floor.parts[target]
                watched.frozen.freeze()
                floor.frozen.append(watched.frozen)
                floor.parts[target] = self.successor(target)
                floor.parts[target].counts = dict(watched.frozen.counts)
                floor.parts[target].start()
            case Deed.KILL if target == POSTGRES:
                floor.database.kill_postmaster()
            case Deed.KILL:
                floor.parts[target].kill()
                floor.parts[target].start()
        self._watched.append(watched)
        return True

    def _is_over(self, one: Watched) -> bool:
        struck = self.struck[one.place]
        target = struck.target
        taped = target == "tape" and (self.floor.work(target) > 0 or self.floor.is_taped)
        goes_on = self.floor.is_ready(target) and (taped or self.floor.work(target) > one.work)
        if not (goes_on or self.floor.has_fed(target)):
            return False
        took_s = self.display.seconds - struck.at_s
        self.struck[one.place] = dataclasses.replace(struck, recovery_s=took_s)
        self.display.note(f"{target}: at work again after {took_s:.1f} s")
        if one.frozen is not None:
            one.frozen.thaw()
            self._thawed.append(one.frozen)
        return True

    def _has_ended(self, frozen: Child) -> bool:
        """Whether a feed that was thawed has found out that it has a successor."""
        if frozen.is_running:
            return False
        if frozen.exit_code == SUCCEEDED:
            self.fenced += 1
            self.display.note(f"{frozen.name}: thawed, and fenced")
        else:
            self.not_fenced.append(f"{frozen.name}, exit code {frozen.exit_code}")
        return True
