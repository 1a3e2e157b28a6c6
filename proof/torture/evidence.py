"""Evidence by element: what was executed again, or charged, was struck by a fault that is known.

Used by the judge. The conductor and the cutters have written down what they did to whom (`Fault`:
`struck`, from `at` to `until`), the handler each execution with its process and session, the
database each abort. An execution that was not the last is excused by its own handler's failure, by
another's lock, by the end of its batch, as its server told it, or by a fault that struck its
process, its session or the whole database while it was under way; a charge by the handler's
failure, or by the death of the process that was executing just that element, or that had begun it
again, unseen, after a first execution that came to nothing. Nothing else excuses, and nothing is
allowed for.
"""

from __future__ import annotations

import bisect
from collections import Counter, defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import msgspec

from onceq.history.events import ALL, Aborted, Ended, Executed, Fault, KillBegun, Returned
from onceq.history.events.files import Lines
from proof.harness.ledger import ask
from proof.torture.life import ABORT_LIMIT, LIMIT_S

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from onceq.history.events import Event

ABORTS_NAME: Final = "aborts.jsonl"
BEFORE_NS: Final = 2_000_000_000
"""How long before an execution a fault that strikes it may be recorded: a signal takes its time on
a busy machine, and whoever was struck may not know it yet."""
KILLING_NS: Final = 3_000_000_000
"""How long after its begin a kill may take effect: by then its client has given it up."""
CONFLICTS: Final = frozenset({"DeadlockDetected", "LockNotAvailable"})
"""Of other transactions of this run: nothing was done to this one."""
LIMITS: Final = frozenset({"TransactionTimeout", "IdleInTransactionSessionTimeout"})
"""How the database ends what has executed for LIMIT_S: it may have met another's lock."""
DIED: Final = "server_died"
FELL: Final = "database_fell"
UNDONE: Final = "batch undone"
"""No fault of anybody's: a server says why it executes again."""
_CHARGES: Final = frozenset({"charge", "reject"})
_ABORTS: Final = """
    select eid::text, charge, coalesce(code, ''), coalesce(pid, 0)
        from {r}.attempt order by ended_at, record_no
"""


def limited(pid: int) -> str:
    """Returns whom a process says to be struck when the database ends its session by its limit.

    It strikes what had executed for so long by then, be it in its commit, and nothing else.
    """
    return f"limit of {pid}"


def undone(pid: int, eid: str) -> str:
    """Returns whom a process says to be struck when its batch comes to nothing: one request.

    It strikes that execution of the request, and no other's.
    """
    return f"batch of {pid} with {eid}"


class Abort(msgspec.Struct, kw_only=True, frozen=True, tag_field="event", tag=True):
    """An abort as the database has it. pid: of the process that executed; 0: not known."""

    eid: str
    charge: str
    code: str
    pid: int = 0


def store_aborts(conninfo: str, repository: str, place: Path) -> None:
    """Writes down the aborts that the database knows of, in their order."""
    rows = ask(conninfo, _ABORTS.format(r=repository))
    aborts = [Abort(eid=eid, charge=charge, code=code, pid=pid) for eid, charge, code, pid in rows]
    (place / ABORTS_NAME).write_bytes(msgspec.json.Encoder().encode_lines(aborts))


def load_aborts(place: Path) -> list[Abort]:
    """Returns the aborts that were written down, none where nobody did."""
    path = place / ABORTS_NAME
    return Lines((Abort,)).decode(path.read_bytes()) if path.exists() else []


class Strikes:
    """The faults, by whom they struck; `sort` them once, when all were added."""

    def __init__(self) -> None:
        self._of: defaultdict[str, list[tuple[int, int]]] = defaultdict(list)
        self._longest: dict[str, int] = {}

    def add(self, whom: str, at: int, until: int) -> None:
        """Adds a fault. until: when it was over, 0 where that was at once."""
        self._of[whom].append((at, max(at, until)))

    def sort(self) -> None:
        """Makes ready what was added."""
        for whom, faults in self._of.items():
            faults.sort()
            self._longest[whom] = max(until - at for at, until in faults)

    def hit(self, whom: str, begin: int, end: int) -> bool:
        """Returns whether a fault struck it within these times."""
        faults = self._of.get(whom, [])
        first = bisect.bisect_left(faults, (begin - self._longest.get(whom, 0), 0))
        last = bisect.bisect_right(faults, (end, end))
        return any(until >= begin for _, until in faults[first:last])


@dataclass(slots=True)
class Run:
    """An execution. name: of whoever executed.

    raised: its handler did; met: another's lock, or its limit. aborted: its handler saw that it
    came to nothing, whatever the reason.
    """

    at: int
    rid: str
    eid: str
    name: str
    pid: int
    backend: int
    raised: bool = False
    met: bool = False
    aborted: bool = False


class Evidence:
    """Takes all events on a first pass, and again on a second one; then says what is wrong.

    aborts: those that the database knows of, in their order. unrecorded: the eids of which nobody
    records executions. falls: charges for falls of the database that coincided, each with its
    evidence (ADR 18).
    """

    def __init__(self, aborts: Sequence[Abort], unrecorded: frozenset[str]) -> None:
        self.falls = 0
        self._aborts = [one for one in aborts if one.eid not in unrecorded]
        self._charged = {one.eid for one in self._aborts if one.code == DIED}
        self._strikes = Strikes()
        self._times: Counter[str] = Counter()
        self._raised: Counter[str] = Counter()
        self._killed: dict[str, int] = {}
        self._deaths: dict[int, int] = {}
        self._sessions: defaultdict[int, dict[int, str]] = defaultdict(dict)
        self._pids: dict[str, int] = {}
        self._open: dict[tuple[int, int], str] = {}
        self._runs: defaultdict[str, list[Run]] = defaultdict(list)

    def take(self, event: Event) -> None:
        """Takes an event, on the first pass; those of a process in their order."""
        match event:
            case Executed():
                self._times[event.eid] += 1
                self._sessions[event.pid][event.backend] = event.eid
                self._open[event.pid, event.backend] = event.eid
                self._pids[event.actor] = event.pid
            case Returned():
                self._close(event.pid, event.eid)
            case Aborted():
                self._raised[event.eid] += not event.excused
                self._close(self._pids.get(event.actor, 0), event.eid)
            case Fault():
                for whom in event.struck:
                    self._strikes.add(whom, event.at, event.until)
            case Ended():
                self._deaths.update({event.pid: event.at} if event.how else {})
            case KillBegun():
                self._killed[event.eid] = event.at
            case _:
                pass

    def _close(self, pid: int, eid: str) -> None:
        for backend in self._sessions.get(pid, ()):
            if self._open.get((pid, backend)) == eid:
                del self._open[pid, backend]

    def again(self, event: Event) -> None:
        """Takes an event, on the second pass: the executions that need evidence."""
        if isinstance(event, Executed):
            eid = event.eid
            if self._times[eid] > 1 or eid in self._killed or eid in self._charged:
                name = event.actor.rpartition(" ")[2]
                run = Run(event.at, event.rid, eid, name, event.pid, event.backend)
                self._runs[eid].append(run)
        elif isinstance(event, Aborted) and event.eid in self._runs:
            run = self._runs[event.eid][-1]  # of the same process, whose events come in their order
            lasted_s = (event.at - run.at) / 1e9
            is_over = (
                event.code in LIMITS and lasted_s > LIMIT_S * 0.9
            )  # it began before its handler
            run.raised, run.met = not event.excused, event.code in CONFLICTS or is_over
            run.aborted = True

    def wrong(self) -> Iterator[str]:
        """Yields what nothing excuses."""
        self._add_kills()
        self._strikes.sort()
        for runs in self._runs.values():
            runs.sort(key=lambda run: run.at)
            for index, run in enumerate(runs[:-1]):
                if not self._is_excused(run, runs[index + 1].at):
                    text = "was executed again, and nothing had struck its execution"
                    yield f"G7 {run.rid}: {text} by {run.name} (session {run.backend})"
        yield from self._wrongly_charged()

    def _add_kills(self) -> None:
        """Who kills a request of a batch undoes the whole."""
        for eid, at in self._killed.items():
            for run in self._runs.get(eid, ()):
                if run.at - BEFORE_NS <= at + KILLING_NS:
                    self._strikes.add(f"backend {run.backend}", at, at + KILLING_NS)

    def _is_excused(self, run: Run, again_at: int) -> bool:
        if run.raised or run.met or self._was_cut(run, again_at):
            return True
        if self._strikes.hit(undone(run.pid, run.eid), run.at, again_at):
            return True
        return self._strikes.hit(run.name, run.at - BEFORE_NS, again_at)

    def _was_cut(self, run: Run, before: int) -> bool:
        """Returns whether the session of an execution was ended, be it with the database."""
        over_at = run.at + round(0.9 * LIMIT_S * 1e9)  # it began before its handler
        if self._strikes.hit(limited(run.pid), over_at, before):
            return True
        sessions = [run.backend] if run.backend else [*self._sessions[run.pid]]
        whom = [ALL, *(f"backend {one}" for one in sessions)]
        return any(self._strikes.hit(one, run.at - BEFORE_NS, before) for one in whom)

    def _wrongly_charged(self) -> Iterator[str]:
        """Yields the charges for which there is no evidence."""
        charged_by: defaultdict[int, set[str]] = defaultdict(set)
        raised = self._raised.copy()
        in_row: Counter[str] = Counter()
        for one in self._aborts:
            falls, in_row[one.eid] = in_row[one.eid], (in_row[one.eid] + 1) * (one.code == FELL)
            if one.charge not in _CHARGES:
                continue
            if one.code == DIED:
                charged_by[one.pid].add(one.eid)
                yield from self._died(one, charged_by[one.pid])
            elif one.code == FELL and falls >= ABORT_LIMIT:
                self.falls += 1
            elif raised[one.eid]:
                raised[one.eid] -= 1
            else:
                yield f"G7 {one.eid}: was charged for {one.code}, and its handler had not raised"

    def _died(self, one: Abort, charged: set[str]) -> Iterator[str]:
        """Yields what is wrong with the charge of a death. charged: all for the same one."""
        sessions, at = self._sessions.get(one.pid, {}), self._deaths.get(one.pid)
        if at is None:
            yield f"G7 {one.eid}: was charged for the death of {one.pid}, which nobody had killed"
        elif len(charged) > 1:
            yield f"G7 {one.eid}: was charged for the death of {one.pid}, as another was"
        elif one.eid in sessions.values():
            return
        elif any(self._stood(run, at) for run in self._runs.get(one.eid, ()) if run.pid == one.pid):
            text = "which ran another by then"
            yield f"G7 {one.eid}: was charged for the death of {one.pid}, {text}"
        elif sessions and all((one.pid, backend) in self._open for backend in sessions):
            text = "which was busy with others"
            yield f"G7 {one.eid}: was charged for the death of {one.pid}, {text}"

    def _stood(self, run: Run, at: int) -> bool:
        """Returns whether an execution had not come to nothing when its process died.

        If it had, the process may have begun it again, seen by nobody.
        """
        is_undone = self._strikes.hit(undone(run.pid, run.eid), run.at, at)
        return not (run.aborted or is_undone or self._was_cut(run, at))
