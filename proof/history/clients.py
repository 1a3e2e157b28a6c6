"""The clients of an invented history: one outstanding request at a time, or a window of them.

A client knows what its queue manager must know of it: what it sent and received last, and its
checkpoint, so that each connect shows the truth.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from onceq.history import events as ev
from onceq.history.events import Place
from proof.history.invention import TICK_NS, History, Invention, Sent

if TYPE_CHECKING:
    from collections.abc import Callable

WINDOW = 8


class Client:
    """One client through all its lives. s_rid, r_rid, ckpt: what a connect must show.

    held: received in this life, acknowledged by the next send. at: what it follows now.
    """

    def __init__(self, invention: Invention, name: str, *, thread: str = "") -> None:
        self.invention = invention
        self.who = (name, thread)
        self.rids = 0
        self.epoch = 0
        self.s_rid: str | None = None
        self.r_rid: str | None = None
        self.ckpt: bytes | None = None
        self.held: Sent | None = None
        self.replies: dict[str, str] = {}
        self.at = Sent("", "", None, int(invention.chance.random() * 1000 * TICK_NS))
        self._events = invention.history.files[f"client-{name}{thread}"]

    def record(self, kind: Callable[..., ev.Event], **fields: Any) -> None:
        """Records what the client saw."""
        name, thread = self.who
        at = self.invention.tick(self.at)
        who = {"registrant": name, "thread": thread, "epoch": self.epoch, "actor": name}
        self._events.append(kind(at=at, **who, **fields))

    def doubt(self, what: str) -> None:
        """Records that an answer was lost."""
        at = self.invention.tick(self.at)
        self._events.append(ev.Doubted(at=at, actor=self.who[0], what=what))

    def connect(self, was: str = "connected") -> None:
        """Begins a life; shows what was last."""
        self.epoch += 1
        self.held = None
        shown = {"s_rid": self.s_rid, "r_rid": self.r_rid, "ckpt": self.ckpt}
        self.record(ev.Connected, was="new" if self.epoch == 1 else was, **shown)

    def die(self) -> None:
        """Is killed, and starts again."""
        self.invention.fault("kill -9", self.who[0], self.invention.tick(self.at))
        self.connect()

    def new_request(self) -> Sent:
        """Returns the next request, not yet sent."""
        self.rids += 1
        rid = f"{self.who[0]}{self.who[1]}-{self.rids}"
        return Sent(rid, self.invention.eid(), self.who, self.at.now)

    def receive(self, sent: Sent, ckpt: bytes | None = None, *, again: bool = False) -> None:
        """Receives a reply, or receives it again."""
        done = sent.outcome == "done"
        eid = self.replies.get(sent.rid)
        if eid is None:
            eid = self.replies[sent.rid] = self.invention.eid()
        self.record(
            ev.Rereceived if again else ev.Received,
            rid=sent.rid,
            eid=eid,
            outcome=sent.outcome,
            digest=eid[:16],
            answers=sent.rid if done else None,
            ckpt=None if again else ckpt,
        )

    def keep(self, sent: Sent) -> None:
        """Leaves a reply in the client's queue: it was not acknowledged."""
        history = self.invention.history
        history.places.append(
            Place(
                registrant=self.who[0],
                thread=self.who[1],
                rid=sent.rid,
                eid=self.replies[sent.rid],
                role="reply",
                state="replied",
                outcome=sent.outcome,
            )
        )

    def redrive(self, sent: Sent) -> None:
        """Lets an operator redrive what has just failed, sometimes."""
        if sent.outcome == "failed" and self.invention.likely(0.3):
            self.invention.redrive(sent)

    def follow(self, sent: Sent) -> None:
        """Waits until a request has ended."""
        self.at.now = max(self.at.now, sent.now)


def alone(client: Client, requests: int) -> None:
    """A client with one request outstanding at a time, which may be killed at every step."""
    client.connect()
    last: Sent | None = None
    for _ in range(requests):
        sent = client.new_request()
        way, expects = client.invention.way()
        _send(client, sent, last, expects)
        last = sent
        sent.now = client.at.now
        way(client.invention, sent)
        client.redrive(sent)
        client.follow(sent)
        _receive(client, sent)
        if client.invention.likely(0.02):
            _leave(client)
    client.record(ev.Satisfied)
    if last is not None and client.held is not None:
        client.keep(last)


def _send(client: Client, sent: Sent, last: Sent | None, expects: str | None) -> None:
    """Sends, after refusals and doubts, some of which took effect and some did not."""
    likely = client.invention.likely
    begun = {"rid": sent.rid, "expects": expects}
    if likely(0.01):
        client.record(ev.SendBegun, **begun)
        client.record(ev.SendFailed, rid=sent.rid, unknown=False)
    if likely(0.01):
        sent.now = client.at.now
        client.invention.kill(sent, "NOT_FOUND")
        client.follow(sent)
    while likely(0.02):  # the request was lost: it is in no place, and is sent again
        client.record(ev.SendBegun, **begun)
        if likely(0.5):
            client.record(ev.SendFailed, rid=sent.rid, unknown=True)
        client.die()
        if last is not None and client.r_rid != last.rid:
            client.receive(last)
            client.held = last
    client.record(ev.SendBegun, **begun)
    _sent(client, sent)
    if likely(0.02):  # the answer was lost: the next connect shows it
        client.die()
        return
    client.record(ev.SendOk, rid=sent.rid, eid=sent.eid)
    if likely(0.01):
        client.die()


def _sent(client: Client, sent: Sent) -> None:
    """Advances what a connect shows, as a send does that takes effect."""
    held = client.held
    if held is not None and held.rid != client.r_rid:
        client.r_rid, client.ckpt = held.rid, None
    client.s_rid, client.held = sent.rid, None


def _receive(client: Client, sent: Sent) -> None:
    likely = client.invention.likely
    while True:
        ckpt = sent.eid[:8].encode() if likely(0.4) else None
        if ckpt is not None:
            client.record(ev.ReceiveBegun)
        client.receive(sent, ckpt)
        if ckpt is not None:
            client.r_rid, client.ckpt = sent.rid, ckpt
        client.held = sent
        while likely(0.2):
            client.receive(sent, again=True)
        if not likely(0.02):
            break
        client.die()
        if client.r_rid == sent.rid:  # received with a checkpoint: only rereceive shows it
            client.receive(sent, again=True)
            client.held = sent
            break


def _leave(client: Client) -> None:
    """Disconnects, and comes back: the tombstone says what was last."""
    client.record(ev.DisconnectBegun)
    if client.held is not None and client.held.rid != client.r_rid:
        client.r_rid, client.ckpt = client.held.rid, None
    if client.invention.likely(0.8):
        client.record(ev.Disconnected)
    client.connect("disconnected")


def windowed(client: Client, requests: int) -> None:
    """A client with several outstanding, executed together, received in any order (C6)."""
    client.connect()
    invention = client.invention
    for _ in range(0, requests, WINDOW):
        several = [client.new_request() for _ in range(WINDOW)]
        for sent in several:
            client.record(ev.SendBegun, rid=sent.rid, expects="done", alone=False)
        client.s_rid = several[-1].rid
        if invention.likely(0.03):
            client.die()
        else:
            for sent in several:
                client.record(ev.SendOk, rid=sent.rid, eid=sent.eid)
        for sent in several:
            sent.now = client.at.now
        invention.batch(several, invention.one_of(("batch-1", "batch-2", "spark")))
        client.follow(several[0])
        invention.chance.shuffle(several)
        _collect(client, several)
    client.record(ev.Satisfied)


def _collect(client: Client, several: list[Sent]) -> None:
    likely = client.invention.likely
    for sent in several:
        client.receive(sent)
        if likely(0.02):
            client.receive(sent, again=True)
    if likely(0.03):
        client.die()  # nothing was acknowledged: all is received again
        for sent in several:
            client.receive(sent)
    rids = tuple(sent.rid for sent in several)
    ckpt = rids[-1].encode()
    client.record(ev.AcknowledgeBegun, rids=rids)
    client.r_rid, client.ckpt = rids[-1], ckpt
    if likely(0.03):
        client.doubt("acknowledge")
        client.die()
    else:
        client.record(ev.Acknowledged, rids=rids, ckpt=ckpt)


def invent(seed: int | str, requests: int, name: str = "", *, effects_each: int = 1) -> History:
    """Returns a valid history of about so many requests, of five clients and a feeder."""
    invention = Invention(seed, name, effects_each=effects_each)
    each = max(1, requests // 6)
    for number in range(3):
        alone(Client(invention, f"{name}till{number}"), each)
    windowed(Client(invention, f"{name}bulk"), each)
    windowed(Client(invention, f"{name}bulk", thread="t2"), each)
    invention.datagrams(each)
    return invention.history
