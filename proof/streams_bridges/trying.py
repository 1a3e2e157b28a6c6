"""One trial of a bridge: its process meets a fault, and another goes on, as a supervisor would.

Then all that was sent must have taken effect once, in order, and positions must agree. Only
processes that a trial has started are ended.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import re
import shutil
import signal
import threading
import time
from typing import TYPE_CHECKING, Final

import onceq
from onceq.engine.faultpoints import EAR
from onceq.streams.bridging import Kind
from proof.harness.processes import hearing, start
from proof.harness.proxy import Cut, Proxy, Side
from proof.streams_bridges.ground import soon
from proof.streams_bridges.points import CUTS, HELD, What
from proof.streams_bridges.processes import FENCED, PLANNED, STRUCK, Errand, enter

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from multiprocessing.process import BaseProcess
    from pathlib import Path

    from proof.streams_bridges.ground import Database, Stores
    from proof.streams_bridges.points import Trial

FIRST, MORE = 20, 7
"""Messages before the fault; and what comes after it, or when all is done and it has not struck."""
REACHED_S: Final = 60.0
DONE_S: Final = 60.0
AGREE_S: Final = 15.0
STOPPED_S: Final = 0.01
"""A process that was told to stand still does by then."""
SHOWN: Final = 5
"""So many that are doubled or lost are named."""
TAKEN_S: Final = 20.0
"""A later life has all done within this; a process waits at its point for somewhat longer."""
HELD_S: Final = 1.0
SIDES: Final = {What.CUT_BEFORE: Side.BEFORE, What.CUT_AFTER: Side.AFTER}
WRITES: Final = re.compile(r"\.(?:stream_open|relay_open|relay_begin|relay_plan|relay_finish)\(")
"""Single statements at which a connection is lost, besides every COMMIT."""
EFFECTS: Final = "effects of messages"
DEATHS: Final = {What.KILL: [-signal.SIGKILL], What.RAISE: [PLANNED]}
"""The exit codes of the one process that a fault ends."""


class Run:
    """A trial under way. place: a directory of its own, whose path is short."""

    def __init__(self, stores: Stores, database: Database, trial: Trial, place: Path) -> None:
        self._stores = stores
        self._database = database
        self._trial = trial
        self._place = place
        self._name = place.name
        self._session = next(_SESSIONS)
        self._sent: list[bytes] = []
        self._lock = threading.Lock()
        self._alive: list[BaseProcess] = []
        self._codes: list[int] = []
        self._taken = False

    def wrong(self) -> list[str]:
        """Try it; return what is wrong."""
        (self._place / "points").mkdir(parents=True)
        with contextlib.ExitStack() as undo:
            undo.callback(shutil.rmtree, self._place, ignore_errors=True)
            self._prepare(undo)
            found = self._tried()
            return [f"{self._trial}: {text}" for text in found]

    def _prepare(self, undo: contextlib.ExitStack) -> None:
        self._proxy = undo.enter_context(Proxy(self._database.conninfo, self._place))
        undo.callback(self._end)
        if self._trial.kind is Kind.INTO:
            self._database.make_table(self._name)
            self._pass_on = undo.enter_context(self._stores.source(self._name, self._session))
            return
        qm = undo.enter_context(self._database.queue())
        queue = onceq.Queue(self._name, bytes, bytes)
        qm.declare(queue)

        def enqueue(bodies: Sequence[bytes]) -> None:
            qm.enqueue_many(queue, list(bodies))

        self._pass_on = enqueue

    def _put(self, count: int) -> None:
        bodies = [b"%06d" % n for n in range(len(self._sent), len(self._sent) + count)]
        self._sent += bodies
        self._pass_on(bodies)

    def _tried(self) -> list[str]:
        self._put(FIRST)
        with hearing(self._place / "points" / EAR, self._do):
            self._start(self._proxy.conninfo, is_armed=True)
            self._reach()
            if not self._has_struck():
                return [*self._deaths(), f"it never struck; {self._said()}"]
            self._put(MORE)
            if not soon(lambda: self._tick() and (self._is_done() or self._has_failed()), DONE_S):
                return [f"not all was done after {DONE_S:.0f} s; {self._said()}"]
            return self._deaths() or self._judged()

    # its processes

    def _start(self, url: str, *, is_armed: bool) -> None:
        trial = self._trial
        armed = f"{trial.point} {trial.occurrence} {trial.what} {self._place / 'points'}"
        is_linked = trial.cuts_links
        errand = Errand(
            kind=trial.kind,
            name=self._name,
            url=url,
            repository=self._database.name,
            stores=self._stores.addresses,
            session=self._session,
            place=self._place,
            armed=armed if is_armed and not is_linked else "",
            links=trial.occurrence if is_linked else 0,
            what=trial.what,
        )
        with self._lock:
            self._alive.append(start(enter, errand))

    def _tick(self) -> bool:
        """Start another life, if none is there."""
        with self._lock:
            ended = [one for one in self._alive if one.exitcode is not None]
            self._alive = [one for one in self._alive if one not in ended]
            self._codes += [one.exitcode for one in ended if one.exitcode is not None]
            is_alone = not self._alive
        if is_alone:
            self._start(self._proxy.conninfo, is_armed=True)
        return True

    def _end(self) -> None:
        """Kill all that is there: that is no fault, and not counted."""
        with self._lock:
            alive, self._alive = self._alive, []
        for one in alive:
            one.kill()
            one.join()

    def _end_unstruck(self) -> None:
        """Kill a life, unless it has come to its point: it stands still while that is looked at."""
        with self._lock:
            alive = [one for one in self._alive if one.exitcode is None]
        _signal(alive, signal.SIGSTOP)
        time.sleep(STOPPED_S)
        if self._has_come():
            _signal(alive, signal.SIGCONT)
        else:
            self._end()

    def _reach(self) -> None:
        """Run until it has struck; what a life does only once is done by the next one, too."""
        until = time.monotonic() + REACHED_S
        while time.monotonic() < until and not self._has_failed():
            if soon(lambda: self._tick() and (self._has_struck() or self._is_idle()), 1.0):
                if self._has_struck():
                    return
                self._end_unstruck()
                self._put(MORE)

    def _is_idle(self) -> bool:
        """Whether more is to be put: all is done, and nobody stands still."""
        is_still = self._trial.what is What.TAKEN and self._has_come()
        return not is_still and self._is_done()

    # the fault

    def _do(self, word: str) -> None:
        """Do what a process has asked for at its point."""
        what = What(word.split(maxsplit=1)[0])
        if what in CUTS:
            self._proxy.plan(Cut(side=SIDES[what], pattern=WRITES))
            return
        self._start(self._database.conninfo, is_armed=False)
        soon(self._is_done, HELD_S if self._trial.point in HELD else TAKEN_S)
        self._taken = True

    def _has_come(self) -> bool:
        if self._trial.cuts_links:
            return (self._place / STRUCK).exists()
        counted = self._place / "points" / self._trial.point
        return counted.exists() and counted.stat().st_size >= self._trial.occurrence

    def _has_struck(self) -> bool:
        trial = self._trial
        if trial.what in DEATHS:
            return self._codes == DEATHS[trial.what]
        if trial.what is What.TAKEN:
            return self._taken
        return self._has_come() if trial.cuts_links else bool(self._proxy.made)

    def _died(self) -> list[int]:
        """Return how processes ended, but for those that were rightly fenced."""
        fenced = {FENCED} if self._trial.what is What.TAKEN else set[int]()
        return [code for code in self._codes if code not in fenced]

    def _has_failed(self) -> bool:
        """Whether more processes have ended than the fault explains."""
        return len(self._died()) > len(DEATHS.get(self._trial.what, []))

    def _deaths(self) -> list[str]:
        """Return the deaths that the fault does not explain."""
        found, wanted = self._died(), DEATHS.get(self._trial.what, [])
        if found == wanted:
            return []
        return [f"processes ended with {found}, and not {wanted}; {self._said()}"]

    # what came of it

    def _is_done(self) -> bool:
        if self._trial.kind is Kind.INTO:
            return self._database.position(self._name) >= len(self._sent)
        state, planned = self._database.relay(self._name, self._session)
        return not planned and state.next >= len(self._sent)

    def _judged(self) -> list[str]:
        return self._of_into() if self._trial.kind is Kind.INTO else self._of_relay()

    def _of_into(self) -> list[str]:
        count = len(self._sent)
        found = self._database.effects(self._name)
        agree = soon(
            lambda: self._tick() and set(self._stores.positions(self._name)) == {count}, AGREE_S
        )
        at = self._database.position(self._name)
        wrong = {
            f"{EFFECTS}: {_differs(found, list(enumerate(self._sent)))}": found
            != list(enumerate(self._sent)),
            f"the position is {at}, of {count}": at != count,
            f"stores have noted {self._stores.positions(self._name)}, of {count}": not agree,
        }
        return [text for text, is_so in wrong.items() if is_so]

    def _of_relay(self) -> list[str]:
        count = len(self._sent)
        agree = soon(
            lambda: (
                self._tick() and all(one == self._sent for one in self._stores.logs(self._name))
            ),
            AGREE_S,
        )
        state, planned = self._database.relay(self._name, self._session)
        logs = [_differs(one, self._sent) for one in self._stores.logs(self._name)]
        wrong = {
            f"messages of the stores: {logs}": not agree,
            f"the relay is at {state}, with {planned} planned, of {count}": (
                (state.next, state.lowest, planned) != (count, count, [])
            ),
        }
        return [text for text, is_so in wrong.items() if is_so]

    def _said(self) -> str:
        path = self._place / "said"
        lines = path.read_text(errors="replace").splitlines() if path.exists() else []
        return f"ended: {self._codes}, said: {' | '.join(lines[-6:])}"


def _signal(alive: Iterable[BaseProcess], what: signal.Signals) -> None:
    for one in alive:
        with contextlib.suppress(ProcessLookupError):
            if one.pid is not None:
                os.kill(one.pid, what)


_SESSIONS: Final = itertools.count(1_000)


def _differs(found: Sequence[object], wanted: Sequence[object]) -> str:
    """Say how what was found is not what was wanted."""
    doubled = sorted({str(one) for one in found if found.count(one) > 1})[:SHOWN]
    lost = [str(one) for one in wanted if one not in found][:SHOWN]
    order = "" if doubled or lost else "; not in order" * (list(found) != list(wanted))
    return f"{len(found)} of {len(wanted)}, doubled {doubled}, lost {lost}{order}"
