"""A receiver, and a source, that are told what no honest process tells."""

from __future__ import annotations

from collections import Counter
from typing import Final

from onceq.streams.errors import FrameRefused
from onceq.streams.model import asks, events
from onceq.streams.net.wire import answer_frame
from onceq.streams.receiver.delivering import AHEAD_BYTES_MAX, Delivering
from onceq.streams.receiver.ops import Message, Shown
from proof.streams_fuzz.invention import Invention
from proof.streams_fuzz.stores import LIST, SOUND

FRAME_BYTES: Final = 1 << 20


class Told:
    """A receiver that is told anything. What it shows ascends, and leaves no number out."""

    def __init__(self, invention: Invention) -> None:
        self.invention = invention
        self.wrong: list[str] = []
        self.tried: Counter[str] = Counter()
        is_stable_only = invention.chance.random() < 0.5
        self.core = Delivering(SOUND, 0, (LIST,), is_stable_only=is_stable_only)
        self._expected = 0

    def feed(self) -> None:
        """Tell it something."""
        invention = self.invention
        draw = invention.chance.random()
        try:
            if draw < 0.4:
                self.tried["frames to receivers"] += 1
                self._show(self.core.heard(invention.frame()))
            elif draw < 0.6:
                self.tried["information to receivers"] += 1
                known = invention.value(asks.Information)
                self._show(self.core.heard(answer_frame(SOUND, 0, known)))
            elif draw < 0.8:
                self.tried["ranges to receivers"] += 1
                given = tuple(invention.frame() for _ in range(3))
                store = invention.chance.choice(sorted(LIST.stores))
                self._show(self.core.given(store, invention.answer(), given))
            else:
                self.tried["damaged to receivers"] += 1
                self._show(self.core.heard(invention.harmed(invention.frame())))
                self.wrong.append("a receiver took a damaged frame")
        except FrameRefused:
            pass

    def _show(self, shown: list[Shown]) -> None:
        for one in shown:
            match one:
                case Message(number=number):
                    self._come(one, range(number, number + 1))
                case events.Loss(first=first, last=last):
                    self._come(one, range(first, last + 1))
                case events.RolledBack(first=first):
                    self._expected = min(first, self._expected)

    def _come(self, one: Shown, numbers: range) -> None:
        if numbers.start > self._expected or not numbers:
            self.wrong.append(f"{one} is shown, and {self._expected} comes next")
        self._expected = numbers.stop

    def check(self) -> None:
        """Check that what is held is bounded."""
        held = vars(self.core)["_ahead_bytes"]
        if held > AHEAD_BYTES_MAX + FRAME_BYTES:
            self.wrong.append(f"a receiver holds {held} bytes")
