"""Nobody looks by itself: what is found then was found by a ring, or at its moment.

Used where a test has to tell a ring, or a moment, from a look by chance: on a slow machine the one
may take as long as the other, so it is not told by a clock. And statements are counted.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

from onceq.engine.perform.differing import wait_rung
from onceq.engine.sessions import session as engine_session
from onceq.engine.wake.bell import LISTEN_FROM_S
from onceq.engine.wake.waiting import LONGEST_RUNG_S, RUNG_PACES, Pace
from onceq.server import program
from tests.parts import wait_until

if TYPE_CHECKING:
    from collections.abc import Generator

    import pytest

    import onceq
    from onceq.engine.wake.bell import Bell
    from onceq.model import ops

HOUR_S: Final = 3600.0
"""Longer than any test."""
SURVEYS: Final = ("SURVEY_EVERY_S", "SURVEY_SOON_S", "SURVEY_AT_ONCE_S")


def let_nobody_survey(monkeypatch: pytest.MonkeyPatch) -> None:
    """From its next survey on a server makes no other, but for what is due at its time."""
    for name in SURVEYS:
        monkeypatch.setattr(program, name, HOUR_S)


def wait_unwatched(server: onceq.Server) -> None:
    """Waits until nobody of a server is to survey within this test."""
    wait_until(lambda: server._watch._due - time.monotonic() > HOUR_S / 2)


def let_nobody_look(monkeypatch: pytest.MonkeyPatch, *keys: str) -> threading.Event:
    """Whoever waits for these looks once, and then only when it was rung, or at its moment.

    Returns what is set once somebody waits so.
    """
    waits = threading.Event()

    def noted(bell: Bell, timeout_s: float, other: int | None = None) -> bool:
        if timeout_s > LONGEST_RUNG_S:
            waits.set()
        return wait_rung(bell, timeout_s, other)

    for key in keys:  # the first wait is so long that it listens
        pace = Pace(LISTEN_FROM_S, HOUR_S / LISTEN_FROM_S, HOUR_S)
        monkeypatch.setitem(RUNG_PACES, key, pace)
    monkeypatch.setattr("onceq.engine.perform.driver.wait_rung", noted)
    return waits


@contextmanager
def counted(monkeypatch: pytest.MonkeyPatch) -> Generator[Counter[str]]:
    """Counts the statements of all sessions in this process: idle, each is a transaction."""
    found: Counter[str] = Counter()
    lock = threading.Lock()
    text_of = engine_session.Statements.of

    def of(self: engine_session.Statements, op: ops.Op[Any]) -> Any:
        with lock:
            found[type(op).__name__] += 1
        return text_of(self, op)

    with monkeypatch.context() as patched:
        patched.setattr(engine_session.Statements, "of", of)
        yield found


def count_for(seconds: float, statements: Counter[str]) -> tuple[Counter[str], float]:
    """Returns what is stated within so many seconds, or more, and how many these were."""
    began, before = time.monotonic(), statements.copy()
    time.sleep(seconds)
    made = statements - before
    return made, time.monotonic() - began  # after that: it goes on
