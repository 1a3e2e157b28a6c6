"""What a server says about its requests: to its log, and to the user's `on_error`.

A server's sessions tell it what went wrong, outside of transactions, through their Programs; once a
second the server has it look around. `on_error` runs on a thread of its own. What it raises is
logged. While it does not return, aborts wait for it, at most a hundred, and the server goes on.
"""

from __future__ import annotations

import contextlib
import inspect
import logging
import queue
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final, TypeAlias
from uuid import UUID

from onceq import telemetry
from onceq.engine.connect.connection import Link
from onceq.errors import HandlerFailed, InvalidValue
from onceq.manager.taken_over import aborted_event, known_of, tell_taken
from onceq.model import ops
from onceq.model.element import Charge, Fate
from onceq.server.program import ServerSession
from onceq.server.telling import Told, Undone
from onceq.server.traces import raised, traceback_of

log = logging.getLogger(__name__)

WAITING_MAX: Final = 100
LATE_S: Final = 10.0
END_S: Final = 2.0
"""How long a stop waits for what is still to be reported."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Abort:
    """A failed execution, as `Server(on_error=...)` is told of it.

    attempt: 1 for the first. code: the abort code; charge: what it costs the request. failed: it
    was the last one, and a client that waits has a failure reply; otherwise it runs again.
    exception: what the handler raised, or onceq's error in its place, with its traceback. If no
    handler was left to raise anything, because its process died or it hung, it is a `HandlerFailed`
    that says so.
    """

    queue: str
    rid: str
    eid: UUID
    attempt: int
    code: str
    charge: Charge
    failed: bool
    exception: BaseException


_SAME: Final = ("queue", "rid", "eid", "attempt", "code", "charge")
OnError: TypeAlias = "Callable[[Abort], object]"
Heard: TypeAlias = "Callable[[], object]"
QueueEvent: TypeAlias = (
    "type[telemetry.QueueServed | telemetry.QueueStopped | telemetry.QueueMissing]"
)


@dataclass(frozen=True, slots=True)
class Handed:
    """Aborts found by a supervisor, which has no `on_error`. heard: is called once for each."""

    heard: Callable[[], object]
    found: queue.SimpleQueue[ops.Aborted] = field(default_factory=queue.SimpleQueue)


def checked(on_error: OnError | None) -> OnError | None:
    """Returns what to call. InvalidValue: it cannot be called, or would have to be awaited."""
    call = getattr(on_error, "__call__", None)  # noqa: B004 # an object with an async __call__
    if on_error is not None and call is None:
        raise InvalidValue(
            f"on_error is {type(on_error).__name__}, which cannot be called: give a function of "
            "one argument, which is told of each abort (onceq.Abort)"
        )
    if inspect.iscoroutinefunction(on_error) or inspect.iscoroutinefunction(call):
        raise InvalidValue(
            "on_error is a coroutine function, and nobody awaits it: it is called on a thread of "
            "its own, where a plain function may take its time"
        )
    return on_error


def _nobody() -> None:
    """Stands for the sender of an abort that nobody handed over."""


class Reporter:
    """Tells the log and `on_error` what happens to a server's requests, during one run."""

    def __init__(self, on_error: OnError | None, handed: Handed | None = None) -> None:
        self._handed = handed
        self._aborts: queue.Queue[tuple[Abort, Heard] | None] = queue.Queue(WAITING_MAX)
        self._dropped = 0
        self._began: float | None = None
        self._told_of: float | None = None
        self._unserved: dict[str, QueueEvent] = {}
        self._thread: threading.Thread | None = None
        if on_error is not None:
            self._thread = threading.Thread(
                target=self._run, args=(on_error,), name="onceq-on-error", daemon=True
            )
            self._thread.start()

    def tell(self, told: Told) -> None:
        """Logs what a session tells, and passes aborts on to `on_error`."""
        if isinstance(told, Undone):
            telemetry.tell(log, event_of(told))
            self._hand_on(abort_of(told.aborted, raised(told.error)))
        elif isinstance(told, ops.TakenOver):
            tell_taken(told)
            for one in told.aborted:
                self._hand_on(abort_of(one))
        else:
            telemetry.tell(log, told)

    def _hand_on(self, abort: Abort, heard: Heard = _nobody) -> None:
        if self._thread is None:
            heard()
            return
        try:
            self._aborts.put_nowait((abort, heard))
        except queue.Full:
            self._dropped += 1
            heard()

    def _take_handed(self) -> None:
        """Passes on what a supervisor has handed over, and logged itself."""
        handed = self._handed
        if handed is not None:
            for _ in range(handed.found.qsize()):  # nobody else takes from it
                self._hand_on(abort_of(handed.found.get()), handed.heard)

    def look(self, sessions: Sequence[ServerSession]) -> None:
        """Logs changes: queues that are no longer served, an `on_error` that does not return."""
        self._take_handed()
        self._look_at_queues(sessions)
        began = self._began
        if began is None or began == self._told_of or time.monotonic() - began < LATE_S:
            return
        self._told_of = began
        self._tell_late(began)

    def _look_at_queues(self, sessions: Sequence[ServerSession]) -> None:
        unserved: dict[str, QueueEvent] = {}
        for session in sessions:
            unserved |= dict.fromkeys(session.standing.stopped, telemetry.QueueStopped)
            unserved |= dict.fromkeys(session.missing, telemetry.QueueMissing)
        for name in sorted(unserved.keys() | self._unserved.keys()):
            now = unserved.get(name, telemetry.QueueServed)
            if now is not self._unserved.get(name, telemetry.QueueServed):
                telemetry.tell(log, now(queue=name))
        self._unserved = unserved

    def close(self) -> None:
        """Waits a little for what is still to be reported; logs how much is not by then."""
        if self._thread is None:
            return
        self._take_handed()
        end = time.monotonic() + END_S
        with contextlib.suppress(queue.Full):
            self._aborts.put(None, timeout=END_S)
        self._thread.join(max(0.0, end - time.monotonic()))
        if self._thread.is_alive():
            self._tell_late(self._began or end - END_S)

    def _tell_late(self, began: float) -> None:
        ran_s = round(time.monotonic() - began, 1)
        waiting = self._aborts.qsize()
        telemetry.tell(
            log, telemetry.OnErrorLate(ran_s=ran_s, waiting=waiting, dropped=self._dropped)
        )

    def _run(self, on_error: OnError) -> None:
        while (waiting := self._aborts.get()) is not None:  # until `close`
            abort, heard = waiting
            self._began = time.monotonic()
            try:
                on_error(abort)
            except BaseException as error:  # noqa: BLE001 # user's code on a thread of ours: nobody else would say it
                telemetry.tell(log, _failure(abort, error))
            self._began = None
            heard()


def tell_taken_over(link: Link) -> list[ops.Aborted]:
    """Logs what this link has taken back, for a supervisor. Returns what was aborted."""
    found = link.perform(ops.ListTakenOver())
    for one in found:
        tell_taken(one)
    return [one for taken in found for one in taken.aborted]


def event_of(undone: Undone) -> telemetry.Event:
    """Returns the log's event for an abort; no traceback if the one before said the same."""
    if undone.is_conflict:
        return telemetry.Conflict(**known_of(undone.aborted))
    trace = undone.trace
    is_shown = trace is not None and trace.is_handlers and not undone.again
    return aborted_event(undone.aborted, trace.text if trace is not None and is_shown else None)


def abort_of(one: ops.Aborted, exception: BaseException | None = None) -> Abort:
    """Returns an abort in the form that `on_error` gets; None: no handler was left to raise."""
    known = {name: getattr(one, name) for name in _SAME}
    return Abort(
        **known,
        failed=one.fate is Fate.FAILED,
        exception=HandlerFailed(one.code, one.error) if exception is None else exception,
    )


def _failure(abort: Abort, error: BaseException) -> telemetry.OnErrorFailed:
    return telemetry.OnErrorFailed(
        queue=abort.queue,
        rid=abort.rid,
        eid=abort.eid,
        code=type(error).__name__,
        traceback=traceback_of(error),
    )
