"""What recovered from a cut, judged against what had been acknowledged before it.

For this package only. Invariants: what was acknowledged before the cut began must be there; what
was begun before the cut had ended may be. So nothing is asked of the copy that a power cut might
rightly have taken.
"""

from __future__ import annotations

import dataclasses
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import onceq
from onceq.engine.embedded.locks import Deadline, poll_until
from onceq.history import check
from onceq.history.events import (
    AcknowledgeBegun,
    ClientEvent,
    DisconnectBegun,
    Executed,
    KillBegun,
    ReceiveBegun,
    Recorder,
    ReplyEvent,
    SendBegun,
    SendOk,
    load,
)
from onceq.model.client_state import ClientState
from proof.harness.ledger import final_state
from proof.harness.orders import RecordedClerk
from proof.powercut.load import REPOSITORY, WINDOWS
from proof.powercut.participant import ABORT_LIMIT, handled, queue

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator
    from pathlib import Path

    from onceq.history.events import Event, FinalState
    from proof.powercut.drive import Cut

BEGINNINGS = (SendBegun, ReceiveBegun, AcknowledgeBegun, DisconnectBegun)
_FINISH_S = 60.0
_SHOWN = 10

Rid = tuple[str, str]
"""(registrant, rid)."""


@dataclass(slots=True, kw_only=True)
class Verdict:
    """What became of a cut. wrong: nothing, if all is well. recovered: PostgreSQL answered.

    refused: it did not, and said so. lossy: the judge misses what had been acknowledged.

    acknowledged, in_doubt: sends before the cut, and at it. events: judged. lost: asynchronous
    commits of the witness. recovery_s: until PostgreSQL answered. again: the power went once more.
    """

    wrong: list[str] = field(default_factory=list[str])
    recovered: bool = False
    refused: bool = False
    lossy: bool = False
    again: bool = False
    acknowledged: int = 0
    in_doubt: int = 0
    events: int = 0
    lost: int = 0
    recovery_s: float = 0.0


class Past:
    """What had happened when the power was cut.

    events: from before the cut, and what `settle` adds. sent, in_doubt: acknowledged before it,
    and begun before it had ended. told: replies seen before it. handed: until it had ended.
    """

    def __init__(self, events: list[Event], cut: Cut) -> None:
        self.events = [event for event in events if event.at < cut.began_ns]
        self._during = [event for event in events if cut.began_ns <= event.at < cut.ended_ns]
        begun = {_rid(one) for one in self.events + self._during if isinstance(one, SendBegun)}
        self.sent = {_rid(one) for one in self.events if isinstance(one, SendOk)}
        self.in_doubt = begun - self.sent
        self.told = [event for event in self.events if isinstance(event, ReplyEvent)]
        self.handed = {
            _rid(one) for one in self.events + self._during if isinstance(one, ReplyEvent)
        }

    def settle(self, final: FinalState) -> None:
        """Adds what happened during the cut, as far as what recovered shows that it did.

        What a client did before a call of which there is an effect, it did before the instant. Of
        all else only the beginnings count: they may have happened. An execution that what is there
        does not know came after the instant.
        """
        present = _Present(final)
        during, self._during = self._during, []
        for name in WINDOWS:
            own = [e for e in during if isinstance(e, ClientEvent) and e.registrant == name]
            shown = [index for index, event in enumerate(own) if present.shows(event)]
            last = shown[-1] if shown else 0
            self.events += own[:last]
            self.events += [event for event in own[last:] if isinstance(event, BEGINNINGS)]
        for event in during:
            if isinstance(event, KillBegun) or (
                isinstance(event, Executed) and present.allows(event)
            ):
                self.events.append(event)


class _Present:
    """What is there in the recovered repository."""

    def __init__(self, final: FinalState) -> None:
        self._aborts = {place.eid: place.aborts for place in final.places}
        self._rids = {(place.registrant, place.rid) for place in final.places}
        self._ended = {(p.registrant, p.rid) for p in final.places if p.state == "finished"}
        self._replies = {
            (place.registrant, place.rid)
            for place in final.places
            if place.role == "reply" and place.state != "finished"
        }

    def allows(self, event: Executed) -> bool:
        """Whether the execution may have begun before the instant: the next attempt at most."""
        aborts = self._aborts.get(event.eid)
        return aborts is not None and event.attempt <= aborts + 1

    def shows(self, event: ClientEvent) -> bool:
        """Whether the call that was about to be made has had an effect."""
        match event:
            case SendBegun():
                return _rid(event) in self._rids
            case AcknowledgeBegun():
                whose = {(event.registrant, rid) for rid in event.rids}
                return whose <= self._ended and not whose & self._replies
            case _:
                return False


def _rid(event: SendBegun | SendOk | ReplyEvent) -> Rid:
    return event.registrant, event.rid


def _final(conninfo: str) -> FinalState:
    """Returns what is there: all participants record everything they do, and book once."""
    final = final_state(conninfo, REPOSITORY, ABORT_LIMIT)
    return dataclasses.replace(final, effects_each=1, all_recorded=True)


def judge_recovered(conninfo: str, past: Past) -> list[str]:
    """Returns what is wrong with a repository that nobody has touched since it recovered."""
    final = _final(conninfo)
    past.settle(final)
    found = check(past.events, dataclasses.replace(final, finished=False))
    return [*_shown(map(str, found)), *_shown(_untold(final, past))]


def _untold(final: FinalState, past: Past) -> Iterator[str]:
    """Yields the replies that a client had seen, and that differ from what it was told."""
    ended = {
        (place.registrant, place.rid): place.outcome
        for place in final.places
        if place.state == "finished"
    }
    for reply in past.told:
        found = ended.get(_rid(reply))
        if found != reply.outcome:
            yield f"G2 {reply.rid}: its client was told {reply.outcome}, history says {found}"


def judge_finished(conninfo: str, past: Past, files: Path) -> list[str]:
    """Lets servers finish and every client connect and receive; returns what is then wrong."""
    with _serving(conninfo, files), onceq.open(conninfo, repository=REPOSITORY) as qm:
        if not poll_until(lambda: qm.show("orders").depth == 0, Deadline(_FINISH_S)):
            return [f"G12: not all had finished {_FINISH_S:g} s after the recovery"]
        for name, window in WINDOWS.items():
            _come_back(qm, name, window, files)
    after = load(files.glob("*.events"))
    found = check([*past.events, *after], _final(conninfo))
    handed = past.handed | {_rid(one) for one in after if isinstance(one, ReplyEvent)}
    unanswered = sorted(past.sent - handed)
    return [
        *_shown(map(str, found)),
        *_shown(f"G5 {rid}: {who}: its reply was never handed out" for who, rid in unanswered),
    ]


@contextmanager
def _serving(conninfo: str, files: Path) -> Generator[None]:
    """Runs a server for the time of a block; an error that ended it is raised."""
    with (
        Recorder(files / "server.events", "server after") as recorder,
        ThreadPoolExecutor(1) as threads,
    ):
        server = onceq.Server([handled(recorder, REPOSITORY)])
        running = threads.submit(server.run, conninfo, repository=REPOSITORY)
        try:
            yield
        finally:
            server.stop()
            running.result(_FINISH_S)


def _come_back(qm: onceq.QueueManager, name: str, window: int, files: Path) -> None:
    """Connects as the client and receives all that is still to come, and the last one once more.

    A client with a window acknowledges only what it was handed, so it need not ask again.
    """
    with Recorder(files / f"client-{name}.events", f"client {name}") as recorder:
        clerk = RecordedClerk(qm.clerk(name, queue(), window=window), recorder, alone=window == 1)
        clerk.connect()
        if window == 1 and clerk.clerk.state is ClientState.REPLY_RECVD:
            clerk.rereceive()
        while clerk.clerk.outstanding:
            clerk.receive(timeout_s=_FINISH_S)
        clerk.clerk.close()


def _shown(found: Iterator[str]) -> list[str]:
    """Returns the first few, and how many more there are."""
    every = list(found)
    more = [f"and {len(every) - _SHOWN} more"] if len(every) > _SHOWN else []
    return every[:_SHOWN] + more
