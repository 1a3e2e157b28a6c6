"""The shop floor while it works: its children and its database, and the strikes upon them.

Used by the runner. `Floor` looks, starts again what ended unasked, and says who is at work;
`Striker` strikes what is due and sees when it has been recovered from. Recovered means that the
work goes on: after a strike at the driver or the postmaster that further orders are booked, after
one at a client that its next life has recorded a receipt.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from examples.cdnow.faults import CLIENT, DRIVER, POSTMASTER, Strike, Struck
from onceq.history.events import Fault

if TYPE_CHECKING:
    from collections.abc import Sequence

    from examples.cdnow.database import Database
    from examples.running.child import Child
    from examples.running.progress import Display
    from onceq.history.events import Recorder

RESTARTS_MAX = 20


class GivenUp(Exception):
    """The run cannot go on; the text says why."""


@dataclasses.dataclass(slots=True)
class Floor:
    """The parts of a run, and what was last seen of them. baseline: orders booked when Spark's
    present life, or the database's, was first seen at work; None until then.
    """

    database: Database
    spark: Child
    clients: Sequence[Child]
    shares: Sequence[int]
    booked: int = 0
    baseline: int | None = None
    unasked: list[str] = dataclasses.field(default_factory=list[str])

    @property
    def orders(self) -> int:
        return sum(self.shares)

    @property
    def sent(self) -> int:
        return sum(client.counts.get("sent", 0) for client in self.clients)

    @property
    def received(self) -> int:
        return sum(client.counts.get("received", 0) for client in self.clients)

    @property
    def is_done(self) -> bool:
        return all(client.is_finished for client in self.clients)

    def look(self) -> None:
        """Looks how many orders are booked, and starts again what ended without being asked."""
        found = self.database.booked()
        if found is not None:
            self.booked = found
            if self.baseline is None and self.spark.is_ready:
                self.baseline = found
        for child in (self.spark, *self.clients):
            self._revive(child)

    def _revive(self, child: Child) -> None:
        wanted = child is self.spark or not child.is_finished
        if child.is_running or not wanted:
            return
        self.unasked.append(f"{child.name}, exit code {child.exit_code}")
        if len(self.unasked) > RESTARTS_MAX:
            raise GivenUp(f"{child.name} keeps ending; its log ends with\n{child.log_tail()}")
        self.restart(child)

    def restart(self, child: Child) -> None:
        """Kills a child and starts its next life."""
        child.kill()
        if child is self.spark:
            self.baseline = None
        child.start()

    @property
    def serves(self) -> bool:
        """Whether Spark's present life has booked something, and more is to come."""
        fresh = self.baseline is not None and self.booked > self.baseline
        return self.spark.is_running and fresh and self.booked < self.orders

    def busy_clients(self) -> list[Child]:
        """The clients that are connected and have receipts to come."""
        pairs = zip(self.clients, self.shares, strict=True)
        return [
            client
            for client, share in pairs
            if client.is_running and client.is_ready and client.counts.get("received", 0) < share
        ]


@dataclasses.dataclass(slots=True)
class Striker:
    """Strikes one after the other. `step` is called again and again; it never waits.

    until_s: when the last strike may begin, so that a slow machine has time to recover from it.
    """

    floor: Floor
    display: Display
    pending: list[Strike]
    until_s: float
    recorder: Recorder
    struck: list[Struck] = dataclasses.field(default_factory=list[Struck])
    _due_s: float | None = None
    _victim: Child | None = None
    _recovering: bool = False

    def step(self) -> None:
        """Strikes when a strike is due; then watches for the recovery."""
        if self._recovering:
            self._watch()
        elif self._is_due() and self._strike(self.pending[0]):
            self.pending.pop(0)
            self._recovering = True
            self._due_s = None

    def _is_due(self) -> bool:
        now = self.display.seconds
        if not self.pending or now >= self.until_s:
            return False
        strike = self.pending[0]
        if self._due_s is None and self.floor.booked >= strike.share * self.floor.orders:
            self._due_s = now + strike.delay_s
        return self._due_s is not None and now >= self._due_s

    def _strike(self, strike: Strike) -> bool:
        """Strikes if the target is at work; False when it is not, now."""
        floor = self.floor
        busy = floor.busy_clients()
        if not busy if strike.kind == CLIENT else not floor.serves:
            return False
        at_s = self.display.seconds
        match strike.kind:
            case kind if kind == DRIVER:
                self._victim = floor.spark
                target = f"life {floor.spark.lives}"
                self._tell(floor.spark.name)
                floor.restart(floor.spark)
            case kind if kind == POSTMASTER:
                self._victim = None
                self._tell("postgres")
                target = f"pid {floor.database.kill_postmaster()}"
                floor.baseline = None
            case _:
                self._victim = busy[int(strike.choice * len(busy))]
                target = f"{self._victim.name}, life {self._victim.lives}"
                self._tell(self._victim.name)
                floor.restart(self._victim)
        struck = Struck(kind=strike.kind, target=target, at_s=at_s, booked=floor.booked)
        self.struck.append(struck)
        self.display.note(f"kill -9 {struck.kind} ({struck.target}), {struck.booked:,} booked")
        return True

    def _tell(self, target: str) -> None:
        """Records the kill for the audit: what it may have touched is excused, and nothing else."""
        self.recorder.record(Fault(what="kill -9", target=target))

    def _watch(self) -> None:
        last = self.struck[-1]
        if self._goes_on(last.kind):
            took_s = self.display.seconds - last.at_s
            self.struck[-1] = dataclasses.replace(last, recovery_s=took_s)
            self.display.note(f"{last.kind}: at work again after {took_s:.1f} s")
            self._recovering = False

    def _goes_on(self, kind: str) -> bool:
        if kind == CLIENT and self._victim is not None:
            now, then = self._victim.counts, self._victim.counts_at_ready
            further = now.get("received", 0) > then.get("received", 0)
            return self._victim.is_finished or (self._victim.is_ready and further)
        return self.floor.baseline is not None and self.floor.booked > self.floor.baseline
