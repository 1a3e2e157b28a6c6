"""What recovered from a cut, judged against what had been acknowledged before it.

For this package only. Invariants: what an event says was acknowledged counts from before the cut
began; that something was begun counts until the cut had ended; what is in between may or may not
have happened. So nothing is asked of the copy that a power cut might rightly have taken.
"""

from __future__ import annotations

import dataclasses
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import onceq
from onceq.engine.embedded.locks import Deadline, poll_until
from onceq.model.client_state import ClientState
from onceq.testing.events import (
    AcknowledgeBegun,
    DisconnectBegun,
    Executed,
    KillBegun,
    ReceiveBegun,
    Recorder,
    ReplyEvent,
    SendBegun,
    SendOk,
    Started,
    load,
)
from onceq.testing.history import check
from onceq.testing.ledger import final_state
from onceq.testing.recording import RecordedClerk
from proof.powercut.load import REPOSITORY, WINDOWS
from proof.powercut.participant import ABORT_LIMIT, handled, queue

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator
    from pathlib import Path

    from onceq.testing.events import Event, FinalState
    from proof.powercut.drive import Cut

BEGINNINGS = (
    SendBegun,
    ReceiveBegun,
    AcknowledgeBegun,
    DisconnectBegun,
    KillBegun,
    Executed,
    Started,
)
RUNNING = (Executed, Started)
_FINISH_S = 60.0
_SHOWN = 10

Rid = tuple[str, str]
"""(registrant, rid)."""


@dataclass(slots=True, kw_only=True)
class Verdict:
    """What became of a cut. wrong: nothing, if all is well. recovered: PostgreSQL answered.

    acknowledged, in_doubt: sends before the cut, and at it. events: judged. lost: asynchronous
    commits of the witness. recovery_s: until PostgreSQL answered. again: the power went once more.
    """

    wrong: list[str] = field(default_factory=list[str])
    recovered: bool = False
    again: bool = False
    acknowledged: int = 0
    in_doubt: int = 0
    events: int = 0
    lost: int = 0
    recovery_s: float = 0.0


class Past:
    """What had happened, and what may have, when the power was cut.

    events: settled by the state that has recovered, before anything runs on it.
    """

    def __init__(self, events: list[Event], cut: Cut) -> None:
        began, ended = cut.began_ns, cut.ended_ns
        self.events = [
            event
            for event in events
            if event.at < began or (event.at < ended and isinstance(event, BEGINNINGS))
        ]
        begun = {_rid(one) for one in self.events if isinstance(one, SendBegun)}
        self.sent = {_rid(one) for one in self.events if isinstance(one, SendOk)}
        self.in_doubt = begun - self.sent
        self._running = [one for one in self.events if isinstance(one, RUNNING) and one.at >= began]
        self.told = [event for event in self.events if isinstance(event, ReplyEvent)]
        self.handed = {
            _rid(one) for one in events if isinstance(one, ReplyEvent) and one.at < ended
        }

    def settle(self, final: FinalState) -> None:
        """Leaves out what began to run during the cut and of which the copy has nothing.

        Its send had not been acknowledged when the cut began, and came after the instant.
        """
        there = {place.eid for place in final.places}
        after = {id(one) for one in self._running if one.eid not in there}
        self.events = [event for event in self.events if id(event) not in after]


def _rid(event: SendBegun | SendOk | ReplyEvent) -> Rid:
    return event.registrant, event.rid


def judge_recovered(conninfo: str, past: Past) -> list[str]:
    """Returns what is wrong with a repository that nobody has touched since it recovered."""
    final = final_state(conninfo, REPOSITORY, ABORT_LIMIT)
    past.settle(final)
    found = check(past.events, dataclasses.replace(final, finished=False))
    return [*_shown(map(str, found)), *_shown(_untold(final, past))]


def _untold(final: FinalState, past: Past) -> Iterator[str]:
    """Yields the replies that a client had seen, and that are not as it was told."""
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
    found = check([*past.events, *after], final_state(conninfo, REPOSITORY, ABORT_LIMIT))
    handed = past.handed | {_rid(one) for one in after if isinstance(one, ReplyEvent)}
    unanswered = sorted(past.sent - handed)
    return [
        *_shown(map(str, found)),
        *_shown(f"G5 {rid}: {who}: its reply was never handed out" for who, rid in unanswered),
    ]


@contextmanager
def _serving(conninfo: str, files: Path) -> Generator[None]:
    """Runs a server for the time of a block; what made it end is raised."""
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
    """Connects as the client and receives all that is still to come to it; and once more the last.

    A client with a window acknowledges only what it was handed, so that it need not ask again.
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
