"""What the supervisor does about a handler that hangs: it ends the process and charges the request.

Used by `server.processes`, on a thread of its own. It first freezes the process, so that nothing in
it can act meanwhile; then it tells the database; then it kills the process, and another takes its
place. Whatever else was running there comes back uncharged. Source: spec G7.
"""

from __future__ import annotations

import logging
import signal
import threading
from collections import Counter
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Final
from uuid import UUID

from onceq import errors, telemetry
from onceq.engine.connect.connection import Link
from onceq.engine.embedded.locate import Located
from onceq.engine.perform import hung
from onceq.engine.perform.hung import Hung
from onceq.engine.sessions import silence
from onceq.manager.taken_over import aborted_event
from onceq.model import admin_ops, ops
from onceq.model.element import Charge, Fate
from onceq.server.reporting import tell_taken_over
from onceq.server.telling import counted

if TYPE_CHECKING:
    from onceq.server.seats import Child

log = logging.getLogger(__name__)

LOOK_S: Final = 1.0
PATIENCE_S: Final = 10.0
CODE: Final = "hung"


class Watch:
    """Looks after the children of a service. children: the present ones, with their limits.

    A handler must be seen hanging twice: one look after a pause of the machine proves nothing.
    told: of a child whose handler hangs, before it is killed. aborted: of what is charged for it.
    """

    def __init__(
        self,
        located: Located,
        repository: str,
        children: Callable[[], list[Child]],
        *,
        told: Callable[[Child], None],
        aborted: Callable[[list[ops.Aborted]], None],
    ) -> None:
        self._link = Link(located, repository)
        self._children = children
        self._told = told
        self._aborted = aborted
        self._over = threading.Event()
        self._seen: set[tuple[int, int]] = set()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Ends the watch, once it has finished what it is doing."""
        self._over.set()
        self._thread.join(2 * PATIENCE_S)

    def _run(self) -> None:
        while not self._over.wait(LOOK_S):
            try:
                with self._link.bounded(silence.within(PATIENCE_S)):
                    self._link.reconnect()
                    self._look()
            except errors.OnceqError as error:
                _failed("look for handlers that hang", error)
        self._link.close()

    def _look(self) -> None:
        children = {child.process: child for child in self._children() if child.limits}
        if not children:
            return
        limits: dict[str, float] = {}
        for child in children.values():
            limits |= child.limits
        found = self._find(list(children), limits)
        seen, self._seen = self._seen, {(one.incarnation, one.seq) for one in found}
        again = [one for one in found if (one.incarnation, one.seq) in seen]
        for process in dict.fromkeys(one.process for one in again):
            self._end(children[process], limits)

    def _find(self, processes: list[UUID], limits: Mapping[str, float]) -> list[Hung]:
        return hung.find(self._link.connection, self._link.repository, processes, limits)

    def _end(self, child: Child, limits: Mapping[str, float]) -> None:
        """Charges what hangs in a child, revokes the rest, and kills it, unless it has gone on."""
        child.signal(signal.SIGSTOP)
        try:
            found = self._find([child.process], limits)  # it may have gone on meanwhile
            if not found:
                child.signal(signal.SIGCONT)
                return
            child.limits = {}  # hand it no more aborts: they would be lost with it
            self._told(child)
            for backend_pid in {one.backend_pid for one in found}:
                hung.end_session(self._link.connection, backend_pid)
            batches = Counter(one.incarnation for one in found if not one.is_named)
            for one in found:
                self._charge(one, limits[one.queue], child.pid, batches[one.incarnation])
            close_sessions(self._link, {child.process})
            self._aborted(tell_taken_over(self._link))
        except errors.OnceqError as error:
            _failed(f"say what hangs in process {child.pid}", error)
        child.signal(signal.SIGKILL)

    def _charge(self, one: Hung, limit_s: float, pid: int, batch: int) -> None:
        """Charges what hangs; of a batch of so many, all become suspects that run in halves."""
        whose = "its handler" if one.is_named else "a handler of its batch"
        text = (
            f"{whose} ran for {one.ran_s:.0f} s, and the limit is {limit_s:g} s; "
            "its process was ended"
        )
        charge = Charge.CHARGE if one.is_named else Charge.SUSPECT
        event = telemetry.HandlerHangs(
            queue=one.queue,
            rid=one.rid,
            eid=one.eid,
            attempt=one.aborts + 1,
            charge=charge.value,
            child=pid,
            ran_s=round(one.ran_s, 1),
            limit_s=limit_s,
        )
        telemetry.tell(log, event)
        fate = self._link.perform(
            ops.AbortElement(
                seq=one.seq,
                incarnation=one.incarnation,
                charge=charge,
                code=CODE,
                error=text,
                together=(batch + 1) // 2 if batch > 2 else None,  # half of two is one
            )
        )
        if fate is Fate.LOST:  # somebody else has decided what becomes of it
            return
        aborted = counted(one.queue, one, charge=charge, code=CODE, error=text, fate=fate)
        telemetry.tell(log, aborted_event(aborted))
        self._aborted([aborted])


def close_sessions(link: Link, processes: set[UUID]) -> None:
    """Ends the incarnations of processes that are about to be killed, uncharged (spec S5)."""
    for server in link.perform(admin_ops.ListServers()):
        if server.process in processes:
            link.perform(ops.CloseIncarnation(incarnation=server.incarnation))


def _failed(what: str, error: errors.OnceqError) -> None:
    telemetry.tell(log, telemetry.SupervisionFailed(what=what, error=str(error)))
