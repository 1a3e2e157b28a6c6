"""The machine whose rules give random Ops to PostgreSQL and to the oracle; see test_oracle."""

from __future__ import annotations

import json
from datetime import timedelta
from typing import TYPE_CHECKING, Any
from uuid import UUID

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, rule

from onceq.model import ops
from onceq.model.element import Charge
from onceq.model.end_user import KEY
from onceq.model.queue import QueueSettings
from tests.conformance.twins import BLOCKED, SURVEYED, Failed, Ref, Twin, Twins, who_in

if TYPE_CHECKING:
    from tests.conformance.drivers import PostgresRepository

QUEUES = st.sampled_from(["q", "r", "v"])
HOMES = st.sampled_from(["q", "q", "r", "v"])
NAMES = st.sampled_from(["ann", "bob"])
RIDS = st.sampled_from(["1", "2", "3"])
BODIES = st.sampled_from([b"x", b"yy", b"zzz"])
USERS = [None, [json.dumps({KEY: {"id": "ann", "checkpoint": "p. 3"}}), None]]
"""Of two requests: the end user of the first, and none of the second; or nothing at all."""
PICK = st.integers(0, 1000)
WHEN = st.sampled_from([None, None, -1.0, 0.05, 5.0])
SERVERS = st.integers(0, 2)
PROCESSES = (UUID(int=1), UUID(int=2))


class OracleMachine(RuleBasedStateMachine):
    """One admin session, three server sessions, and whatever ids have appeared."""

    place: PostgresRepository

    def __init__(self) -> None:
        super().__init__()
        self.twins = Twins(self.place)
        self.admin = self.twins.session()
        self.servers = [self.twins.session() for _ in range(3)]
        self.eids: list[Any] = [Ref((UUID(int=9), UUID(int=9)))]
        self.handles: list[dict[str, Any]] = []
        self.clients: list[dict[str, Any]] = []
        self.lives: list[Any] = []
        self.claims: list[dict[str, Any]] = []
        self.begun: dict[int, dict[str, Any]] = {}
        self.also: dict[int, list[Any]] = {}
        self.taken: list[dict[str, Any]] = []
        for name, durable in (("q", True), ("v", False)):
            self.give(
                ops.CreateQueue,
                queue=name,
                settings=QueueSettings(abort_limit=2, backoff_ms=50, durable=durable),
            )
        for name in ("ann", "bob"):
            self.register("q", name, "", stable=name == "ann")
            self.connect(name)  # after it, whose epoch is over with this
        for at in range(3):
            self.open_incarnation(at, reborn=False)

    def give(self, kind: type[Any], twin: Twin | None = None, **fields: Any) -> Any:
        return self.twins.both(twin or self.admin, kind, **fields)

    def heard(self, answer: Any) -> Any:
        """Notes the eids in an answer; None when there is none."""
        if answer is BLOCKED or isinstance(answer, Failed):
            return None
        for one in answer if isinstance(answer, list) else [answer]:
            eid = one.get("eid") if isinstance(one, dict) else one
            if isinstance(eid, Ref) and isinstance(eid.sides[0], UUID):
                self.eids.append(eid)
        return answer

    def eid(self, pick: int) -> Any:
        return self.eids[-1 - pick % len(self.eids)]

    def when(self, seconds: float | None) -> Any:
        return None if seconds is None else self.place.now() + timedelta(seconds=seconds)

    @rule(queue=QUEUES, pick=PICK, limit=st.integers(1, 3))
    def administer(self, queue: str, pick: int, limit: int) -> None:
        if pick % 4 == 0:
            error = (None, "shared.error")[pick % 2]
            made = QueueSettings(abort_limit=limit, backoff_ms=0, error_queue=error)
            self.give(ops.CreateQueue, queue=queue, settings=made)
        elif pick % 4 == 1:
            self.give(ops.DestroyQueue, queue=queue)
        else:
            kept: dict[str, Any] = {"keep_body": pick % 2 > 0, "dequeue_started": pick % 5 > 0}
            kept |= {"body_bytes_max": 2 if limit == 1 else 9}
            kept |= {"enqueue_started": pick % 3 > 0 or limit > 1}
            self.give(ops.AlterQueue, queue=queue, **kept)

    # --- elements

    @rule(queue=HOMES, body=BODIES, priority=st.integers(0, 9), later=WHEN, ends=WHEN)
    def enqueue(
        self, queue: str, body: bytes, priority: int, later: float | None, ends: float | None
    ) -> None:
        when = {"not_before": self.when(later), "expires_at": self.when(ends)}
        self.heard(self.give(ops.Enqueue, queue=queue, body=body, priority=priority, **when))

    @rule(queue=QUEUES, body=BODIES)
    def enqueue_many(self, queue: str, body: bytes) -> None:
        self.heard(self.give(ops.EnqueueMany, queue=queue, bodies=[body, b""]))

    @rule(queue=QUEUES, pick=PICK, by_eid=st.booleans())
    def dequeue(self, queue: str, pick: int, *, by_eid: bool) -> None:
        self.heard(self.give(ops.Dequeue, queue=queue, eid=self.eid(pick) if by_eid else None))

    @rule(pick=PICK)
    def kill(self, pick: int) -> None:
        self.give(ops.Kill, eid=self.eid(pick), timeout_s=1.0)

    @rule(pick=PICK)
    def redrive(self, pick: int) -> None:
        answer = self.give(ops.Redrive, eid=self.eid(pick))
        if isinstance(answer, tuple):
            self.eids.append(answer[0])

    @rule(pick=PICK)
    def read(self, pick: int) -> None:
        self.give(ops.ReadElement, eid=self.eid(pick))
        self.give(ops.LookUp, eid=self.eid(pick))

    @rule(seconds=st.sampled_from([0.01, 0.2, 1.5, 61.0]))
    def wait(self, seconds: float) -> None:
        self.place.advance(seconds)

    # --- registrations

    @rule(queue=QUEUES, name=NAMES, thread=st.sampled_from(["", "t"]), stable=st.booleans())
    def register(self, queue: str, name: str, thread: str, *, stable: bool) -> None:
        answer = self.heard(
            self.give(ops.Register, queue=queue, name=name, thread=thread, stable=stable)
        )
        for one in (answer or [])[:1]:
            self.handles.append(who_in(one))

    @rule(queue=QUEUES, pick=PICK, body=BODIES, deregister=st.sampled_from([False, False, True]))
    def tagged(self, queue: str, pick: int, body: bytes, *, deregister: bool) -> None:
        if self.handles:
            who = self.handles[-1 - pick % len(self.handles)]
            self.heard(self.give(ops.EnqueueTagged, queue=queue, body=body, tag=b"t", **who))
            self.give(ops.ReadLast, queue=queue, **who)
            eid = self.eid(pick)
            self.heard(self.give(ops.ReadTagged, queue=queue, eid=eid, tag=b"r", **who))
            self.heard(self.give(ops.Dequeue, queue=queue, tag=b"d", **who))
            self.give(ops.KillTagged, queue=queue, eid=eid, tag=b"k", **who)
            self.give(ops.ReadLast, queue=queue, **who)
            if deregister:
                self.give(ops.Deregister, queue=queue, **who)

    # --- clerks

    @rule(name=NAMES)
    def connect(self, name: str) -> None:
        answer = self.heard(self.give(ops.Connect, name=name))
        if answer is not None:
            last = {"s_rid": answer["s_rid"], "s_no": answer["s_no"].sides[0]}
            self.clients.append({"who": who_in(answer), "last": last, "received": []})

    def client(self, pick: int) -> dict[str, Any] | None:
        return self.clients[-1 - min(pick % 5, len(self.clients) - 1)] if self.clients else None

    @rule(pick=PICK, queue=HOMES, rid=RIDS, body=BODIES, ends=WHEN, priority=st.integers(0, 9))
    def send(
        self, pick: int, queue: str, rid: str, body: bytes, ends: float | None, priority: int
    ) -> None:
        client = self.client(pick)
        if client is None:
            return
        last, ack = client["last"], list(client["received"])
        request = ops.Request(rid=rid, body=body, expires_at=self.when(ends), priority=priority)
        answer = self.heard(
            self.give(
                ops.Send,
                queue=queue,
                request=request,
                send_no=last["s_no"] + 1,
                ack=ack,
                keep=priority % 3,
                **client["who"],
            )
        )
        if answer is not None and answer["state"] == "new":
            last.update(s_rid=rid, s_no=last["s_no"] + 1)
            client["received"].clear()

    @rule(pick=PICK, queue=QUEUES, body=BODIES, users=st.sampled_from(USERS))
    def send_many(self, pick: int, queue: str, body: bytes, users: list[str | None] | None) -> None:
        client = self.client(pick)
        if client is not None:
            first = client["last"]["s_no"] + 1
            sent: dict[str, Any] = {"rids": [f"m{first}", "3"], "bodies": [body, b"x"], "ack": []}
            sent |= {"send_no": first, "properties": users, "queue": queue, **client["who"]}
            if self.heard(self.give(ops.SendMany, **sent)) is not None:
                client["last"].update(s_rid="3", s_no=first + 1)

    @rule(pick=PICK, rid=RIDS)
    def last_user(self, pick: int, rid: str) -> None:
        client = self.client(pick)
        if client is not None:
            for one in (client["last"]["s_rid"], rid):
                self.give(ops.LastUser, rid=one, **client["who"])

    @rule(rid=RIDS, how=st.integers(0, 9), ckpt=st.sampled_from([None, b"c"]))
    def request_and_reply(self, rid: str, how: int, ckpt: bytes | None) -> None:
        """A client sends, a server executes, the client receives."""
        self.send(0, "q", rid, b"x", None, 4)
        self.execute(how % 3, "q", how, how, 0)
        self.receive(0, ckpt, 1)

    @rule(pick=PICK, ckpt=st.sampled_from([None, b"c"]), limit=st.integers(1, 2))
    def receive(self, pick: int, ckpt: bytes | None, limit: int) -> None:
        client = self.client(pick)
        if client is not None:
            fields: dict[str, Any] = {"ckpt": ckpt, "limit": limit, "skip": [*client["received"]]}
            answer = self.give(ops.Receive, **fields, **client["last"], **client["who"])
            for one in self.heard(answer) or []:
                client["received"].append(one["rid"])
            self.give(ops.Outstanding, **client["who"])
            self.give(ops.NextExpiry, **client["who"])

    @rule(pick=PICK, ckpt=st.sampled_from([None, b"a"]), keep=st.integers(0, 2))
    def acknowledge(self, pick: int, ckpt: bytes | None, keep: int) -> None:
        client = self.client(pick)
        if client is not None and client["received"]:
            who = {**client["last"], **client["who"]}
            rids = [client["received"].pop() for _ in client["received"][: 1 + pick % 2]]
            self.give(ops.Acknowledge, rids=rids, ckpt=ckpt, keep=keep, **who)
            for rid in "123":
                self.heard(self.give(ops.Receive, rid=rid, skip=[], **who))
            self.give(ops.Outstanding, **client["who"])

    @rule(pick=PICK)
    def disconnect(self, pick: int) -> None:
        client = self.client(pick)
        if client is not None:
            received = client["received"]
            fields = {"received": received, "r_rid": received[-1] if received else None}
            self.give(ops.Disconnect, ckpt=None, **fields, **client["last"], **client["who"])

    @rule(pick=PICK, rid=RIDS)
    def cancel(self, pick: int, rid: str) -> None:
        client = self.client(pick)
        if client is not None:
            self.give(ops.CancelRequest, rid=rid, timeout_s=1.0, **client["who"])

    # --- servers

    @rule(at=SERVERS, reborn=st.booleans())
    def open_incarnation(self, at: int, *, reborn: bool) -> None:
        """One life a connection; the next, on another, names it or does not."""
        former = self.servers[at].life
        if former is not None:
            self.die(at)
        twin = self.servers[at]
        life = {"process": PROCESSES[at % 2], "host": "h", "pid": 1, "identity": "abc"[at % 2]}
        answer = self.give(ops.OpenIncarnation, twin, former=former if reborn else None, **life)
        if self.heard(answer) is not None:
            twin.life, twin.slot = answer["incarnation"], answer["slot"]
            self.lives.append(twin.life)

    @rule(pick=PICK, at=SERVERS)
    def close_incarnation(self, pick: int, at: int) -> None:
        if self.lives and not self.servers[at].is_inside:
            life = self.lives[-1 - pick % len(self.lives)]
            self.give(ops.CloseIncarnation, self.servers[at], incarnation=life)

    @rule(process=st.integers(0, 1), verdict=st.sampled_from([None, None, *ops.Verdict]))
    def take_over(self, process: int, verdict: ops.Verdict | None) -> None:
        self.give(ops.Survey, process=PROCESSES[1 - process], **SURVEYED)
        self.give(ops.TakeOver, process=PROCESSES[process])
        self.give(ops.FindMissing)
        self.give(ops.ListTakenOver)
        if verdict is not None:
            self.give(ops.Judge, process=PROCESSES[1 - process], verdict=verdict)

    @rule(at=SERVERS)
    def die(self, at: int) -> None:
        self.twins.drop(self.servers[at])
        self.begun.pop(at, None)
        self.servers[at] = self.twins.session()

    def queue_id(self, queue: str) -> Any:
        found = self.give(ops.ListQueues, queue=queue)
        return found[0]["queue_id"] if found else None

    @rule(at=SERVERS, queue=QUEUES, n=st.integers(1, 3), turn=st.integers(-1, 3), pick=PICK)
    def claim(self, at: int, queue: str, n: int, turn: int, pick: int) -> None:
        twin, queue_id = self.servers[at], self.queue_id(queue)
        if twin.life is None or twin.is_inside or queue_id is None:
            return
        where = {"incarnation": twin.life, "queue_id": queue_id}
        self.twins.sweep(self.admin, queue_id)
        if pick % 4 == 0:
            claimed = [self.heard(self.give(ops.ClaimEid, twin, eid=self.eid(pick), **where))]
        else:
            where |= {"n": n, "turn": turn, "alone": pick % 3 > 0, "may_lose": pick % 2 == 0}
            where["everything"] = pick % 5 == 0
            claimed = self.heard(self.give(ops.Claim, twin, **where)) or []
        self.claims += [{**one, "life": twin.life, "at": at} for one in claimed if one]

    @rule(at=SERVERS, queue=QUEUES, turn=st.integers(-1, 3), how=st.integers(0, 9), n=SERVERS)
    def execute(self, at: int, queue: str, turn: int, how: int, n: int) -> None:
        """Claims, begins, and ends the execution in one of the ways in which they end."""
        had = len(self.claims)
        self.claim(at, queue, 1 + n, turn, 1)
        if len(self.claims) > had:
            self.begin(0)
            if how < 6:
                self.finish(at, "1", n)
            elif how < 8:
                self.take(at, replies=how == 6)
            if how in {0, 1, 2, 6, 7}:
                self.end(at, commits=True)
            elif how in {3, 8}:
                self.end(at, commits=False)
                self.abort(1, (Charge.CHARGE, Charge.ENVIRONMENT, Charge.RETRY)[n % 3])
            elif how in {4, 9}:
                self.die(at)

    @rule(pick=PICK)
    def begin(self, pick: int) -> None:
        if self.claims:
            one = self.claims[-1 - pick % len(self.claims)]
            twin = self.servers[one["at"]]
            if not twin.is_inside and twin.slot is not None:
                run = {"token": "1", "isolation": "read committed", "alone": False}
                seq = (
                    Ref(tuple(-side for side in one["seq"].sides)) if pick % 3 == 2 else one["seq"]
                )
                self.give(ops.Begin, twin, slot=twin.slot, seq=seq, **run)
                self.begun[one["at"]] = one
                self.also.pop(one["at"], None)

    @rule(at=SERVERS, pick=PICK)
    def beside(self, at: int, pick: int) -> None:
        """One more request in the transaction that is open, which finishes them together."""
        inside = self.servers[at].ours.session.transaction
        if at in self.begun and inside is not None and not inside.failed:
            one = self.claims[-1 - pick % len(self.claims)]
            self.also.setdefault(at, []).append(one["seq"])

    @rule(at=SERVERS, token=st.sampled_from(["1", "1", "1", "2"]), n=st.integers(0, 2))
    def finish(self, at: int, token: str, n: int) -> None:
        one, twin = self.begun.get(at), self.servers[at]
        if one is not None and twin.is_inside:
            seqs = [one["seq"], *self.also.pop(at, [])]
            done = {"seqs": seqs, "incarnation": one["life"], "queue_id": one["queue_id"]}
            more = {"replies": [b"r"] * len(seqs), "content_type": None, "alone": n == 1}
            more["batch"] = len(seqs) > 1
            answer = self.give(ops.Finish, twin, token=token, n=n, turn=n, **done, **more)
            if answer is not BLOCKED and not isinstance(answer, Failed):
                for following in self.heard(answer["following"]) or []:
                    self.claims.append({**following, "life": one["life"], "at": at})

    @rule(at=SERVERS, replies=st.booleans())
    def take(self, at: int, *, replies: bool) -> None:
        one, twin = self.begun.get(at), self.servers[at]
        if one is not None and twin.is_inside:
            fields = {"seq": one["seq"], "incarnation": one["life"]}
            if self.handles and not replies:
                on = {"queue": "q", "tag": b"t", **self.handles[-1]}
                answer = self.heard(self.give(ops.TakeTagged, twin, **on, **fields))
            else:
                answer = self.heard(self.give(ops.Take, twin, **fields))
            if answer is not None:
                self.taken.append({**fields, "xid": answer})
            if replies:
                self.give(ops.ReplyTaken, twin, reply=b"r", **fields)

    @rule(at=SERVERS, commits=st.booleans())
    def end(self, at: int, *, commits: bool) -> None:
        twin = self.servers[at]
        if twin.is_inside:
            self.give(ops.Commit if commits else ops.Rollback, twin)

    @rule(pick=PICK, charge=st.sampled_from(list(Charge)))
    def abort(self, pick: int, charge: Charge) -> None:
        if self.taken and pick % 3 == 0:
            self.give(ops.AbortTaken, **self.taken[pick % len(self.taken)])
        elif self.claims:
            one = self.claims[-1 - pick % len(self.claims)]
            said: dict[str, Any] = {"code": "Bad", "error": "no", "charge": charge}
            said |= {"traceback": f"at {pick}", "after_s": (None, 0.0, 0.25, 30.0)[pick % 4]}
            self.give(ops.AbortElement, seq=one["seq"], incarnation=one["life"], **said)

    @rule()
    def everything_is_where_it_is(self) -> None:
        self.give(ops.LookUp, limit=10_000)
        self.give(ops.ListQueues)

    def teardown(self) -> None:
        self.everything_is_where_it_is()
