"""A valid history, invented from a seed: the checker must find nothing in it.

Used by the part `history` and by the tests of the checker. It tells what onceq promises to do, in
the events that processes record, with everything that may lawfully happen: crashes of clients,
servers and the database, aborts, poison, batches, Spark, kills, expiry, redrives, datagrams,
doubts. Written from the promises (spec 2) alone, apart from the checker: neither uses the other.
One seed is one history. What clients do is in `proof.history.clients`.
"""

from __future__ import annotations

import random
from collections import defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from onceq.history import events as ev
from onceq.history.events import FinalState, Place

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from pathlib import Path

T = TypeVar("T")

ABORT_LIMIT = 3
SERVERS = 6
TICK_NS = 40_000
EFFECT_KEYS = ("booked", "billed", "shipped")


@dataclass(slots=True)
class Sent:
    """A request, or a datagram, on its way. now: the time of whoever follows it, in ns."""

    rid: str
    eid: str
    who: tuple[str, str] | None
    now: int
    aborts: int = 0
    outcome: str = ""
    code: str | None = None
    correlation_id: str | None = None


@dataclass(slots=True)
class History:
    """Events by the file that holds them, and the final state."""

    files: dict[str, list[ev.Event]] = field(
        default_factory=lambda: defaultdict[str, list[ev.Event]](list)
    )
    places: list[Place] = field(default_factory=list[Place])
    effects: list[ev.Effect] = field(default_factory=list[ev.Effect])
    effects_each: int = 1

    def events(self) -> list[ev.Event]:
        """Returns all events, by time."""
        every = [event for events in self.files.values() for event in events]
        every.sort(key=lambda event: event.at)
        return every

    def final(self) -> FinalState:
        """Returns the final state."""
        return FinalState(
            places=tuple(self.places),
            effects=tuple(self.effects),
            effects_each=self.effects_each,
            abort_limit=ABORT_LIMIT,
            all_recorded=True,
        )

    def append_to(self, folder: Path) -> int:
        """Appends to the files in a folder, as its processes would; returns how many events."""
        encoder = msgspec.json.Encoder()
        count = 0
        for name, events in self.files.items():
            events.sort(key=lambda event: event.at)
            _append(folder / f"{name}.events", encoder.encode_lines(events))
            count += len(events)
        _append(folder / ev.PLACES_NAME, encoder.encode_lines(self.places))
        _append(folder / ev.EFFECTS_NAME, encoder.encode_lines(self.effects))
        without = History(effects_each=self.effects_each).final()
        (folder / ev.FINAL_NAME).write_bytes(encoder.encode(without))
        return count


def _append(path: Path, content: bytes) -> None:
    with path.open("ab") as file:
        file.write(content)


class Invention:
    """What the participants of an invented history share. name: of this part of a longer one."""

    def __init__(self, seed: int | str, name: str = "", *, effects_each: int = 1) -> None:
        self.chance = random.Random(f"{seed} {name}")
        self.name = name
        self.history = History(effects_each=effects_each)
        self.transactions = 0

    # --- chance and time ----------------------------------------------------------------------

    def likely(self, probability: float) -> bool:
        """Returns True with this probability."""
        return self.chance.random() < probability

    def one_of(self, choices: Sequence[T]) -> T:
        """Returns one of several."""
        return choices[int(self.chance.random() * len(choices))]

    def eid(self) -> str:
        """Returns a new eid."""
        digits = f"{self.chance.getrandbits(128):032x}"
        return f"{digits[:8]}-{digits[8:12]}-{digits[12:16]}-{digits[16:20]}-{digits[20:]}"

    def tick(self, sent: Sent) -> int:
        """Advances the time of whoever follows a request; returns it."""
        sent.now += 1 + int(self.chance.random() * TICK_NS)
        return sent.now

    def fault(self, what: str, target: str, at: int) -> None:
        """Injects a fault."""
        self.history.files["chaos"].append(ev.Fault(at=at, actor="chaos", what=what, target=target))

    # --- servers ------------------------------------------------------------------------------

    def server(self) -> str:
        """Returns the file, and the name, of a server."""
        return f"server-{int(self.chance.random() * SERVERS)}"

    def execute(self, sent: Sent, server: str) -> None:
        """Begins an execution: the marker, then the handler."""
        who: dict[str, Any] = {"rid": sent.rid, "eid": sent.eid, "actor": server}
        events = self.history.files[server]
        events.append(ev.Started(at=self.tick(sent), **who))
        events.append(ev.Executed(at=self.tick(sent), attempt=sent.aborts + 1, **who))

    def abort(self, sent: Sent, server: str, code: str, *, excused: bool = False) -> None:
        """Ends an execution by an abort, which counts unless it is excused."""
        self.history.files[server].append(
            ev.Aborted(
                at=self.tick(sent),
                actor=server,
                rid=sent.rid,
                eid=sent.eid,
                code=code,
                excused=excused,
            )
        )
        sent.aborts += not excused

    def transaction(self) -> str:
        """Returns a new transaction id."""
        self.transactions += 1
        return f"{self.name}{self.transactions}"

    def commit(self, sent: Sent, xid: str = "") -> None:
        """Ends a request successfully: effects, history, all in one transaction."""
        xid = xid or self.transaction()
        self.history.effects.extend(
            ev.Effect(key=key, rid=sent.rid, eid=sent.eid, xid=xid)
            for key in EFFECT_KEYS[: self.history.effects_each]
        )
        self.end(sent, "done")

    def end(self, sent: Sent, outcome: str, code: str | None = None) -> None:
        """Writes the history row; what failed is held in its error queue."""
        sent.outcome, sent.code = outcome, code
        self.tick(sent)
        self.history.places.append(self.place(sent))
        if outcome == "failed":
            self.history.places.append(self.place(sent, role="failed", state="held"))

    def place(self, sent: Sent, *, role: str = "", state: str = "finished") -> Place:
        """Returns a row of the requests view."""
        registrant, thread = sent.who or (None, None)
        return Place(
            registrant=registrant,
            thread=thread,
            rid=sent.rid,
            eid=sent.eid,
            role=role or ("datagram" if sent.who is None else "request"),
            state=state,
            outcome=sent.outcome if state == "finished" else None,
            aborts=sent.aborts,
            code=sent.code,
            correlation_id=sent.correlation_id,
        )

    # --- what may become of a request ---------------------------------------------------------

    def way(self) -> tuple[Callable[[Invention, Sent], None], str | None]:
        """Returns one of the ways in which a request may go, and its end if that is certain."""
        chosen = self.one_of(WAYS)
        return chosen, ENDS.get(chosen)

    def plain(self, sent: Sent) -> None:
        """The handler returns, the transaction commits."""
        self.execute(sent, self.server())
        self.commit(sent)

    def flaky(self, sent: Sent) -> None:
        """The handler raises, once or twice, and then does not."""
        for _ in range(self.one_of((1, 1, ABORT_LIMIT - 1))):
            server = self.server()
            self.execute(sent, server)
            self.abort(sent, server, "ValueError")
        self.plain(sent)

    def excused(self, sent: Sent) -> None:
        """The environment fails, or the handler asks for a retry: nobody is charged."""
        for _ in range(self.one_of((1, 2, 6))):
            server = self.server()
            self.execute(sent, server)
            self.abort(sent, server, self.one_of(("Retry", "40001", "53100")), excused=True)
        self.plain(sent)

    def server_dies(self, sent: Sent) -> None:
        """A server dies at work: what it had started is charged."""
        server = self.server()
        self.execute(sent, server)
        self.fault("kill -9", server, self.tick(sent))
        sent.aborts += 1
        self.plain(sent)

    def database_dies(self, sent: Sent) -> None:
        """The database dies: nobody is charged."""
        self.execute(sent, self.server())
        self.fault("postmaster kill -9", "database", self.tick(sent))
        self.plain(sent)

    def poison(self, sent: Sent) -> None:
        """It fails at every attempt, and then for good."""
        for _ in range(ABORT_LIMIT):
            server = self.server()
            self.execute(sent, server)
            if self.likely(0.5):
                self.abort(sent, server, "ValueError")
            else:
                self.fault("kill -9", server, self.tick(sent))
                sent.aborts += 1
        self.end(sent, "failed", "ValueError")

    def rejected(self, sent: Sent) -> None:
        """The handler rejects it: it fails at once."""
        server = self.server()
        self.execute(sent, server)
        self.abort(sent, server, "Reject")
        self.end(sent, "failed", "Reject")

    def expired(self, sent: Sent) -> None:
        """Nobody came to it in time."""
        self.end(sent, "expired", "expired")

    def killed_first(self, sent: Sent) -> None:
        """A kill comes before any execution, and is repeated."""
        self.kill(sent, "KILLED")
        self.end(sent, "cancelled", "killed")
        if self.likely(0.5):
            self.kill(sent, "KILLED")

    def killed_at_work(self, sent: Sent) -> None:
        """A kill comes while the handler runs: its transaction is undone."""
        self.execute(sent, self.server())
        self.kill(sent, "KILLED")
        self.end(sent, "cancelled", "killed")

    def killed_too_late(self, sent: Sent) -> None:
        """A kill waits for the row beyond its deadline; another comes after the commit."""
        killer = self.history.files["killer"]
        who = {"actor": "killer", "rid": sent.rid, "eid": sent.eid}
        killer.append(ev.KillBegun(at=self.tick(sent), **who))
        self.execute(sent, self.server())
        killer.append(ev.KillFailed(at=self.tick(sent), unknown=False, **who))
        self.commit(sent)
        self.kill(sent, "TOO_LATE")

    def kill(self, sent: Sent, answer: str) -> None:
        """Kills, by its eid."""
        killer = self.history.files["killer"]
        who = {"actor": "killer", "rid": sent.rid, "eid": sent.eid}
        killer.append(ev.KillBegun(at=self.tick(sent), **who))
        killer.append(ev.KillAnswered(at=self.tick(sent), answer=answer, **who))

    def batch(self, every: Iterable[Sent], server: str) -> None:
        """Executes many in one transaction: a batch server's, or a micro-batch of Spark.

        With Spark the first try may end with the driver: it is replayed.
        """
        several = list(every)
        if server == "spark" and self.likely(0.1):
            for sent in several:
                self.execute(sent, server)
            self.fault("kill -9", "spark", several[-1].now + 1)
        xid = self.transaction()
        for sent in several:
            self.execute(sent, server)
        last = max(sent.now for sent in several)
        for sent in several:
            sent.now = last
            self.commit(sent, xid)

    # --- what owes no reply -------------------------------------------------------------------

    def datagrams(self, count: int) -> None:
        """Enqueues datagrams, some of which fail and are redriven as themselves."""
        feeder = self.history.files["feeder"]
        for number in range(count):
            sent = Sent(f"{self.name}d{number}", self.eid(), None, 1000 + number * TICK_NS)
            feeder.append(ev.EnqueueBegun(at=self.tick(sent), actor="feeder", rid=sent.rid))
            ok = ev.Enqueued(at=self.tick(sent), actor="feeder", rid=sent.rid, eid=sent.eid)
            feeder.append(ok)
            way, _ = self.way()
            way(self, sent)
            if sent.outcome == "failed" and self.likely(0.5):
                self.redrive(sent)

    def redrive(self, sent: Sent) -> None:
        """Runs again what is held: a request as a new datagram, a datagram as itself."""
        self.history.places.pop()  # the row of its error queue, which `end` has just added
        new = Sent(sent.rid, sent.eid, None, sent.now)
        if sent.who is not None:
            new.eid = new.rid = self.eid()
            new.correlation_id = sent.eid
        redriven = ev.Redriven(
            at=self.tick(sent),
            actor="operator",
            rid=sent.rid,
            eid=sent.eid,
            new_rid=new.rid,
            new_eid=new.eid,
        )
        self.history.files["operator"].append(redriven)
        self.plain(new)


WAYS = (
    *[Invention.plain] * 70,
    *[Invention.flaky] * 4,
    *[Invention.excused] * 3,
    *[Invention.server_dies] * 3,
    *[Invention.database_dies] * 2,
    *[Invention.poison] * 3,
    *[Invention.rejected] * 2,
    *[Invention.expired] * 3,
    *[Invention.killed_first] * 2,
    *[Invention.killed_at_work] * 2,
    *[Invention.killed_too_late] * 2,
)
"""How many of a hundred requests go which way."""

ENDS: dict[Callable[[Invention, Sent], None], str] = {
    Invention.plain: "done",
    Invention.flaky: "done",
    Invention.excused: "done",
    Invention.server_dies: "done",
    Invention.database_dies: "done",
    Invention.killed_too_late: "done",
    Invention.poison: "failed",
    Invention.rejected: "failed",
}
"""How a request that goes this way must end."""
