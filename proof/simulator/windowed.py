"""A client with many requests outstanding at a time, in a simulation (spec C6)."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

from onceq import errors
from onceq.clerk import program as clerk
from onceq.clerk import receiving, watching
from onceq.clerk.recovery import recover
from onceq.clerk.session import Reply, Session
from onceq.history import events as ev
from onceq.model import ops
from proof.simulator.callers import SCRATCH
from proof.simulator.participants import EXPECTS, QUEUE, Client, World, reply_event

if TYPE_CHECKING:
    from collections.abc import Callable


WINDOW = 3


class WindowedLife:
    """One life of such a client, which knows nothing but its name and its plan."""

    def __init__(self, world: World, client: Client) -> None:
        self._world = world
        self._client = client
        self._session = Session(
            name=client.name,
            thread="",
            queue=QUEUE,
            window=WINDOW,
            keep=world.chance.choice((0, 0, 1, 2)),
        )
        self._had: dict[str, Reply[bytes]] = {}

    def _record(self, kind: Callable[..., ev.Event], **fields: Any) -> None:
        who = {"registrant": self._client.name, "epoch": self._session.who.epoch}
        self._world.record(kind, self._client.name, **who, **fields)

    def run(self) -> ops.Program[None]:
        """Connects; sends, receives and acknowledges until all is acknowledged; disconnects."""
        session = self._session
        yield from clerk.connect(session)
        shown = {"s_rid": session.s_rid, "r_rid": session.r_rid, "ckpt": session.ckpt}
        self._record(ev.Connected, was=session.was, **shown)
        rids = [rid for rid, _ in self._client.plan]
        done = rids.index(session.s_rid) + 1 if session.s_rid in rids else 0
        left = self._client.plan[done:]
        yield from self._places(rids[:done])
        if session.received:  # by a former life, which may not have come to know
            reply = yield from receiving.rereceive(session)
            self._handed(ev.Rereceived, reply, None)
        while left or session.outstanding or session.received:
            room = WINDOW - len(session.outstanding) - len(session.received)
            if left and room and (not session.outstanding or self._world.likely(0.5)):
                count = min(len(left), self._world.chance.randint(1, room))
                yield from self._send(left[:count])
                left = left[count:]
            elif session.outstanding and (not session.received or self._world.likely(0.5)):
                yield from self._receive()
            else:
                yield from self._acknowledge()
            if self._world.likely(0.3):
                yield from self._watch()
        self._record(ev.DisconnectBegun)
        yield from clerk.disconnect(session)
        self._record(ev.Satisfied)

    def _places(self, sent: list[str]) -> ops.Program[None]:
        """Asks where an earlier request is: no answer may be that it never was."""
        if sent:
            rid = self._world.chance.choice(sent)
            found = yield from recover(self._session, rid, acknowledged=True)
            if type(found).__name__ in {"NotSubmitted", "WentBack"}:
                text = f"recover says {type(found).__name__} of what was sent"
                self._world.broken.append(("G6", rid, text))

    def _send(self, plan: list[tuple[str, str]]) -> ops.Program[None]:
        for rid, kind in plan:
            self._record(ev.SendBegun, rid=rid, expects=EXPECTS[kind], alone=False)
        sent = [ops.Request(rid=rid, body=kind.encode()) for rid, kind in plan]
        try:
            if len(plan) == 1:
                answers = [(yield from clerk.send(self._session, sent[0]))]
            else:
                answers = yield from clerk.send_many(self._session, sent)
        except errors.OnceqError as error:
            unknown = error.outcome is errors.Outcome.UNKNOWN
            for rid, _ in plan:
                self._record(ev.SendFailed, rid=rid, unknown=unknown)
            raise
        for (rid, _), answer in zip(plan, answers, strict=True):
            self._record(ev.SendOk, rid=rid, state=answer.state)
            self._world.known[rid] = answer.eid

    def _receive(self) -> ops.Program[None]:
        ckpt = b"window" if self._world.likely(0.3) else None
        if ckpt is not None:
            self._record(ev.ReceiveBegun)
        limit = self._world.chance.randint(1, WINDOW)
        replies = yield from receiving.receive(
            self._session, ckpt=ckpt, rid=None, limit=limit, timeout_s=None
        )
        for reply in replies:
            self._handed(ev.Received, reply, ckpt)

    def _handed(
        self, kind: Callable[..., ev.Event], reply: Reply[bytes], ckpt: bytes | None
    ) -> None:
        fields = reply_event(reply.rid, reply.eid, reply.outcome.value, reply.body)
        self._record(kind, ckpt=ckpt, **fields)
        self._had[reply.rid] = reply

    def _acknowledge(self) -> ops.Program[None]:
        count = self._world.chance.randint(1, len(self._session.received))
        ckpt = b"acknowledged" if self._world.likely(0.5) else None
        self._record(ev.ReceiveBegun)
        rids = list(self._session.received)[:count]
        removed = yield from receiving.acknowledge(self._session, rids, ckpt)
        if self._session.keep:
            yield from self._again(rids[-1])
        if removed != count:
            text = f"{self._client.name}: acknowledged {count}, {removed} were kept"
            self._world.broken.append(("G5", rids[-1], text))

    def _again(self, rid: str) -> ops.Program[None]:
        """Receives again what is not acknowledged, or was kept: the same reply (G5)."""
        reply = yield from receiving.rereceive(self._session, rid)
        if reply != self._had.setdefault(rid, reply):
            self._world.broken.append(("G5", rid, f"rereceive returned {reply}"))

    def _watch(self) -> ops.Program[None]:
        """Asks for what it knows: none of that changes anything (C7, C9)."""
        session = self._session
        if session.received:
            yield from self._again(self._world.chance.choice(list(session.received)))
        for rid in list(session.outstanding)[:1]:
            found = yield from watching.where(session, rid)
            if found is None or found.state == "finished":
                self._world.broken.append(("G4", rid, f"what is outstanding is at {found}"))
        (tags,) = yield from watching.threads(session)
        if (tags.epoch, tags.r_rid) != (session.who.epoch, session.r_rid):
            text = f"its thread's tags are {tags}, its session's {session}"
            self._world.broken.append(("G6", tags.r_rid, text))
        with contextlib.suppress(errors.QueueNotFound, errors.QueueStopped):
            yield from watching.alert_late(session, SCRATCH.name, 0.0, None)
