"""For which stores somebody waits, as the log is told it: after a while, then ever less often."""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping
from typing import Final

from onceq import telemetry
from onceq.streams import logged

log = logging.getLogger(__name__)
FIRST_S: Final = 5.0
"""How long somebody waits before it is told: stores that are started, or are behind, need less."""
PAUSE_MAX_S: Final = 60.0


class Waiting:
    """Tells for which stores a bridge or a query waits. bridge: its name, for the log."""

    def __init__(self, bridge: str, topic: str) -> None:
        self._bridge = bridge
        self._topic = topic
        self._pause_s = FIRST_S
        self._due_s: float | None = None

    def is_due(self) -> bool:
        """Note that it waits; return whether that is to be told now."""
        now = time.monotonic()
        if self._due_s is None:
            self._due_s = now + self._pause_s
        return now >= self._due_s

    def tell(self, why: Mapping[str, str]) -> None:
        """Tell it of each store, with the reason; the next time later."""
        for store, said in why.items():
            event = logged.BridgeLacksStore(
                bridge=self._bridge, topic=self._topic, store=store, why=said
            )
            telemetry.tell(log, event)
        self._pause_s = min(2 * self._pause_s, PAUSE_MAX_S)
        self._due_s = time.monotonic() + self._pause_s

    def note(self, why: Mapping[str, str]) -> None:
        """Note that it waits, and tell it if that is due."""
        if self.is_due():
            self.tell(why)

    def over(self) -> None:
        """Note that it goes on."""
        self._pause_s, self._due_s = FIRST_S, None
