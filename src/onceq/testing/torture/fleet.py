"""The fleet: every participant of a run, begun again whenever it has died.

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
from typing import TYPE_CHECKING, Final

import msgspec

from onceq.testing.torture.nursery import News, Wish

if TYPE_CHECKING:
    from onceq.testing.torture.life import Life

_READ_BYTES: Final = 65_536
STARVED: Final = "starved"
NURSERY: Final = "from onceq.testing.torture.nursery import main; main()"


@dataclass(slots=True)
class Participant:
    """One participant. pid: of its present life, 0 when there is none. excused: what it may die of.

    poisoned: that requests which kill their server come its way.
    """

    life: Life
    poisoned: bool = False
    pid: int = 0
    lives: int = 0
    is_done: bool = False
    excused: set[str] = field(default_factory=set[str])


@dataclass(slots=True)
class Deaths:
    """How they died. asked: by a kill -9 of ours; poisoned: by a request; others: of what."""

    asked: int = 0
    poisoned: int = 0
    starved: int = 0
    others: list[str] = field(default_factory=list[str])


class Fleet:
    """The participants by name. `poll` it often; nothing happens in between."""

    def __init__(self) -> None:
        self.participants: dict[str, Participant] = {}
        self.deaths = Deaths()
        self.is_tended = True
        self._ours, theirs = socket.socketpair()
        self._waiting = b""
        with theirs:
            self._nursery = subprocess.Popen(
                [sys.executable, "-c", NURSERY, str(theirs.fileno())],
                pass_fds=(theirs.fileno(),),
                stdin=subprocess.DEVNULL,
                start_new_session=True,
            )

    def begin(self, life: Life, *, poisoned: bool = False) -> None:
        """Adds a participant, and begins its first life."""
        self.participants[life.name] = Participant(life, poisoned)
        self._begin(self.participants[life.name])

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

    def poll(self, timeout_s: float) -> None:
        """Hears what has become of the participants, and begins again those that have died."""
        if not select.select([self._ours], [], [], max(timeout_s, 0))[0]:
            return
        data = self._ours.recv(_READ_BYTES)
        if not data:
            raise OSError("the nursery of the participants has ended")
        *lines, self._waiting = (self._waiting + data).split(b"\n")
        for line in lines:
            self._hear(msgspec.json.decode(line, type=News))

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

    def _hear(self, news: News) -> None:
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
        if news.asked:
            self.deaths.asked += 1
        elif news.code == -signal.SIGKILL and one.poisoned:
            self.deaths.poisoned += 1
        elif STARVED in one.excused:
            self.deaths.starved += 1
        elif news.code != 0:
            self.deaths.others.append(f"{one.life.actor} in life {one.lives}: code {news.code}")
