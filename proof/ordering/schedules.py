"""Schedules of senders, servers and misfortunes on a strict queue, by seeds; and their judge.

One thread takes all steps, so a seed is the same schedule each time, in a repository of its own.
"""

from __future__ import annotations

import contextlib
import random
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NoReturn
from uuid import UUID, uuid4

import psycopg

import onceq
from onceq.engine.perform.driver import PostgresDriver, open_session
from onceq.engine.sessions import session
from onceq.errors import ClaimLost
from onceq.model import ops
from onceq.model.element import Charge, Fate, KillAnswer
from proof.conformance.ground import begin, finish

if TYPE_CHECKING:
    from onceq.model.element import Element

STEPS = 60
SERVERS = 3
SENDERS = 2
ROLLED_BACK = 0.2
"""The share of open sends that do not commit."""
SNAPSHOTS = 0.2
"""The share of handlers whose transaction keeps the snapshot with which it began."""
KILLS_LEFT_OUT = 0.5
CODE = "Bad"

AT_ONCE = "sends that commit at once"
LATE = "sends that commit late"
BEHIND = "of these, after one that was sent later had begun"
SEND_ROLLED_BACK = "sends that are rolled back"
CLAIMED = "claims that find the next"
NOTHING = "claims that find nothing while something waits or runs"
FINISHED = "executions that are committed"
FOLLOWED = "of these, with the next claimed in the same transaction"
SNAPSHOT = "finishes by an older snapshot"
FINISH_ROLLED_BACK = "finishes that are rolled back"
LOST = "executions that end after a kill of their request"
ABORTED = "aborts that return it"
FAILED = "aborts by which it fails"
DIED_IDLE = "deaths of servers that hold nothing"
DIED_HOLDING = "deaths with what was claimed and not begun"
DIED_FINISHING = "deaths between a finish and its commit"
AGAIN = "executions that come again"
KILLED_WAITING = "kills of what waits"
KILLED_RUNNING = "kills of what runs"
KINDS = (
    *(AT_ONCE, LATE, BEHIND, SEND_ROLLED_BACK),
    *(CLAIMED, NOTHING, AGAIN, FINISHED, FOLLOWED, SNAPSHOT, FINISH_ROLLED_BACK, LOST),
    *(ABORTED, FAILED, DIED_IDLE, DIED_HOLDING, DIED_FINISHING, KILLED_WAITING, KILLED_RUNNING),
)
"""All that a schedule counts."""
FATES = {Fate.RETURNED: ABORTED, Fate.FAILED: FAILED, Fate.LOST: LOST}


class WrongError(Exception):
    """What must not happen has happened."""


@dataclass
class Sent:
    """A send: when it began and, once it is committed, when it had; whether it began to run."""

    began: int
    committed: int | None = None
    has_run: bool = False
    is_over: bool = False


@dataclass
class Server:
    """A server: its session, its incarnation and what it holds.

    finishing: it has finished that, and not committed; following: what it claimed in doing so.
    """

    driver: PostgresDriver
    process: UUID
    life: ops.Incarnation
    held: Element | None = None
    finishing: bool = False
    following: Element | None = None

    def let_go(self) -> None:
        """Holds nothing any more."""
        self.held = self.following = None
        self.finishing = False


class Schedule:
    """One run: steps drawn by a seed; `wrong` says what was overtaken, lost, or beside another."""

    def __init__(self, conninfo: str, repository: str, seed: int) -> None:
        self.conninfo, self.repository = conninfo, repository
        self.random = random.Random(seed)
        self.queue = f"line-{seed}"
        self.time = 0
        self.sent: dict[UUID, Sent] = {}
        self.open: list[tuple[psycopg.Connection[Any], UUID]] = []
        self.servers: list[Server] = []
        self.wrong: list[str] = []
        self.did = Counter[str]()
        self._undo = contextlib.ExitStack()
        self._main = self._driver()
        settings = onceq.Queue(
            self.queue, bytes, bytes, order="strict", backoff_ms=0, backoff_max_ms=0, abort_limit=2
        ).settings
        self._main.perform(ops.CreateQueue(queue=self.queue, settings=settings))
        self.queue_id = self._main.perform(ops.ListQueues(queue=self.queue))[0].queue_id

    def _driver(self) -> PostgresDriver:
        connection, _ = open_session(self.conninfo, session.settings())
        self._undo.callback(connection.close)
        return PostgresDriver(connection, self.repository)

    def run(self) -> None:
        """Runs the steps, and then serves until the queue is empty; up to what is wrong."""
        with self._undo, contextlib.suppress(WrongError):
            self.servers = [self._server() for _ in range(SERVERS)]
            moves = (
                *[self.send] * 4,
                *[self.begin_send] * 3,
                *[self.end_send] * 4,
                *[self.claim] * 8,
                *[self.finish] * 4,
                *[self.commit] * 5,
                *[self.abort] * 2,
                self.die,
                self.kill,
            )
            for _ in range(STEPS):
                self.time += 1
                self.random.choice(moves)()
            while self.open:
                self.end_send()
            for _ in range(20 * len(self.sent)):
                if all(one.is_over or one.committed is None for one in self.sent.values()):
                    break
                self.time += 1
                self._tend()
                for move in (self.commit, self.finish, self.commit, self.claim):
                    for server in self.servers:
                        move(server)
            else:
                self._end("the queue did not come to its end")

    def _end(self, wrong: str) -> NoReturn:
        """Ends the run: what runs beside another may wait for it, and here is one thread."""
        self.wrong.append(wrong)
        raise WrongError(wrong)

    def _server(self) -> Server:
        driver, process = self._driver(), uuid4()
        life = driver.perform(
            ops.OpenIncarnation(process=process, host="here", pid=1, identity=str(process))
        )
        return Server(driver, process, life)

    def send(self) -> None:
        """A send that commits at once."""
        eid = self._main.perform(ops.Enqueue(queue=self.queue, body=b"x"))
        self.sent[eid] = Sent(self.time, self.time)
        self.did[AT_ONCE] += 1

    def begin_send(self) -> None:
        """A send in a transaction that stays open."""
        if len(self.open) == SENDERS:
            return
        connection = psycopg.connect(self.conninfo)
        self._undo.callback(connection.close)
        query = (
            f"select eid from {self.repository}.enqueue(%s, %s, null, 4::smallint, null, null,"
            " null, null, null, false)"
        )
        ((eid,),) = connection.execute(query.encode(), (self.queue, b"x")).fetchall()
        self.open.append((connection, eid))
        self.sent[eid] = Sent(self.time)

    def end_send(self) -> None:
        """The end of such a transaction: mostly its commit."""
        if not self.open:
            return
        connection, eid = self.open.pop(self.random.randrange(len(self.open)))
        if self.random.random() < ROLLED_BACK:
            connection.close()
            self.did[SEND_ROLLED_BACK] += 1
            return
        connection.commit()
        connection.close()
        mine = self.sent[eid]
        mine.committed = self.time
        self.did[LATE] += 1
        self.did[BEHIND] += any(
            one.has_run and not one.is_over and one.began > mine.began for one in self.sent.values()
        )

    def claim(self, chosen: Server | None = None) -> None:
        """A claim: judged."""
        server = chosen or self.random.choice(self.servers)
        if server.held is not None:
            return
        claim = ops.Claim(
            incarnation=server.life.incarnation,
            queue_id=self.queue_id,
            n=self.random.randint(1, 3),
            turn=self.random.randint(0, 3),
            alone=True,
        )
        got = server.driver.perform(claim)
        self.did[CLAIMED] += len(got)
        self.did[NOTHING] += not got and any(
            one.committed is not None and not one.is_over for one in self.sent.values()
        )
        self._take(server, got)

    def _take(self, server: Server, got: list[Element]) -> None:
        """Judges what a server got."""
        beside = [one for one in self.servers if one.held is not None and self._lives(one)]
        if len(got) + len(beside) > 1:
            self._end(f"{len(got) + len(beside)} in flight at {self.time}")
        for element in got:
            server.held = element
            self._judge(element.eid)

    def _lives(self, server: Server) -> bool:
        return server.held is not None and not self.sent[server.held.eid].is_over

    def _judge(self, eid: UUID) -> None:
        mine = self.sent[eid]
        for other, one in self.sent.items():
            if other == eid or one.is_over or one.committed is None:
                continue
            if one.has_run or (not mine.has_run and one.committed < mine.began):
                self._end(f"{eid} overtook {other} at {self.time}")
        self.did[AGAIN] += mine.has_run
        mine.has_run = True

    def finish(self, chosen: Server | None = None) -> None:
        """A finish whose transaction stays open, and perhaps claims the next in it."""
        server = chosen or self.random.choice(self.servers)
        if server.held is None or server.finishing:
            return
        is_older = self.random.random() < SNAPSHOTS
        isolation = "repeatable read" if is_older else "read committed"
        begin(server.driver, server.life, server.held, isolation=isolation)
        try:
            n = self.random.randint(0, 1)
            finished = server.driver.perform(finish(server.life, server.held, n=n))
        except ClaimLost:
            server.driver.perform(ops.Rollback())
            server.let_go()
            self.did[LOST] += 1
            return
        server.finishing = True
        server.following = next(iter(finished.following), None)
        self.did[SNAPSHOT] += is_older

    def commit(self, chosen: Server | None = None) -> None:
        """The commit of such a transaction, or its rollback: then it is finished again."""
        server = chosen or self.random.choice(self.servers)
        if not server.finishing or server.held is None:
            return
        if chosen is None and self.random.random() < 0.3:
            server.driver.perform(ops.Rollback())
            server.finishing, server.following = False, None
            self.did[FINISH_ROLLED_BACK] += 1
            return
        server.driver.perform(ops.Commit())
        self.sent[server.held.eid].is_over = True
        following = [] if server.following is None else [server.following]
        server.let_go()
        self.did[FINISHED] += 1
        self.did[FOLLOWED] += len(following)
        self._take(server, following)

    def abort(self) -> None:
        """An execution that failed: charged, or not."""
        running = [
            (one, one.held) for one in self.servers if one.held is not None and not one.finishing
        ]
        if not running:
            return
        server, element = self.random.choice(running)
        charge = self.random.choice([Charge.CHARGE, Charge.CHARGE, Charge.RELEASE, Charge.RETRY])
        abort = ops.AbortElement(
            seq=element.seq,
            incarnation=server.life.incarnation,
            charge=charge,
            code=CODE,
            error="no",
        )
        fate = server.driver.perform(abort)
        self.sent[element.eid].is_over |= fate is Fate.FAILED
        self.did[FATES[fate]] += 1
        server.let_go()

    def die(self) -> None:
        """A server's session ends, whatever it was doing; another takes over."""
        at = self.random.randrange(SERVERS)
        server = self.servers[at]
        how = DIED_FINISHING if server.finishing else DIED_HOLDING
        self.did[how if server.held is not None else DIED_IDLE] += 1
        server.driver.connection.close()
        self.servers[at] = self._server()
        self._tend()

    def _tend(self) -> None:
        """Takes over from the dead, and looks for what has failed by that: it is elsewhere."""
        self._main.perform(ops.TakeOver(process=uuid4()))
        for missing in self._main.perform(ops.FindMissing()):
            self._main.perform(ops.Judge(process=missing.process, verdict=ops.Verdict.ENDED))
        for eid, one in self.sent.items():
            if one.committed is not None and not one.is_over:
                self._look(eid)

    def _look(self, eid: UUID) -> None:
        there = self._main.perform(ops.ReadElement(eid=eid))
        if there is None:
            self._end(f"{eid} was lost until {self.time}")
        self.sent[eid].is_over = there.queue_id != self.queue_id

    def kill(self) -> None:
        """A kill of any element that is not being finished."""
        held = {one.held.eid: one.finishing for one in self.servers if one.held is not None}
        locked = {eid for eid, is_finishing in held.items() if is_finishing}
        locked |= {one.following.eid for one in self.servers if one.following is not None}
        those = [
            eid
            for eid, one in self.sent.items()
            if one.committed is not None and not one.is_over and eid not in locked
        ]
        if not those or self.random.random() < KILLS_LEFT_OUT:
            return
        eid = self.random.choice(those)
        if self._main.perform(ops.Kill(eid=eid, timeout_s=5.0)) is KillAnswer.KILLED:
            self.sent[eid].is_over = True
            self.did[KILLED_RUNNING if eid in held else KILLED_WAITING] += 1
