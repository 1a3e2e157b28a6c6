"""What servers, senders of datagrams, killers and operators recorded, added to the elements.

Private to the checker. In any order: `at` tells what happened before what, on one machine.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from msgspec import Struct

from onceq.history import events as ev
from onceq.history.blame import Facts, Injected
from onceq.history.table import Table


class AnsweredKill(Struct, gc=False):
    """A kill that answered, and when it was begun."""

    begun_at: int
    at: int
    rid: str
    eid: str
    answer: str


class Others:
    """The events that are not clients'.

    faults: those injected. starts: whether anybody records `Started`. kills, redrives,
    enqueued: the answers, each judged once the final state is known. killed: the rids of kills.
    senders: who enqueued. runs: for an element executed more than once, who executed it.
    """

    def __init__(self, table: Table) -> None:
        self.table = table
        self.faults = Injected()
        self.starts = False
        self.senders: set[str] = set()
        self.servers: dict[str, str] = {}
        self.runs: dict[str, set[str]] = {}
        self.kills: list[AnsweredKill] = []
        self.killed: set[str] = set()
        self.redrives: list[ev.Redriven] = []
        self.enqueued: list[ev.Enqueued] = []
        self.enqueue_begun: set[str] = set()
        self._kill_begun: dict[tuple[str, str, str], int] = {}

    def executed(self, event: ev.Executed) -> None:
        """An execution: how often, with which attempt, and the times of the last two."""
        element = self.table.elements.get(event.eid)
        if element is None:
            element = self.table.element(event.eid, event.rid)
        element.executed += 1
        by = self.servers.get(event.actor)
        if by is None:
            by = self.servers[event.actor] = event.actor
        if element.executed == 1:
            element.ran_by, element.ran_first = by, event.at
        else:
            self.runs.setdefault(event.eid, {element.ran_by}).add(by)
            element.ran_first = min(element.ran_first, event.at)
        element.attempt = max(element.attempt, event.attempt)
        if event.at > element.ran_at:
            element.ran_before, element.ran_at = element.ran_at, event.at
        elif event.at > element.ran_before:
            element.ran_before = event.at

    def started(self, event: ev.Started) -> None:
        """The evidence for a charge."""
        self.starts = True
        element = self.table.elements.get(event.eid)
        if element is None:
            element = self.table.element(event.eid, event.rid)
        element.started += 1

    def aborted(self, event: ev.Aborted) -> None:
        """An execution that ended in an abort."""
        element = self.table.element(event.eid, event.rid)
        element.excused += event.excused
        element.retried += event.excused and event.code == ev.RETRY
        element.raised += not event.excused

    def enqueue_started(self, event: ev.EnqueueBegun) -> None:
        """Somebody enqueues this rid."""
        self.enqueue_begun.add(event.rid)
        self.senders.add(event.actor)

    def enqueue_ok(self, event: ev.Enqueued) -> None:
        """An enqueue was acknowledged."""
        self.enqueued.append(event)

    def kill_begun(self, event: ev.KillBegun) -> None:
        """A kill may take effect from here on."""
        self._kill_begun[event.actor, event.rid, event.eid] = event.at
        self._killing(event.eid, event.rid, 1)

    def kill_failed(self, event: ev.KillFailed) -> None:
        """A kill raised; unless that is unknown, nothing happened."""
        if not event.unknown:
            self._killing(event.eid, event.rid, -1)

    def _killing(self, eid: str, rid: str, count: int) -> None:
        element = self.table.named(eid, rid)
        if element is not None:
            element.kills += count

    def kill_answered(self, event: ev.KillAnswered) -> None:
        """A kill answered."""
        begun_at = self._kill_begun.get((event.actor, event.rid, event.eid), event.at)
        kill = AnsweredKill(begun_at, event.at, event.rid, event.eid, event.answer)
        self.kills.append(kill)
        self.killed.add(event.rid)

    def redriven(self, event: ev.Redriven) -> None:
        """A redrive answered."""
        if event.new_eid is not None:
            self.redrives.append(event)

    def fault(self, event: ev.Fault) -> None:
        """A fault was injected. If it is evidence against one element, it excuses no other."""
        if event.what == ev.HELD_IN_CRASH:
            self.table.element(event.target, event.rid).started += 1
        else:
            self.faults.add(event.target, event.at)

    def facts(self) -> Facts:
        """What these events say, if they are all there are. Call it once, after all were taken."""
        table = self.table
        clients = {name for name, _ in table.by_client} | {name for name, _ in table.replies}
        self.faults.sort(self.servers, clients | self.senders)
        return Facts(faults=self.faults, starts=self.starts, executions=bool(self.servers))

    def nothing(self, _event: ev.Event) -> None:
        """Events recorded for people only."""


TAKE: dict[type[ev.Event], Callable[[Others, Any], None]] = {
    ev.Executed: Others.executed,
    ev.Started: Others.started,
    ev.Aborted: Others.aborted,
    ev.EnqueueBegun: Others.enqueue_started,
    ev.Enqueued: Others.enqueue_ok,
    ev.KillBegun: Others.kill_begun,
    ev.KillAnswered: Others.kill_answered,
    ev.KillFailed: Others.kill_failed,
    ev.Redriven: Others.redriven,
    ev.Doubted: Others.nothing,
    ev.Returned: Others.nothing,
    ev.Fault: Others.fault,
    ev.Ended: Others.nothing,
    ev.Effect: Others.nothing,
}
"""Which function takes each kind of event that is not a client's."""
