"""The gate of a server process: a suspect runs with nothing beside it (G7).

Used by the drivers of one process's sessions, each by a `Way` of its own. Shared for ordinary
elements, exclusive for a suspect. Nobody waits here with claims in hand, which others could run
meanwhile: a session that cannot enter at once gives back what it claimed, and waits before its next
claim. After it has refused a suspect, the gate stays closed to the other sessions until they have
left, but no longer than its patience. Then they go on for as long, and no suspect is claimed. The
patience is doubled each time it was in vain, so in the end it outlasts the handlers inside.
"""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING

from msgspec.structs import replace

if TYPE_CHECKING:
    from collections.abc import Callable

    from onceq.engine.perform.stop import Stop
    from onceq.model import ops
    from onceq.model.element import Element

PATIENCE_FIRST_S = 0.25
SUSPECTS_FIRST = -1
"""The turn of a claim that looks for suspects before anything else."""
LOOK_S = 0.05
"""How often a waiting session checks for a stop, or for the end of the patience."""


class Gate:
    """A lock that many may hold shared, or one exclusively. now: the clock, in seconds."""

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self._now = now
        self._changed = threading.Condition()
        self._inside = 0
        self._alone = False
        self._next: Way | None = None
        self._until = 0.0
        self._patience_s = PATIENCE_FIRST_S
        self._resting = False

    def enter(self, who: Way, *, alone: bool) -> bool:
        """Enters at once, or returns False; a session that was not let in alone goes next."""
        with self._changed:
            self._look()
            if self._alone or (self._inside if alone else self._next is not None):
                if alone and self._next is None and not self._resting:
                    self._next, self._until = who, self._now() + self._patience_s
                return False
            self._inside += 1
            self._alone = alone
            return True

    def may_claim(self, who: Way) -> bool | None:
        """Returns whether a claim may take suspects now; None: nothing may be claimed now.

        The next one that is to be alone may claim once it is alone: it has then entered.
        """
        with self._changed:
            return self._may_claim(who)

    def await_claim(self, who: Way, stop: Stop) -> bool:
        """Waits until something may be claimed, or a stop is due; returns whether suspects may."""
        with self._changed:
            while (may := self._may_claim(who)) is None and not stop.is_set():
                self._changed.wait(LOOK_S)
            return bool(may)

    def _may_claim(self, who: Way) -> bool | None:
        self._look()
        if self._next is who and not self._inside:
            self._inside, self._alone = 1, True
            self._served()
            return who.go_ahead()
        if self._alone or self._next is not None:
            return None
        return not self._resting

    def may_chain(self) -> bool:
        """Returns whether the claim chained to a finish may take suspects."""
        return not self._resting and self._next is None

    def leave(self) -> None:
        """Leaves."""
        with self._changed:
            self._inside -= 1
            self._alone = False
            self._changed.notify_all()

    def forget(self, who: Way) -> None:
        """Notes that a session will not come back."""
        with self._changed:
            if self._next is who:
                self._served()

    def _served(self) -> None:
        self._next = None
        self._patience_s = PATIENCE_FIRST_S
        self._changed.notify_all()

    def _look(self) -> None:
        """Opens the gate when the patience is over; for as long after that, no suspect may come."""
        if (self._next is None and not self._resting) or self._now() < self._until:
            return
        self._resting = self._next is not None
        if self._resting:
            self._next, self._until = None, self._now() + self._patience_s
            self._patience_s *= 2
            self._changed.notify_all()


class Way:
    """The way of one session through the gate of its process."""

    def __init__(self, gate: Gate) -> None:
        self._gate = gate
        self._inside = False
        self._is_ahead = False

    def may_claim(self) -> bool | None:
        """See Gate.may_claim."""
        return self._gate.may_claim(self)

    def await_claim(self, stop: Stop) -> bool:
        """See Gate.await_claim."""
        return self._gate.await_claim(self, stop)

    def chained(self, op: ops.Finish) -> ops.Finish:
        """Returns a finish whose claim takes suspects only if they may be claimed now."""
        return op if self._gate.may_chain() else replace(op, alone=False)

    def go_ahead(self) -> bool:
        """Notes that this session has entered, alone, before its claim."""
        self._inside = self._is_ahead = True
        return True

    def admitted(self, op: ops.Claim, *, suspects: bool) -> ops.Claim:
        """Returns the claim to make: a session that has entered looks for a suspect first."""
        if self._is_ahead:
            return replace(op, turn=SUSPECTS_FIRST)
        return op if suspects else replace(op, alone=False)

    def claimed(self, found: list[Element]) -> list[Element]:
        """Returns what was claimed; a session that has entered leaves, unless it is a suspect."""
        if self._is_ahead and not (found and found[0].is_suspect):
            self.leave()
        return found

    def enter(self, *, alone: bool) -> bool:
        """Enters at once, or returns False: then what was claimed is given back."""
        if self._is_ahead and alone:
            self._is_ahead = False
            return True
        self.leave()  # for a batch that failed as a whole and runs again
        self._inside = self._gate.enter(self, alone=alone)
        return self._inside

    def leave(self) -> None:
        """Leaves, if it is inside."""
        if self._inside:
            self._inside = self._is_ahead = False
            self._gate.leave()

    def end(self) -> None:
        """Leaves for good: the session has ended."""
        self.leave()
        self._gate.forget(self)
