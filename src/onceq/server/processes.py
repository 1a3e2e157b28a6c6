"""The supervisor of `onceq serve`: children that serve, restarted when they die.

Called by the command line. It imports nothing of the user's: a request that kills its process
kills a child, and the service goes on. It stops gracefully. A child that does not end in time is
first revoked, so that nothing it still does takes effect or is charged, and then killed.
"""

from __future__ import annotations

import contextlib
import logging
import math
import os
import signal
import threading
import time
import uuid
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from onceq import errors, telemetry
from onceq.engine.connect.brief import brief_link
from onceq.engine.embedded.locate import Located, locate
from onceq.engine.perform.stop import Stop
from onceq.engine.schema import migrate
from onceq.engine.sessions.session import is_rejecting
from onceq.model import names, ops
from onceq.server import signals
from onceq.server.child import ABANDONED, FINISHED
from onceq.server.hanging import Watch, close_sessions
from onceq.server.reporting import WAITING_MAX, tell_taken_over
from onceq.server.scaling import Present, Scale, Scaling
from onceq.server.seats import Child, Seat, Spec, backoff_s

log = logging.getLogger(__name__)

LOOK_EVERY_S: Final = 0.05
RETIRED: Final = {FINISHED, ABANDONED, -signal.SIGTERM}
"""How one ends that is not wanted any more; the last, if it had not begun to serve yet."""
KILL_GRACE_S: Final = 5.0
"""How long after its own deadline a child is killed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ChildEvent:
    """What happened to a child. kind: started, loaded, ready, hung, died, retired, killed.

    code: the exit code, or minus the signal.
    """

    kind: str
    pid: int
    code: int | None = None
    delay_s: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """How a service ended. restarts: of children. abandoned: children that had to be revoked."""

    restarts: int
    abandoned: int


class Processes:
    """A service of several processes: `Processes("app:server", 2).run(url)`.

    told: is called with every event. A stop waits for the children's own stop_timeout_s.
    """

    def __init__(
        self,
        spec: str | Spec,
        count: int | Scale,
        *,
        told: Callable[[ChildEvent], None] = lambda _: None,
    ) -> None:
        self._spec = Spec(spec) if isinstance(spec, str) else spec
        self._scale = count if isinstance(count, Scale) else Scale(least=count, most=count)
        self._seats = [Seat() for _ in range(self._scale.most)]
        self._told = told
        self._stop_timeout_s = 30.0
        self._stop = Stop()
        self._hurry = Stop()
        self._was_ready = False
        self._restarts = 0
        self._abandoned = 0
        self._verdicts: list[threading.Thread] = []
        self._unheard: deque[ops.Aborted] = deque(maxlen=WAITING_MAX)
        self._queues: tuple[str, ...] = ()

    def stop(self) -> None:
        """Asks for a graceful stop; asked again, ends whatever is running. For signal handlers."""
        if self._stop.is_set():
            self._hurry.set()
        self._stop.set()

    def run(self, url: str | None = None, *, repository: str = "onceq") -> Ended:
        """Serves until told to stop by `stop`, SIGTERM or SIGINT; for the main thread only.

        Raises errors that no restart mends: SchemaMissing, SettingsDiffer, InvalidValue (no such
        module or server), ..., and CannotConnect if nothing was served yet.
        """
        environment = {**os.environ, "ONCEQ_URL": url} if url else dict(os.environ)
        with signals.heeded(self.stop), contextlib.closing(locate(url)) as located:
            if located.embedded is not None:
                migrate.apply_with(located.conninfo, names.check_repository(repository))
            self._verify(located, repository)
            watch = Watch(
                located,
                repository,
                self._living,
                told=self._hangs,
                aborted=self._unheard.extend,
            )
            scaling = Scaling(self._scale, located, repository, self._present)
            try:
                while not self._stop.is_set():
                    self._fit(scaling)
                    for seat in self._seats:
                        if (ended := self._tend(seat, repository, environment)) is not None:
                            self._on_thread(partial(self._judge, ended, located, repository))
                        if seat.child is not None and time.monotonic() >= seat.late_at:
                            seat.late_at = math.inf
                            late = partial(self._end_late, [seat.child], located, repository)
                            self._on_thread(late)
                    self._hand_on()
                    self._stop.wait(LOOK_EVERY_S)
            finally:
                scaling.close()
                watch.close()
                self._end_all(located, repository)
        return Ended(restarts=self._restarts, abandoned=self._abandoned)

    def _verify(self, located: Located, repository: str) -> None:
        """Checks the repository; waits for a database that is going down or coming up."""
        tries = 0
        was_there = False
        while not self._stop.is_set():
            try:
                migrate.verify_with(located.conninfo, repository)
            except (errors.ConnectionLost, errors.EnvironmentFault, errors.CannotConnect) as error:
                was_there = was_there or not isinstance(error, errors.CannotConnect)
                if not (was_there or is_rejecting(located.conninfo)):
                    raise
                tries += 1
                delay_s = backoff_s(tries)
                telemetry.tell(log, telemetry.DatabaseAway(error=str(error), delay_s=delay_s))
                self._stop.wait(delay_s)
            else:
                return

    def _living(self) -> list[Child]:
        """Returns the present children; for another thread."""
        return [seat.child for seat in self._seats if seat.child is not None]

    def _present(self) -> Present:
        """Returns the processes that are to go on; for another thread."""
        children = [seat.child for seat in self._seats if seat.is_wanted]
        living = [child for child in children if child is not None]
        return Present(
            tuple(child.process for child in living), sum(bool(child.limits) for child in living)
        )

    def _fit(self, scaling: Scaling) -> None:
        """Takes as many seats as are wanted; what runs something leaves only if all are to."""
        scaling.queues = self._queues
        taken = [seat for seat in self._seats if seat.is_wanted]
        free = [seat for seat in self._seats if not seat.is_wanted and seat.child is None]
        for seat in free[: max(0, scaling.count - len(taken))]:
            seat.take()
        idle = [seat for seat in reversed(taken) if not seat.is_busy(scaling.busy)]
        leaving = idle if scaling.count else taken
        for seat in leaving[: max(0, len(taken) - scaling.count)]:
            seat.leave(self._stop_timeout_s + KILL_GRACE_S)

    def _hangs(self, child: Child) -> None:
        self._told(ChildEvent(kind="hung", pid=child.pid))

    def _hand_on(self) -> None:
        """Has a child that serves tell the user's `on_error` what was found of others."""
        for child in self._living():
            while child.limits and self._unheard:
                one = self._unheard.popleft()
                if not child.hand(one):
                    self._unheard.appendleft(one)
                    break

    def _tend(self, seat: Seat, repository: str, environment: dict[str, str]) -> uuid.UUID | None:
        """Starts the child that is due; reads its reports; decides what its death means.

        Returns the process that has ended, if any.
        """
        child = seat.child
        if child is None:
            serves = seat.is_wanted
            if (serves or self._must_load(seat)) and time.monotonic() >= seat.due:
                seat.child = Child(self._spec, repository, environment, serves=serves)
                self._told(ChildEvent(kind="started", pid=seat.child.pid))
            return None
        code = child.code  # read before its reports, so that those of a dead one are whole
        for report in child.reports():
            self._heed(child, report)
        if code is None:
            return None
        self._died(seat, child, code)
        return child.process

    def _must_load(self, seat: Seat) -> bool:
        """Whether a child in this seat is to say what is served, as none serves yet."""
        return self._scale.may_be_none and not self._queues and seat is self._seats[0]

    def _heed(self, child: Child, report: dict[str, Any]) -> None:
        if "heard" in report:
            child.handed.popleft()
        if "error" in report and report["final"]:
            if report["loading"] and self._was_ready:  # as in the middle of a deployment
                event = telemetry.ChildNotLoaded(child=child.pid, error=report["text"])
                telemetry.tell(log, event)
                return
            raise _error(report)
        if "stop_timeout_s" in report:
            self._was_ready = True
            self._stop_timeout_s = report["stop_timeout_s"]
            self._queues = tuple(report["limits"])
            if not child.serves:
                self._told(ChildEvent(kind="loaded", pid=child.pid))
                return
            child.limits = report["limits"]
            self._told(ChildEvent(kind="ready", pid=child.pid))
            telemetry.tell(log, telemetry.ChildReady(child=child.pid))

    def _died(self, seat: Seat, child: Child, code: int) -> None:
        if not self._was_ready and code > 0:  # a signal says nothing about the program
            raise errors.InvalidValue(
                f"{self._spec.server} could not be loaded: its process ended with {code} while it "
                "was imported; what it said stands above"
            )
        seat.child = None
        self._unheard.extendleft(reversed(child.handed))
        child.close()
        if code in RETIRED and not (seat.is_wanted and child.serves):
            self._abandoned += code == ABANDONED
            self._told(ChildEvent(kind="retired", pid=child.pid, code=code))
            telemetry.tell(log, telemetry.ChildRetired(child=child.pid, code=code))
            return
        delay = seat.has_died(child)
        self._restarts += 1
        self._told(ChildEvent(kind="died", pid=child.pid, code=code, delay_s=delay))
        telemetry.tell(log, telemetry.ChildDied(child=child.pid, code=code, delay_s=delay))

    def _judge(self, process: uuid.UUID, located: Located, repository: str) -> None:
        """Reports that a process has ended."""
        self._unheard.extend(_say_ended(process, located, repository))

    def _on_thread(self, call: Callable[[], None]) -> None:
        """Tells the database something: it may be away for long."""
        self._verdicts = [one for one in self._verdicts if one.is_alive()]
        verdict = threading.Thread(target=call, daemon=True)
        verdict.start()
        self._verdicts.append(verdict)

    def _end_all(self, located: Located, repository: str) -> None:
        """Stops every child: asks, waits for its deadline, revokes, kills."""
        left = [seat.child for seat in self._seats if seat.child is not None]
        for child in left:
            child.signal(signal.SIGTERM)
        deadline = time.monotonic() + self._stop_timeout_s + KILL_GRACE_S
        while any(child.code is None for child in left) and time.monotonic() < deadline:
            if self._hurry.wait(LOOK_EVERY_S):
                break
        late = [child for child in left if child.code is None]
        self._end_late(late, located, repository)
        for child in left:
            child.close()
            self._abandoned += child in late or child.code == ABANDONED
        for verdict in self._verdicts:
            verdict.join(KILL_GRACE_S)

    def _end_late(self, late: list[Child], located: Located, repository: str) -> None:
        """Revokes and kills those that have not ended in time."""
        if late:
            _revoke({child.process for child in late}, located, repository)
        for child in late:
            child.signal(signal.SIGKILL)
            self._told(ChildEvent(kind="killed", pid=child.pid))
            telemetry.tell(log, telemetry.ChildKilled(child=child.pid))


def _say_ended(process: uuid.UUID, located: Located, repository: str) -> list[ops.Aborted]:
    """Says to the repository that a process has ended: what it had started is charged (G7).

    Returns the aborts.
    """
    try:
        with brief_link(located, repository) as link:
            link.perform(ops.Judge(process=process, verdict=ops.Verdict.ENDED))
            return tell_taken_over(link)
    except errors.OperatingError as error:
        _failed("say that a process has ended; others find out", error)
        return []


def _revoke(processes: set[uuid.UUID], located: Located, repository: str) -> None:
    """Ends the incarnations of processes that are about to be killed, uncharged (spec S5)."""
    try:
        with brief_link(located, repository) as link:
            close_sessions(link, processes)
            tell_taken_over(link)
    except errors.OperatingError as error:
        _failed("revoke what is killed; its requests may be charged", error)


def _failed(what: str, error: errors.OnceqError) -> None:
    telemetry.tell(log, telemetry.SupervisionFailed(what=what, error=str(error)))


def _error(report: dict[str, Any]) -> errors.OnceqError:
    """Returns the error that a child reported."""
    kind = getattr(errors, report["error"], errors.OperatingError)
    error: errors.OnceqError = kind(report["text"])
    return error
