"""Sessions that insert, claim, stop and end in every order around a sweep; see test_cursor.

Whatever is random is in the steps; what a step meets (a lock held elsewhere) is part of the run.
"""

from __future__ import annotations

import itertools
import uuid
from typing import TYPE_CHECKING, Any, NamedTuple

import psycopg
from psycopg.pq import TransactionStatus

from onceq.engine.schema.migrate import apply_with
from onceq.engine.schema.scripts import in_schema
from onceq.model.element import Lane
from tests.parts import Background, install_variant, wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator

SESSIONS = 4
PRIORITIES = (4, 4, 9, 0)
POINTS = (-1, -2)
STEPS_TO_DRAIN = 1000

SETTINGS = "set lock_timeout = '30ms'; set synchronous_commit = off"
# Whoever comes to a pause says so by a lock of class 1, and goes on while nobody has that of class
# 2. It holds no place in a queue of waiters, so that no lock timeout ends it.
TEST_FUNCTIONS = """
create function onceq.pause(p_key integer) returns void language plpgsql as $$
begin
    perform pg_advisory_lock(1, p_key);
    for i in 1 .. 20000 loop
        exit when pg_try_advisory_lock_shared(2, p_key);
        perform pg_sleep(0.0005);
    end loop;
    perform pg_advisory_unlock_shared(2, p_key), pg_advisory_unlock(1, p_key);
end $$;
create function onceq.stop_insert() returns trigger language plpgsql as $$
begin
    if current_setting('stop.inserts', true) = 'yes' then
        perform onceq.pause(pg_backend_pid());
    end if;
    return new;
end $$;
create trigger stop_insert before insert on onceq.element
    for each row execute function onceq.stop_insert();
"""
CHECKED = "    perform onceq.advance(id, p_value)"
VALUE = "    value := coalesce(pg_sequence_last_value('onceq.element_seq_seq'), 0);\n"
HOLDERS = "    holders := onceq.inserters();  -- after the value, not before\n"
PAUSES = (
    (CHECKED, f"    perform onceq.pause(-1);\n{CHECKED}"),
    (VALUE + HOLDERS, f"{VALUE}    perform onceq.pause(-2);\n{HOLDERS}"),
)


class Step(NamedTuple):
    """kind: the name of a method of Field. at: the session. pick, flag: its arguments."""

    kind: str
    at: int
    pick: int
    flag: bool


class Inserted(NamedTuple):
    """What a session has inserted and not committed. lane, turn: None when it is not known yet."""

    eid: uuid.UUID | None
    lane: int
    turn: int


class Session:
    """One session, with at most one transaction open."""

    def __init__(self, conninfo: str) -> None:
        self.connection = psycopg.connect(conninfo, autocommit=True)
        self.connection.execute(SETTINGS)
        self.pid = self.connection.info.backend_pid
        self.inserted: list[Inserted] = []
        self.running: Background[Any] | None = None

    @property
    def is_inside(self) -> bool:
        return self.connection.info.transaction_status != TransactionStatus.IDLE


class Field:
    """A queue, the sessions that use it, and one that sweeps it."""

    def __init__(self, conninfo: str, repository: str) -> None:
        self.repository = repository
        self.numbers = itertools.count()
        apply_with(conninfo, repository)
        self.admin = psycopg.connect(conninfo, autocommit=True)
        self.admin.execute(in_schema(TEST_FUNCTIONS, repository).encode())
        self.sessions = [Session(conninfo) for _ in range(SESSIONS)]
        self.sweeper = Session(conninfo)
        self.stopped_before_an_xid = 0

    def renew(self) -> None:
        """Makes a queue for the next run: marks and lanes are those of a queue."""
        self.queue = f"q{next(self.numbers)}"
        self.one("create_queue(%s, true, 1000, 0, 0, 60, 1000, 1000, false, null, 10)", self.queue)
        where = f"select queue_id from {self.repository}.queue where name = %s"
        self.queue_id = self.value(where, self.queue)
        self.committed: set[uuid.UUID] = set()
        self.seen: list[tuple[int | None, list[str]]] = [(None, [])]

    def close(self) -> None:
        for session in [*self.sessions, self.sweeper]:
            session.connection.close()
        self.admin.close()

    # --- the database

    def value(self, query: str, *values: Any) -> Any:
        row = self.admin.execute(query.encode(), values).fetchone()
        return None if row is None else row[0]

    def one(self, call: str, *values: Any) -> Any:
        return self.value(f"select {self.repository}.{call}", *values)

    def rows(self, session: Session, call: str, *values: Any) -> list[tuple[Any, ...]]:
        """Calls a function in the session's transaction; a lock that is held rolls it back."""
        if not session.is_inside:
            session.connection.execute("begin")
        query = call.replace("onceq.", f"{self.repository}.").encode()
        try:
            return session.connection.execute(query, values).fetchall()
        except psycopg.errors.LockNotAvailable:
            self.end(session, commits=False)
            return []

    def is_paused(self, pid: int, key: int) -> bool:
        """Whether this session is at this pause."""
        query = (
            "select count(*) from pg_locks where locktype = 'advisory' and pid = %s and granted"
            " and classid = 1 and objid::bigint = %s and objsubid = 2"
        )
        return bool(self.value(query, pid, key % 2**32))

    def bar(self, key: int) -> None:
        self.value("select pg_advisory_lock(2, %s)", key)

    def unbar(self, key: int) -> None:
        self.value("select pg_advisory_unlock(2, %s)", key)

    def start(self, session: Session, key: int, call: Any) -> bool:
        """Runs a call that may come to a barred pause; whether it is there."""
        running: Background[Any] = Background(call)
        session.running = running
        wait_until(lambda: not running.is_running or self.is_paused(session.pid, key))
        return running.is_running

    def end(self, session: Session, *, commits: bool) -> None:
        if session.is_inside:
            session.connection.execute("commit" if commits else "rollback")
        if commits:
            self.committed |= {one.eid for one in session.inserted if one.eid is not None}
        session.inserted.clear()

    # --- steps

    def run(self, step: Step) -> None:
        session = self.sessions[step.at]
        if session.running is None or step.kind in {"sweep", "go_on", "kill"}:
            getattr(self, step.kind)(session, step.pick, step.flag)
        self.check()

    def insert(self, session: Session, pick: int, flag: bool) -> None:  # noqa: FBT001 # of a Step
        priority = PRIORITIES[pick % len(PRIORITIES)]
        if flag:
            call = "select eid from onceq.enqueue_many(%s, array['a', 'b']::bytea[], null, false)"
            found = self.rows(session, call, self.queue)
        else:
            call = (
                "select eid from onceq.enqueue(%s, '', null, %s::smallint, null, null, null, null,"
                " null, false)"
            )
            found = self.rows(session, call, self.queue, priority)
        for (eid,) in found:
            where = "select lane, turn from onceq.element where eid = %s"
            ((lane, turn),) = self.rows(session, where, eid)
            session.inserted.append(Inserted(eid, lane, turn))

    def stop_insert(self, session: Session, pick: int, flag: bool) -> None:  # noqa: FBT001 # of a Step
        """Begins an insert, which stops when it has its number and the lock, and often no xid."""
        self.end(session, commits=flag)
        session.connection.execute("set stop.inserts = 'yes'")
        self.bar(session.pid)
        if self.start(session, session.pid, lambda: self.insert(session, pick, flag=flag)):
            last = self.value(f"select last_value from {self.repository}.element_seq_seq")
            lane = Lane.USUAL if flag else Lane.FRESH - PRIORITIES[pick % len(PRIORITIES)]
            session.inserted.append(Inserted(None, lane, last))
            xid = "select backend_xid from pg_stat_activity where pid = %s"
            self.stopped_before_an_xid += self.value(xid, session.pid) is None
        else:
            self.go_on(session, 0, flag=False)

    def go_on(self, session: Session, pick: int, flag: bool) -> None:  # noqa: FBT001 # of a Step
        """Lets a stopped insert come to its end; its transaction stays open."""
        del pick, flag
        if session.running is not None:
            self.unbar(session.pid)
            session.running.result()
            session.running = None
            session.connection.execute("set stop.inserts = 'no'")

    def finish(self, session: Session, pick: int, flag: bool) -> None:  # noqa: FBT001 # of a Step
        """Ends the transaction; two times in three it commits."""
        del flag
        self.end(session, commits=pick % 3 > 0)

    def claim(self, session: Session, pick: int, flag: bool) -> None:  # noqa: FBT001 # of a Step
        call = "select seq from onceq.claim(%s, %s, %s, %s, false, %s)"
        everything = flag and pick % 4 == 0
        n, turn = 1 + pick % 3, pick % 2
        self.rows(session, call, session.pid, self.queue_id, n, turn, everything)

    def conclude(self, session: Session, pick: int, flag: bool) -> None:  # noqa: FBT001 # of a Step
        """Finishes what somebody has claimed, or gives it back to the retry lane."""
        query = (
            "select seq, claimed_by from onceq.element where queue_id = %s"
            " and claimed_by is not null order by seq"
        )
        held = self.rows(session, query, self.queue_id)
        if held:
            seq, owner = held[pick % len(held)]
            if flag:
                call = "select onceq.abort(%s, %s, 'release', null, null)"
            else:
                call = "select onceq.conclude_one(%s, %s, 'done')"
            self.rows(session, call, seq, owner)

    def kill(self, session: Session, pick: int, flag: bool) -> None:  # noqa: FBT001 # of a Step
        del session, flag
        if self.committed:
            eid = sorted(self.committed)[pick % len(self.committed)]
            try:
                self.one("kill(%s, 0.02)", eid)
            except psycopg.errors.LockNotAvailable:
                return  # somebody holds it: nothing happened

    def sweep(self, session: Session, pick: int, flag: bool) -> None:  # noqa: FBT001 # of a Step
        """Sweeps with an observation made before; `flag`: stops on the way, and goes on later."""
        del session
        if self.sweeper.running is not None:
            self.end_sweep()
        else:
            value, holders = self.seen[-1 - pick // 2 % len(self.seen)]
            key = POINTS[pick % 2]
            if flag:
                self.bar(key)
            self.barred = key if flag else 0
            if not self.start(self.sweeper, key, lambda: self.observe(value, holders)):
                self.end_sweep()

    def observe(self, value: int | None, holders: list[str]) -> None:
        call = f"select value, holders from {self.repository}.sweep(array[%s], %s, %s::text[])"
        row = self.sweeper.connection.execute(
            call.encode(), (self.queue_id, value, holders)
        ).fetchone()
        assert row is not None
        self.seen.append((row[0], row[1]))

    def end_sweep(self) -> None:
        if self.barred:
            self.unbar(self.barred)
        assert self.sweeper.running is not None
        self.sweeper.running.result()
        self.sweeper.running = None

    # --- what must be true

    def check(self) -> None:
        """No mark is above what may still be claimed in its lane."""
        marks = dict(self.marks())
        query = (
            f"select lane, min(turn) from {self.repository}.element where queue_id = %s"
            " and lane <= 9 /* fresh */ and claimed_by is null group by lane"
        )
        lowest: dict[int, int] = dict(
            self.admin.execute(query.encode(), (self.queue_id,)).fetchall()
        )
        for session in self.sessions:
            for one in session.inserted:
                lowest[one.lane] = min(lowest.get(one.lane, one.turn), one.turn)
        for lane, mark in marks.items():
            assert mark <= lowest.get(lane, mark), f"lane {lane}: mark {mark} above {lowest[lane]}"

    def marks(self) -> Iterator[tuple[int, int]]:
        query = (
            "select l, coalesce(pg_sequence_last_value(q.low[l + 1]), 0)"
            f" from {self.repository}.queue q, unnest(q.lanes) l where q.queue_id = %s"
        )
        yield from self.admin.execute(query.encode(), (self.queue_id,)).fetchall()

    def end_all(self, *, commits: bool) -> None:
        """Ends every transaction, the sweep last."""
        for session in self.sessions:
            self.go_on(session, 0, flag=False)
            self.end(session, commits=commits)
        if self.sweeper.running is not None:
            self.end_sweep()

    def drain(self) -> None:
        """Claims all there is, by the marks; each element comes once, and none is missing."""
        of_queue = f"from {self.repository}.element where queue_id = %s"
        query = f"select eid {of_queue} and claimed_by is null"
        wanted = {row[0] for row in self.admin.execute(query.encode(), (self.queue_id,)).fetchall()}
        claimed: list[uuid.UUID] = []
        misses = 0
        for turn in range(STEPS_TO_DRAIN):
            call = f"select eid from {self.repository}.claim(1, %s, 3, %s, false)"
            found = self.admin.execute(call.encode(), (self.queue_id, turn)).fetchall()
            claimed += [row[0] for row in found]
            misses = 0 if found else misses + 1
            if misses == 2:
                break
        assert len(claimed) == len(set(claimed))
        assert set(claimed) == wanted, f"{len(wanted - set(claimed))} are hidden"
        everywhere = (
            f"select eid {of_queue} union all"
            f" select eid from {self.repository}.history where queue_id = %s"
        )
        known = self.admin.execute(everywhere.encode(), (self.queue_id, self.queue_id)).fetchall()
        assert sorted(row[0] for row in known) == sorted(self.committed)


def with_pauses(conninfo: str, repository: str, *changes: tuple[str, str]) -> None:
    """Puts in a sweep that can be stopped on its way, as it is or changed further."""
    install_variant(conninfo, repository, "sweep", *PAUSES, *changes)
