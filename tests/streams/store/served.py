"""A store that serves, as tests talk to it: a link for a source, and one for another."""

from __future__ import annotations

import itertools
from typing import Any

from onceq.streams.model import asks, encoding
from onceq.streams.model.frames import FrameKind, Splitter, decode
from onceq.streams.net.wire import ask_frame
from onceq.streams.store import acts
from onceq.streams.store.disk_store import DiskStore
from onceq.streams.store.serving import Serving
from onceq.streams.store.store import Store
from tests.streams.store.test_disk_store import ABC, S, admission

SOURCE, OTHER = 1, 2
"""Links."""


class Served:
    """A store that serves, and all that it sent on each link."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.serving = Serving(store, "a")
        self.sent: dict[int, list[bytes]] = {}
        self.refused: dict[int, str] = {}
        self.asked: list[acts.Ask] = []
        self.dropped: list[int] = []
        self._tags = itertools.count(1)
        for link in (SOURCE, OTHER):
            self.step(acts.Opened(link=link))

    @property
    def disk(self) -> DiskStore:
        """The store, which is on a disk."""
        assert isinstance(self.store, DiskStore)
        return self.store

    def step(self, given: acts.Given) -> None:
        for act in self.serving.step(given):
            match act:
                case acts.Send(link=link, data=data):
                    self.sent.setdefault(link, []).extend(Splitter().feed(data))
                case acts.Refuse(link=link, why=why):
                    self.refused[link] = why
                case acts.Ask():
                    self.asked.append(act)
                case acts.Drop(program=program):
                    self.dropped.append(program)
                case acts.Commit():
                    assert self.store.end > self.store.synced

    def commit(self) -> None:
        if isinstance(self.store, DiskStore):
            self.store.log.commit()
            self.store.log.prepare()
        self.step(acts.Synced(position=self.store.synced))

    def ask(self, ask: asks.Ask, link: int = SOURCE) -> int:
        tag = next(self._tags)
        self.step(acts.Came(link=link, data=ask_frame(getattr(ask, "stream", 0), tag, ask)))
        return tag

    def send(self, *data: bytes, link: int = SOURCE) -> None:
        for one in data:
            self.step(acts.Came(link=link, data=one))

    def heard(self, link: int = SOURCE) -> list[Any]:
        """What was answered since the last call; frames as their numbers."""
        found: list[Any] = []
        for data in self.sent.pop(link, []):
            frame = decode(data)
            is_answer = frame.kind is FrameKind.ANSWER
            found.append(encoding.answer_of(frame.body) if is_answer else frame.number)
        return found

    def told(self, ask: asks.Ask, link: int = SOURCE) -> Any:
        """Ask, commit, and return the one answer."""
        self.ask(ask, link)
        self.commit()
        (answer,) = self.heard(link)
        return answer

    def begin(self, epoch: int = 1, life: int = 5, link: int = SOURCE, **of_log: Any) -> None:
        assert isinstance(self.told(fence(epoch, life), link), asks.Found)
        admitted = self.told(admission(epoch, life, **of_log), link)
        assert isinstance(admitted, asks.Holding | asks.Noted)


def fence(epoch: int, life: int = 5) -> asks.Fence:
    return asks.Fence(stream=S, epoch=epoch, life=life, own=ABC, topic="bars", session=9)
