"""The fleet: every participant of a run, restarted whenever it has died.

The conductor's side of the nursery. It counts deaths by whether they were asked for: one that
nobody asked for, and that no poison explains, is a finding. Never waits without a bound.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import socket
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec

from onceq.history.events import Ended
from proof.torture.board import Count
from proof.torture.nursery import News, Wish, headline
from proof.torture.processes import environment

if TYPE_CHECKING:
    from onceq.history.events import Recorder
    from proof.torture.board import Board
    from proof.torture.life import Life

_READ_BYTES: Final = 65_536
STARVED: Final = "starved"
NOTES: Final = "notes"
"""The kind of client that is sent no replies."""
STRIKES_MAX: Final = 3
NURSERY: Final = "from proof.torture.nursery import main; main()"


@dataclass(slots=True)
class Participant:
    """One participant. pid: of its present life, 0 when there is none. excused: what it may die of.

    lasts: that it does not end by itself. poisonings: executions so far that were to kill it.
    strikes: since it last had an answer, of which it then had so many.
    """

    life: Life
    lasts: bool = False
    poisonings: int = 0
    strikes: int = 0
    answers: int = 0
    pid: int = 0
    lives: int = 0
    is_done: bool = False
    excused: set[str] = field(default_factory=set[str])


@dataclass(slots=True)
class Deaths:
    """How they died. asked: by a kill -9 of ours; poisoned: by a request; others: of what.

    A death by a request is one of a server that has said that it executes such a one.
    """

    asked: int = 0
    poisoned: int = 0
    starved: int = 0
    others: list[str] = field(default_factory=list[str])


class Fleet:
    """The participants by name. `poll` it often; nothing happens in between."""

    def __init__(self, board: Board, recorder: Recorder) -> None:
        self.participants: dict[str, Participant] = {}
        self._board = board
        self._recorder = recorder
        self.deaths = Deaths()
        self.is_tended = True
        self._ours, theirs = socket.socketpair()
        self._waiting = b""
        with theirs:
            self._nursery = subprocess.Popen(
                [sys.executable, "-c", NURSERY, str(theirs.fileno())],
                pass_fds=(theirs.fileno(),),
                stdin=subprocess.DEVNULL,
                env=environment(),
                start_new_session=True,
            )

    def begin(self, life: Life, *, lasts: bool = False) -> None:
        """Adds a participant, and begins its first life. lasts: it does not end by itself."""
        self.participants[life.name] = Participant(life, lasts)
        self._begin(self.participants[life.name])

    def strike(self, name: str, number: signal.Signals) -> None:
        """Sends a signal that is to hurt, and counts it."""
        self.participants[name].strikes += 1
        self.signal(name, number)

    def signal(self, name: str, number: signal.Signals) -> None:
        """Sends a signal to a participant, if it lives."""
        self._wish(Wish(name=name, number=number))

    def starve(self, name: str, spare_bytes: int) -> None:
        """Leaves a participant no more address space than this, for the rest of its life."""
        self.participants[name].excused.add(STARVED)
        self._wish(Wish(name=name, spare_bytes=spare_bytes))

    def alive(self, *kinds: str) -> list[str]:
        """Returns the names of those of these kinds that live, sorted."""
        return sorted(
            name for name, one in self.participants.items() if one.pid and one.life.kind in kinds
        )

    def bears_a_strike(self, name: str) -> bool:
        """Returns whether a client has been struck less than STRIKES_MAX times without an answer.

        Who is killed faster than this machine lets it begin would never have another, and it would
        not be onceq that kept it waiting.
        """
        one = self.participants[name]
        counted = Count.ACKNOWLEDGED if one.life.kind == NOTES else Count.REPLIES
        answers = self._board.of(one.life.row, counted)
        if answers != one.answers:
            one.answers, one.strikes = answers, 0
        return one.strikes < STRIKES_MAX

    def poll(self, timeout_s: float) -> None:
        """Hears what has become of the participants, and begins again those that have died."""
        if not select.select([self._ours], [], [], max(timeout_s, 0))[0]:
            return
        data = self._ours.recv(_READ_BYTES)
        if not data:
            raise OSError("the nursery of the participants has ended")
        *lines, self._waiting = (self._waiting + data).split(b"\n")
        for line in lines:
            self.hear(msgspec.json.decode(line, type=News))

    def close(self) -> None:
        """Kills everyone, and ends the nursery."""
        self._ours.close()
        try:
            self._nursery.wait(10)
        except subprocess.TimeoutExpired:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._nursery.pid, signal.SIGKILL)
            self._nursery.wait()

    def _begin(self, one: Participant) -> None:
        one.lives += 1
        one.excused.clear()
        one.life = msgspec.structs.replace(one.life, life=one.lives)
        self._wish(Wish(name=one.life.name, life=one.life))

    def _wish(self, wish: Wish) -> None:
        self._ours.sendall(msgspec.json.encode(wish) + b"\n")

    def hear(self, news: News) -> None:
        """Takes what has become of a participant; one that has died is begun again."""
        one = self.participants[news.name]
        if news.code is None:
            one.pid = news.pid
            return
        one.pid = 0
        self._count(one, news)
        one.is_done = news.code == 0
        if self.is_tended and not one.is_done:
            self._begin(one)

    def _count(self, one: Participant, news: News) -> None:
        row = one.life.row
        before, one.poisonings = one.poisonings, self._board.of(row, Count.POISONED)
        how = ""
        if news.code == -signal.SIGKILL and news.asked:
            self.deaths.asked += 1
            how = "killed"
        elif news.code == -signal.SIGKILL and one.poisonings > before:
            self.deaths.poisoned += 1
            how = "poisoned"
        elif news.code != 0 and STARVED in one.excused:
            self.deaths.starved += 1
            how = "starved"
        self._recorder.record(Ended(target=one.life.name, pid=news.pid, how=how))
        if not how and (news.code != 0 or (self.is_tended and one.lasts)):
            said = _last_words(one.life)
            self.deaths.others.append(
                f"{one.life.actor} in life {one.lives}: code {news.code}: {said}"
            )


def _last_words(life: Life) -> str:
    """Returns the last line of what a life said: the error that ended it."""
    path = Path(life.place) / "said.txt"
    said = path.read_text(errors="replace") if path.exists() else ""
    own = said.partition(f"{headline(life)}\n")[2].partition("\n--- ")[0].strip()
    return own.splitlines()[-1] if own else "it said nothing"
