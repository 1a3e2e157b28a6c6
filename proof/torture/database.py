"""PostgreSQL during a run: its own one, killed and restarted, or a scratch database of the user's.

Used by the conductor. What takes time is done on a thread of its own, one thing at a time, so that
other faults go on meanwhile. Only a PostgreSQL of its own is ever killed or filled.
"""

from __future__ import annotations

import contextlib
import re
import time
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Final

import onceq
from onceq.engine.embedded import open_embedded
from onceq.engine.embedded.directory import Layout
from onceq.engine.embedded.locate import locate
from onceq.engine.schema.migrate import apply_with
from onceq.errors import EmbeddedError, InvalidValue, OperatingError
from proof.harness.ledger import ask, make_ledger
from proof.torture import hot
from proof.torture.disk import SmallDisk
from proof.torture.life import QUEUES
from proof.torture.processes import children, kill_below

if TYPE_CHECKING:
    from collections.abc import Callable
    from concurrent.futures import Future
    from pathlib import Path

    from onceq.engine.embedded import EmbeddedServer
    from proof.torture.plan import Plan

SETTINGS: Final = {"max_wal_size": "512MB", "recovery_init_sync_method": "syncfs"}
RECOVERED: Final = b"automatic recovery in progress"
"""What PostgreSQL says once for each crash that it has seen."""
RESTART_S: Final = 120.0
RETRY_S: Final = 0.02
LOOK_SHARE: Final = 0.1
"""The most of the time that is spent looking: a look reads the whole ledger and all of history."""
BUSY: Final = "the one before was not over"
NOT_OURS: Final = "the database is not one of its own"
_VACUUM: Final = (
    "vacuum (skip_locked, truncate off) {r}.element, {r}.registration, {r}.registrant, {r}.server"
)
"""A crash discards the statistics by which autovacuum knows its work: here it would never begin."""
_ANALYZE: Final = "analyze {r}.history, {r}.effects"
"""Likewise: what joins the two would do so row by row."""
_SESSIONS: Final = """
    select application_name, pid, state <> 'idle' from pg_stat_activity
        where application_name = any (%s) order by pid
"""
_LEFT: Final = """
    select count(*) from {r}.element e join {r}.queue q on q.queue_id = e.queue_id
        where e.role in ('request', 'datagram') and q.name <> %s
"""
BREAKS: Final = {
    "fence": (
        ("finish", re.compile(r"if [^;]*?< cardinality\(p_seqs\) then"), "if false then"),
        (
            "conclude_done",
            re.compile(r"if not found then\s+raise exception 'element[^;]*;"),
            "if not found then return null;",
        ),
    ),
    "charge": (("broken_by", re.compile(r"charge := 'environment'"), "charge := 'charge'"),),
    "claim": (
        (
            "return_element",
            re.compile(r"due := [^;]*"),
            r"\g<0> + case when p_charge = 'release' then interval '2 minutes' else '0' end",
        ),
    ),
}
"""Which functions a control breaks, and how: a finish commits although its claim was lost; a living
process is charged for a connection that broke; what was claimed comes back late."""
_WRONG_SOON: Final = (
    """
    select format('G7: %s was charged for the death of %s, which lives', a.eid, a.pid)
        from {r}.attempt a join {r}.server s on s.pid = a.pid and s.incarnation > a.server
        where a.charge = 'charge' and a.code = 'server_died' limit 3
    """,
    """
    select format('G12: %s is put off for longer than any back-off', eid)
        from {r}.element where not_before > {r}.now() + interval '30 seconds' limit 3
    """,
)
"""What is read in no time."""
_WRONG: Final = (
    """
    select 'G2: the effect of ' || rid || ' is there ' || count(*) || ' times'
        from {r}.effects group by rid, eid having count(*) > 1 limit 3
    """,
    """
    select 'G2: ' || key || ' was ordered once, booked by ' || count(distinct eid) || ' requests'
        from {r}.effects group by key having count(distinct eid) > 1 limit 3
    """,
    """
    select 'G8: ' || q.rid || ' is ' || q.outcome || ' and its effect is there'
        from {r}.requests q join {r}.effects e on e.eid = q.eid::text
        where q.state = 'finished' and q.outcome <> 'done' limit 3
    """,
    hot.WRONG,
)


class Database:
    """The repository of a run. found: wrong things seen while it runs."""

    def __init__(self, plan: Plan) -> None:
        self.repository = f"torture_{plan.seed % 10**9}"
        self.found: list[str] = []
        self.conninfo = ""
        self.disk: SmallDisk | None = None
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="database")
        self._under_way: Future[None] | None = None
        self._looks = ThreadPoolExecutor(1, thread_name_prefix="looks")
        self._looking: Future[None] | None = None
        self._tidied = time.monotonic()
        self._looks_s = plan.looks_s
        self._look_at = 0.0
        self._server: EmbeddedServer | None = None
        self._was_made = False
        self._crashes = Crashes()
        try:
            self._open(plan)
            self._prepare(plan)
        except BaseException:
            self.close(keep=False)
            raise

    def _open(self, plan: Plan) -> None:
        if plan.url is None:
            self.disk = SmallDisk(plan.place)
            root = plan.place if self.disk.why_not else self.disk.root
            self._server = open_embedded(root / "postgresql", settings=SETTINGS)
            self.conninfo = self._server.conninfo
            return
        with contextlib.closing(locate(plan.url)) as located:
            if located.embedded is not None:
                raise InvalidValue("--url names a scratch database that runs by itself")
            self.conninfo = located.conninfo

    def _prepare(self, plan: Plan) -> None:
        self._was_made = apply_with(self.conninfo, self.repository)
        if not self._was_made:
            raise InvalidValue(
                f"there is a repository {self.repository} of an earlier run: drop that schema, "
                "or take another seed"
            )
        make_ledger(self.conninfo, self.repository)
        ask(self.conninfo, hot.making(self.repository))
        with onceq.open(self.conninfo, repository=self.repository) as qm:
            for queue in QUEUES.values():
                qm.declare(queue)
        if plan.broken in BREAKS:
            break_on_purpose(self.conninfo, self.repository, plan.broken)

    def crash(self, kind: str, choice: int) -> str | None:
        """Kills PostgreSQL, or one of its processes, and sees to its return; else why not."""
        if self._server is None:
            return NOT_OURS
        if _is_under_way(self._under_way):
            return BUSY
        try:
            postmaster = self._server.postmaster_pid()
        except EmbeddedError:
            return "it was down"
        victims = children(postmaster)
        if kind == "kill backend" and victims:
            killed = kill_below(victims[choice % len(victims)], postmaster)
        else:
            killed = kill_below(postmaster, 1)
        self._do(self._return)
        return None if killed else "it was gone"

    def tend(self) -> None:
        """Sees that PostgreSQL runs, and looks for what is wrong already; from time to time."""
        if not _is_under_way(self._under_way):
            self._do(self._return)
        self.restarts()
        now = time.monotonic()
        if now - self._tidied > self._looks_s and not _is_under_way(self._looking):
            self._tidied = now
            self._looking = self._looks.submit(self._look)

    def fill(self) -> str | None:
        """Fills the disk; else why not."""
        if self.disk is None:
            return NOT_OURS
        if self.disk.why_not is None:
            self.disk.fill()
        return self.disk.why_not

    def clear(self) -> None:
        """Makes room again, and sees that PostgreSQL runs."""
        if self.disk is not None:
            self.disk.clear()
            self.tend()

    def end_session(
        self, names: list[str], choice: int, told: Callable[[str, int], None]
    ) -> str | None:
        """Ends a session of one of these participants; else why not. told: whose, and which.

        Every second time one that is at work, if one is.
        """
        try:
            found = ask(self.conninfo, _SESSIONS, names)
            busy = [one[:2] for one in found if one[2]]
            those = busy if busy and choice % 2 else [one[:2] for one in found]
            if not those:
                return "no session was there"
            name, backend = those[choice // 2 % len(those)]
            told(name, backend)
            ask(self.conninfo, "select pg_terminate_backend(%s)", backend)
        except OperatingError:
            return "it was down"
        return None

    def left(self, *, but: str) -> int:
        """Returns how many elements are not finished, except those of one queue."""
        query = _LEFT.format(r=self.repository)
        return int(ask(self.conninfo, query, but)[0][0])

    def settle(self) -> None:
        """Waits until nothing is under way any more, and PostgreSQL runs."""
        self._pool.submit(self._return).result(2 * RESTART_S)

    def restarts(self) -> int:
        """Returns how often PostgreSQL has recovered from a crash, by its own log; 0: not ours."""
        if self._server is not None:
            self._crashes.read(Layout(self._server.directory).log)
        return self._crashes.count

    def close(self, *, keep: bool) -> None:
        """Stops what is its own; keep: and leaves the data, for whoever wants to look."""
        self._looks.shutdown()
        self._pool.shutdown()
        if self._server is not None:
            self._server.close()
        elif self._was_made and not keep:
            ask(self.conninfo, f"drop schema {self.repository} cascade")
        if self.disk is not None:
            self.disk.close(keep=keep)

    def _do(self, call: Callable[[], None]) -> None:
        self._under_way = self._pool.submit(call)

    def _return(self) -> None:
        end = time.monotonic() + RESTART_S
        while self._server is not None:
            try:
                self._server.ensure_running()
            except EmbeddedError:
                if time.monotonic() > end:
                    raise
                time.sleep(RETRY_S)
            else:
                return

    def _look(self) -> None:
        """Tidies, and looks for what is wrong already; the history is judged at the end."""
        with contextlib.suppress(OperatingError):
            ask(self.conninfo, _VACUUM.format(r=self.repository))
        began = time.monotonic()
        if began < self._look_at:
            return
        with contextlib.suppress(OperatingError):
            for query in _WRONG_SOON:
                self._find(query)
            ask(self.conninfo, _ANALYZE.format(r=self.repository))
            for query in _WRONG:
                self._find(query)
        ended = time.monotonic()
        self._look_at = ended + (ended - began) / LOOK_SHARE

    def _find(self, query: str) -> None:
        rows = ask(self.conninfo, query.format(r=self.repository))
        self.found += [row[0] for row in rows if row[0] not in self.found]


class Crashes:
    """Counts the crashes that a log tells of, while it grows and is begun anew."""

    def __init__(self) -> None:
        self.count = 0
        self._read = 0

    def read(self, log: Path) -> None:
        """Reads what is new in whole lines; an older generation is beside the log."""
        if log.stat().st_size < self._read:
            self._take(log.with_suffix(".log.1"))
            self._read = 0
        self._take(log)

    def _take(self, log: Path) -> None:
        with log.open("rb") as file:
            file.seek(self._read)
            lines = file.read().rpartition(b"\n")[0]
        self.count += lines.count(RECOVERED)
        self._read += len(lines)


def _is_under_way(call: Future[None] | None) -> bool:
    return call is not None and not call.done()


def break_on_purpose(conninfo: str, repository: str, broken: str) -> None:
    """Breaks functions of the repository: a control, which must be found."""
    where = "select pg_get_functiondef(oid) from pg_proc where oid = %s::regproc"
    for name, good, bad in BREAKS[broken]:
        text = str(ask(conninfo, where, f"{repository}.{name}")[0][0])
        changed, count = good.subn(bad, text)
        if count != 1:
            raise InvalidValue(f"{name}() is not written as the control {broken!r} expects it")
        ask(conninfo, changed)
