"""One life of a client: it recovers, goes on, and dies at a step that was chosen before.

Run in a forked process. It is told only its name and where its ledger is. What it
concludes is compared with the truth before and after `recover`: the server may have gone on in
between, but nobody else.
"""

from __future__ import annotations

import abc
import contextlib
import os
import sqlite3
import sys
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import psycopg

import onceq
from onceq.clerk.ledger.sqlite import SqliteExecutor
from onceq.engine.connect.ledger import LinkExecutor, OwnExecutor
from onceq.engine.perform.driver import PostgresDriver
from onceq.model.recovery import TRANSITIONS, Move
from onceq.testing.device import Device
from proof.clients.ground import ORDERS, REPOSITORY, Ground, append, truth
from proof.harness.steps import Death

if TYPE_CHECKING:
    from collections.abc import Generator
    from pathlib import Path

SESSIONS: Final = ("reply queue", "session")
LEDGERS: Final = ("sqlite", "same database", "other database", "queue")
VARIANTS: Final = (*SESSIONS, *LEDGERS)
NAIVE: Final = "a new rid after each death"
TIMEOUT_S: Final = 20.0
NEVER: Final = sys.maxsize
LETTERS: Final[dict[type[onceq.Recovery], str]] = {
    onceq.NotSubmitted: "A",
    onceq.Submitted: "B",
    onceq.ReplyWaiting: "C",
    onceq.Done: "D",
    onceq.WentBack: "E",
    onceq.CannotTell: "ABD",
}


WATCHED: Final = (
    (PostgresDriver, "perform"),
    (SqliteExecutor, "execute"),
    (LinkExecutor, "execute"),
    (OwnExecutor, "execute"),
)


@dataclass(slots=True)
class Errand:
    """What a life begins with. death: at which step. requests: it ends after this many."""

    ground: Ground
    variant: str
    client: str
    death: int
    requests: int = NEVER
    steps: Death = field(init=False)

    def __post_init__(self) -> None:
        self.steps = Death(self.death)


@contextlib.contextmanager
def watched(errand: Errand) -> Generator[onceq.QueueManager]:
    """A queue manager of a life that dies at its step."""
    for owner, method in WATCHED:
        errand.steps.watch(owner, method)
    with onceq.open(errand.ground.url, repository=REPOSITORY) as qm:
        yield qm


def live(errand: Errand) -> None:
    """Lives until death, or until the last request is processed."""
    with watched(errand) as qm:
        if errand.variant == NAIVE:
            _send_anew(errand, qm)
        else:
            client_of(errand, qm).live()


def client_of(errand: Errand, qm: onceq.QueueManager) -> Living:
    """Returns the client of a variant, not yet begun."""
    made = Sessioned if errand.variant in SESSIONS else Ledgered
    return made(errand, qm)


def _send_anew(errand: Errand, qm: onceq.QueueManager) -> None:
    """The control: after a death it sends whatever has no reply again, under another rid."""
    lines = errand.ground.place / f"{errand.client}.lines"
    with qm.clerk(errand.client, ORDERS, window=100_000) as clerk:
        number = len(_numbers(lines)) + 1
        while number <= errand.requests:  # until it is killed
            rid = f"{number} by {os.getpid()}"
            clerk.send(rid, f"{errand.client} {number}")
            clerk.receive(rid=rid, timeout_s=TIMEOUT_S)
            append(lines, str(number))
            number += 1


class Living(abc.ABC):
    """What all variants do alike."""

    def __init__(self, errand: Errand, qm: onceq.QueueManager) -> None:
        self.errand = errand
        self.qm = qm
        self.client = errand.client
        self._eye = psycopg.connect(errand.ground.url, autocommit=True)

    @abc.abstractmethod
    def is_processed(self, number: int) -> bool:
        """Returns whether the reply was processed, according to where that is recorded."""

    @abc.abstractmethod
    def live(self) -> None:
        """Finds out where it stands, and goes on until the last request is processed."""

    def true_state(self, number: int) -> str:
        """Returns the truth about a request."""
        done = self.is_processed(number)
        return truth(self._eye, self.client, number, is_processed=done) if number else "A"

    def compare(self, found: onceq.Recovery, number: int, before: str) -> None:
        """Compares what recovery said with the truth, which may have gone on meanwhile."""
        after = self.true_state(number)
        letter = LETTERS[type(found)]
        rid = int(found.rid or 0)
        allowed = {before, after}
        if "A" in allowed:  # it may not be recorded yet: then the one before it is the last
            is_right = (letter, rid) in {("A", number), ("D", number - 1)} or (
                rid == 0 and letter == "A" and number <= 1
            )
            is_right = is_right or (letter == "A" and rid == 0 and self.may_be_discarded)
        else:
            is_right = letter in allowed and rid == number
        moved = before == after or (before, Move.EXECUTED) in TRANSITIONS
        self.note(letter if is_right and moved else "WRONG", (before, after, letter, found))

    may_be_discarded = False

    def note(self, what: str, about: tuple[Any, ...]) -> None:
        """Records the result of a recovery."""
        text = f"{what} {self.errand.variant}: {about!r}" if what == "WRONG" else what
        append(self.errand.ground.place / f"{self.client}.states", text)


class Sessioned(Living):
    """Nothing is stored by the client: the session, or the reply queue alone, and a device."""

    def __init__(self, errand: Errand, qm: onceq.QueueManager) -> None:
        super().__init__(errand, qm)
        self._lines = errand.ground.place / f"{self.client}.lines"
        self._device = Device(self._lines)
        self._clerk = qm.clerk(self.client, ORDERS)

    def is_processed(self, number: int) -> bool:
        """Whether the device has printed it."""
        return str(number) in self._lines.read_text().split()

    def live(self) -> None:
        """The program of BHM90 figure 2, with a testable device."""
        clerk = self._clerk.connect()
        alone = self.errand.variant == "reply queue"
        number = self._resume_alone() if alone else self._resume()
        while number <= self.errand.requests:  # until it is killed
            self.errand.ground.mean(self.client, number)
            clerk.send(str(number), f"{self.client} {number}")
            self._process()
            number += 1
        clerk.close()

    def _process(self) -> None:
        state = self._device.state()
        reply = self._clerk.receive(state, timeout_s=TIMEOUT_S)
        self.errand.steps.step()
        self._device.output(reply.rid)
        self.errand.steps.step()

    def _resume(self) -> int:
        """Goes on where the former life stopped; returns the next number."""
        meant = self.errand.ground.meant(self.client)
        before = self.true_state(meant)
        found = self._clerk.recover()
        tested = isinstance(found, onceq.Done) and found.ckpt == self._device.state()
        if tested and found.rid == str(meant):  # received, and the device says: not processed
            is_right = before == "C"
            self.note("C" if is_right else "WRONG", (before, found))
        else:
            self.compare(found, meant, before)
        match found:
            case onceq.NotSubmitted():
                return 1
            case onceq.Submitted() | onceq.ReplyWaiting():
                self._process()
            case _ if tested:
                self._device.output(self._clerk.rereceive().rid)
            case _:
                pass
        return int(found.rid or 0) + 1

    def _resume_alone(self) -> int:
        """The same, by the reply queue alone; where that cannot tell, history is asked."""
        meant = self.errand.ground.meant(self.client)
        before = self.true_state(meant)
        found = self._clerk.recover(by="reply queue")
        after = self.true_state(meant)
        waits = isinstance(found, onceq.ReplyWaiting)
        states = {before, after}
        if waits:  # for this one, or still for the one before it, which was printed
            is_this = found.rid == str(meant) and ("C" in states or "D" in states)
            is_right = is_this or (found.rid == str(meant - 1) and before == "A")
        else:
            is_right = before != "C"
        self.note(LETTERS[type(found)] if is_right else "WRONG", (before, after, found))
        number = len(self._lines.read_text().split()) + 1
        if waits and int(found.rid or 0) < number:  # it was printed already
            return self._printed(found.rid or "", number)
        asked = self._clerk.recover(str(number), by="history")
        if meant == number:
            self.compare(asked, number, self.true_state(number) if waits else before)
        match asked:
            case onceq.NotSubmitted():
                return number
            case onceq.Submitted() | onceq.ReplyWaiting():
                self._take_or_reread()
            case _:
                self.note("WRONG", (before, asked, "finished, and its reply is nowhere"))
        return number + 1

    def _take_or_reread(self) -> None:
        """Processes a reply, which the session may count as received by the former life."""
        if self._clerk.state is onceq.ClientState.REQ_SENT:
            self._process()
        else:
            self._device.output(self._clerk.rereceive().rid)

    def _printed(self, rid: str, number: int) -> int:
        if self._clerk.state is onceq.ClientState.REQ_SENT:
            self._clerk.receive(timeout_s=TIMEOUT_S, rid=rid)
        return number


class Ledgered(Living):
    """A ledger, in which the client's own work is recorded too."""

    def __init__(self, errand: Errand, qm: onceq.QueueManager) -> None:
        super().__init__(errand, qm)
        self._path = errand.ground.place / f"{self.client}.ledger"
        ledger = errand.ground.ledger(errand.variant, self.client)
        self._clerk = qm.clerk(self.client, ORDERS, ledger=ledger)
        self.may_be_discarded = True

    def is_processed(self, number: int) -> bool:
        """Whether it is recorded where the ledger is."""
        return number in rows_of(self.errand, "processed")

    def live(self) -> None:
        """Recovers, then sends and processes one request after the other."""
        clerk = self._clerk.connect()
        if self.errand.variant == "sqlite":
            self._make_tables()
        number = self._resume()
        while number <= self.errand.requests:  # until it is killed
            self.errand.ground.mean(self.client, number)
            if number % 3 == 1:
                with clerk.transaction() as work:
                    self.put_down(work, "worked", number)
                    work.send(str(number), f"{self.client} {number}")
            else:
                clerk.send(str(number), f"{self.client} {number}")
            self.sent(number)
            self._process()
            number += 1
        clerk.close()

    def sent(self, number: int) -> None:
        """Is told that the send of a request was acknowledged."""

    def _make_tables(self) -> None:
        """In the ledger's own file, so that its rows commit with the ledger."""
        with sqlite3.connect(self._path, isolation_level=None) as connection:
            for name in ("processed", "worked"):
                connection.execute(
                    f"create table if not exists {name} (client text, number integer, pid integer)"
                )
        connection.close()

    def put_down(self, work: Any, table: str, number: int) -> None:
        """Writes a row in the client's transaction: one for each, if all is well."""
        self.errand.steps.step()
        mark = "?, ?, ?" if self.errand.variant == "sqlite" else "%s, %s, %s"
        row = (self.client, number, os.getpid())
        work.connection.execute(f"insert into {table} values ({mark})", row)
        self.errand.steps.step()

    def _process(self) -> None:
        reply = self._clerk.receive(timeout_s=TIMEOUT_S)
        with self._clerk.transaction() as work:
            self.put_down(work, "processed", int(reply.value))
            work.done(reply)
        self.errand.steps.step()

    def _resume(self) -> int:
        """Goes on where the former life stopped; returns the next number."""
        meant = self.errand.ground.meant(self.client)
        before = self.true_state(meant)
        found = self._clerk.recover()
        self.compare(found, meant, before)
        return self.go_on(found, meant)

    def go_on(self, found: onceq.Recovery, meant: int) -> int:
        """Does what comes next in the state that was found; returns the next number."""
        number = int(found.rid or 0)
        match found:
            case onceq.NotSubmitted(rid=None):
                return meant or 1
            case onceq.NotSubmitted():
                if not self._decide(number):
                    return number
                self._process()
            case onceq.Submitted() | onceq.ReplyWaiting():
                self._process()
            case _:
                pass
        return number + 1

    def _decide(self, number: int) -> bool:
        """Applies each policy in turn to what was not submitted; False if it was given up."""
        match number % 3:
            case 0:
                self._clerk.recover(policy="discard")
                return False
            case 1:
                self._clerk.recover(policy="resubmit")
            case _:
                self._clerk.resubmit()
        return True


def rows_of(errand: Errand, table: str) -> list[int]:
    """Returns the numbers that a client has written to a table, wherever that is."""
    query = f"select number from {table} where client = "
    if errand.variant in {*SESSIONS, NAIVE}:
        return _numbers(errand.ground.place / f"{errand.client}.lines")
    if errand.variant == "sqlite":
        path = errand.ground.place / f"{errand.client}.ledger"
        file = sqlite3.connect(path)
        found = file.execute(f"{query}?", (errand.client,)).fetchall()
        file.close()
        return [number for (number,) in found]
    url = errand.ground.other if errand.variant == "other database" else errand.ground.url
    with psycopg.connect(url) as connection:
        found = connection.execute(f"{query}%s".encode(), (errand.client,)).fetchall()
    return [number for (number,) in found]


def _numbers(path: Path) -> list[int]:
    return [int(line) for line in path.read_text().split()] if path.exists() else []
