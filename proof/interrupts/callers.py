"""Queue managers that are struck in their calls, and go on at once.

Run in a forked process. Nobody serves the queue. Each call that was struck is a doubt: its
elements are there once or never, all or none. The result of a call that returned holds, whatever
was struck since. Another thread uses the same manager, and is never disturbed.
"""

from __future__ import annotations

import random
import threading
from typing import TYPE_CHECKING, Any, Final

import msgspec
import psycopg

import onceq
from onceq.errors import OnceqError
from onceq.model.element import KillAnswer
from proof.clients.ground import REPOSITORY
from proof.interrupts.lives import ASYNC, Count, opened
from proof.interrupts.striking import Striker, Struck

if TYPE_CHECKING:
    from uuid import UUID

    from proof.clients.ground import Ground

HELD: Final = onceq.Queue("held", str, str, keep_body=True)
_PLACES: Final = f"""
    select body, 'queued' from {REPOSITORY}.element where queue_id = %s
    union all select body, outcome::text from {REPOSITORY}.history where queue_id = %s
"""


class Ledger(msgspec.Struct, kw_only=True):
    """What a caller was asked to do. may: by body, where it may be in the end, "": nowhere.

    joint: bodies that are there all, or none.
    """

    may: dict[str, list[str]] = {}
    joint: list[list[str]] = []


class Caller:
    """A caller under strikes. known: the eids of what is certainly in the queue, by body."""

    def __init__(self, ground: Ground, name: str, seed: str) -> None:
        self.name = name
        self.striker = Striker(random.Random(seed))  # a seeded schedule, no secret
        self._chance = random.Random(f"{seed} calls")  # as above
        self._qm: Any = opened(ground, self.striker, is_async=name.startswith(ASYNC))
        self.ledger = Ledger()
        self._known: dict[str, UUID] = {}
        self._number = 0
        self.wrong: list[str] = []

    def live(self, share: int) -> None:
        """Makes calls until they were struck often enough."""
        calls = (self._enqueue, self._enqueue, self._enqueue_many, self._kill, self._dequeue)
        while self.striker.made.total() < share and not self.wrong:
            call = self._chance.choice(calls)
            try:
                call()
            except Struck:
                continue
            except OnceqError as error:
                if not self.striker.last:
                    text = f"{type(error).__name__} out of a call that was not struck: {error}"
                    self.wrong.append(f"{self.name}: {text}")
        self.striker.is_off = True
        self._ask()

    def close(self) -> None:
        """Closes the manager, once nobody uses it any more."""
        self._qm.close()

    def _body(self) -> str:
        self._number += 1
        body = f"{self.name} {self._number}"
        self.ledger.may[body] = ["", "queued"]
        return body

    def _is_there(self, body: str, eid: UUID) -> None:
        self.ledger.may[body] = ["queued"]
        self._known[body] = eid

    def _enqueue(self) -> None:
        body = self._body()
        self._is_there(body, self._qm.enqueue(HELD, body))

    def _enqueue_many(self) -> None:
        bodies = [self._body() for _ in range(3)]
        self.ledger.joint.append(bodies)
        for body, eid in zip(bodies, self._qm.enqueue_many(HELD, bodies), strict=True):
            self._is_there(body, eid)

    def _take(self, outcome: str) -> tuple[str, UUID] | None:
        """Returns an element that is certainly there; from now it may become something else."""
        if not self._known:
            return None
        body = self._chance.choice(list(self._known))
        self.ledger.may[body] = ["queued", outcome]
        return body, self._known.pop(body)

    def _kill(self) -> None:
        if (one := self._take("cancelled")) is None:
            return
        body, eid = one
        try:
            answer = self._qm.kill(eid)
        except Struck:
            answer = self._qm.kill(eid)  # and if that is struck too, nobody knows
        self.ledger.may[body] = ["cancelled"]
        if answer is not KillAnswer.KILLED:
            self.wrong.append(f"{self.name}: a kill of {body!r} said {answer}")

    def _dequeue(self) -> None:
        if (one := self._take("dequeued")) is None:
            return
        body, eid = one
        element = self._qm.dequeue(HELD.name, eid=eid)
        self.ledger.may[body] = ["dequeued"]
        if element is None or element.eid != eid:
            self.wrong.append(f"{self.name}: a dequeue of {body!r} gave {element}")

    def _ask(self) -> None:
        """A lookup must say of each element that is certainly there that it is."""
        for body, eid in self._known.items():
            found = [one.state for one in self._qm.lookup(eid=eid)]
            if found != ["queued"]:
                self.wrong.append(f"{self.name}: {body!r} is queued, and lookup says {found}")


class _Neighbour(threading.Thread):
    """Another thread, which uses the same manager; strikes at the first do not concern it."""

    def __init__(self, caller: Caller) -> None:
        super().__init__(daemon=True)
        self._caller = caller
        self._qm = caller._qm._inner  # noqa: SLF001 # the manager itself, whose calls nobody strikes
        self.over = threading.Event()

    def run(self) -> None:
        number = 0
        while not self.over.is_set():
            number += 1
            body = f"{self._caller.name} neighbour {number}"
            try:
                eid = self._qm.enqueue(HELD, body)
                there = len(self._qm.lookup(eid=eid))
            except OnceqError as error:
                self._caller.wrong.append(f"{body}: {type(error).__name__}: {error}")
                return
            self._caller.ledger.may[body] = ["queued"]
            if there != 1:
                self._caller.wrong.append(f"{body}: lookup found it {there} times")


def manage(ground: Ground, name: str, seed: str, share: int) -> Count:
    """Lives as a caller that is struck; what it was asked for is written down."""
    caller = Caller(ground, name, seed)
    neighbour = None if name.startswith(ASYNC) else _Neighbour(caller)
    if neighbour is not None:
        neighbour.start()
    try:
        caller.live(share)
    finally:
        if neighbour is not None:
            neighbour.over.set()
            neighbour.join()
    caller.close()
    (ground.place / f"{name}.ledger.json").write_bytes(msgspec.json.encode(caller.ledger))
    return Count(made=dict(caller.striker.made), missed=caller.striker.missed, wrong=caller.wrong)


def judged(ground: Ground, name: str) -> list[str]:
    """Returns what is not where it may be."""
    content = (ground.place / f"{name}.ledger.json").read_bytes()
    ledger = msgspec.json.decode(content, type=Ledger)
    with onceq.open(ground.url, repository=REPOSITORY) as qm:
        number = qm.show(HELD.name).queue_id
    there: dict[str, list[str]] = {}
    with psycopg.connect(ground.url) as connection:
        for body, place in connection.execute(_PLACES.encode(), [number, number]):
            there.setdefault(msgspec.json.decode(body, type=str), []).append(place)
    wrong = [
        f"{name}: {body!r} is {places}, and may be {may}"
        for body, may in ledger.may.items()
        if (places := there.get(body, [""])) not in [[one] for one in may]
    ]
    for bodies in ledger.joint:
        present = sum(body in there for body in bodies)
        if present not in {0, len(bodies)}:
            wrong.append(f"{name}: of {bodies} {present} are there")
    strangers = [one for one in there if one.startswith(f"{name} ") and one not in ledger.may]
    return wrong + [f"{name}: {one!r} is there, and nobody enqueued it" for one in strangers]
