"""What one client's events say: its lives, its requests, its replies (G1, G5, G6).

Private to the checker. Events are taken by (epoch, at), each by the function for its type, so that
an older life that writes late is judged for what it was. Invariant: a `Diary` knows only what its
client saw; `clients` compares it with the final state.
"""

from __future__ import annotations

from collections.abc import Callable
from operator import attrgetter
from typing import Any

from msgspec import Struct

from onceq.history import events as ev
from onceq.history.events import Client
from onceq.history.violation import Violation

_AT, _EPOCH = attrgetter("at"), attrgetter("epoch")


class Request(Struct, gc=False):
    """A request as its client knows it.

    tries, refused: sends that were begun, and those that raised without effect. acked_at: when a
    send of it first returned, or None. void: a connect has shown that it was not submitted.
    handed: its reply, the first time. shown: a connect has shown it as received. may_be_freed: its
    reply may have been acknowledged; freed: it has been.
    """

    rid: str
    expects: str | None = None
    alone: bool = True
    tries: int = 0
    refused: int = 0
    acked_at: int | None = None
    eid: str = ""
    void: bool = False
    handed: ev.ReplyEvent | None = None
    shown: bool = False
    may_be_freed: bool = False
    freed: bool = False


class Diary:
    """What a client's events have said so far.

    stable: the rid that a connect must show; maybe: begun since then, in doubt. current: sent last.
    r_known, ckpt_known: whether a connect must show `received_last` and `ckpt`. held: the reply
    that the next send acknowledges. fresh: handed out in this epoch, and certainly kept; ending:
    likewise when a disconnect was begun.
    late, late_at: the last operation of the lives so far that took effect, and a time at which it
    had not yet begun.
    """

    def __init__(self, client: Client) -> None:
        self.client = client
        self.found: list[Violation] = []
        self.requests: dict[str, Request] = {}
        self.maybe: list[str] = []
        self.stable: str | None = None
        self.current: str | None = None
        self.epoch = 0
        self.may_have_ended = False
        self.has_ended = False
        self.r_known = True
        self.received_last: str | None = None
        self.ckpt_known = True
        self.ckpt: bytes | None = None
        self.held: str | None = None
        self.fresh: dict[str, Request] = {}
        self.ending: list[Request] = []
        self.reply_eids: set[str] = set()
        self.late: ev.ClientEvent | None = None
        self.late_at = -1

    def broken(self, guarantee: str, rid: str | None, text: str) -> None:
        """Notes a violation."""
        self.found.append(Violation(guarantee, rid, f"{self.client[0]}: {text}"))

    def run(self, own: list[ev.ClientEvent]) -> None:
        """Takes all events of the client. own: sorted in place."""
        own.sort(key=_AT)
        own.sort(key=_EPOCH)
        first, epoch = 0, 0
        for n, event in enumerate(own):
            if event.epoch != epoch:
                self._life_ends(own[first:n])
                first, epoch = n, event.epoch
            _TAKE[type(event)](self, event)

    def _life_ends(self, own: list[ev.ClientEvent]) -> None:
        """Keeps the last operation of a life that took effect; it began after the event before."""
        for n in range(len(own) - 1, 0, -1):
            if type(own[n]) in _TOOK_EFFECT:
                if own[n - 1].at >= self.late_at:
                    self.late, self.late_at = own[n], own[n - 1].at
                return

    # --- connect (G6) -------------------------------------------------------------------------

    def connected(self, event: ev.Connected) -> None:
        """A connect shows what was sent and received last; no epoch is given twice."""
        if event.epoch <= self.epoch:
            self.broken("G6", None, f"epoch {event.epoch} was given to two lives")
        if event.was == "new" and self.epoch:
            self.broken("G6", None, "a connect says 'new' of a registrant that was there before")
        if event.was == "disconnected" and not self.may_have_ended:
            self.broken("G6", None, "a connect says 'disconnected' of one that never did")
        if self.has_ended and event.epoch == self.epoch + 1 and event.was != "disconnected":
            self.broken("G6", None, f"a connect says {event.was!r} of one that had disconnected")
        if self.late is not None and self.late_at > event.at:
            text = f"{type(self.late).__name__} of epoch {self.late.epoch} took effect in a later"
            self.broken("G6", getattr(self.late, "rid", None), text)
        self.epoch, self.may_have_ended, self.has_ended = event.epoch, False, False
        self.fresh = {}
        self._shown_sent(event)
        self._shown_received(event)

    def _shown_sent(self, event: ev.Connected) -> None:
        s_rid = event.s_rid
        if s_rid != self.stable and s_rid not in self.maybe:
            self.broken("G6", s_rid, f"connect shows {s_rid!r} sent last; {self.stable!r} was")
        first_void = self.maybe.index(s_rid) + 1 if s_rid in self.maybe else 0
        for rid in self.maybe[first_void:]:
            request = self.requests[rid]
            request.void = request.void or (request.acked_at is None and rid != s_rid)
        self.maybe = []
        self.stable = self.current = s_rid
        if s_rid is not None:
            request = self._request(s_rid)
            request.void = False
            if request.acked_at is None:
                request.acked_at = event.at

    def _request(self, rid: str) -> Request:
        request = self.requests.get(rid)
        if request is None:
            request = self.requests[rid] = Request(rid)
        return request

    def _shown_received(self, event: ev.Connected) -> None:
        r_rid = event.r_rid
        if self.r_known and r_rid != self.received_last:
            shown = f"connect shows {r_rid!r} received last; {self.received_last!r} was"
            self.broken("G6", r_rid, shown)
        elif self.r_known and self.ckpt_known and event.ckpt != self.ckpt:
            shown = f"connect shows checkpoint {event.ckpt!r}; {self.ckpt!r} was given"
            self.broken("G6", r_rid, shown)
        if r_rid is not None:
            request = self.requests.get(r_rid)
            if request is None or not request.tries:
                shown = "connect shows a reply received to what was never sent"
                self.broken("G6", r_rid, shown)
            else:
                request.shown = True
        self._stable_receive(r_rid, event.ckpt)
        self.held = r_rid

    def _stable_receive(self, rid: str | None, ckpt: bytes | None) -> None:
        self.r_known, self.received_last = True, rid
        self.ckpt_known, self.ckpt = True, ckpt

    # --- send ---------------------------------------------------------------------------------

    def send_begun(self, event: ev.SendBegun) -> None:
        """A send may take effect from now on, and acknowledges the held reply (C17)."""
        request = self.requests.get(event.rid)
        if request is None:
            request = self.requests[event.rid] = Request(event.rid)
        request.tries += 1
        request.expects, request.alone, request.void = event.expects, event.alone, False
        self.maybe.append(event.rid)
        self.fresh.pop(event.rid, None)
        self.r_known = self.r_known and self.held == self.received_last
        if event.alone and self.held is not None:
            self._request(self.held).may_be_freed = True

    def send_ok(self, event: ev.SendOk) -> None:
        """What is acknowledged is stable."""
        rid = event.rid
        request = self._request(rid)
        if request.acked_at is None:
            request.acked_at = event.at
        request.eid = request.eid or event.eid
        self.current = rid
        if event.state != "new":
            return
        # In a send of many, those after it are in doubt: its client may have died recording it.
        known = self.maybe.index(rid) + 1 if rid in self.maybe else len(self.maybe)
        del self.maybe[:known]
        self.stable = rid
        if request.alone and request.tries:
            self.r_known = True
            self.ckpt_known = self.ckpt_known and self.held == self.received_last
            self.received_last = self.held

    def send_failed(self, event: ev.SendFailed) -> None:
        """What was refused did not happen."""
        if not event.unknown:
            self._request(event.rid).refused += 1
            if event.rid in self.maybe:
                self.maybe.remove(event.rid)

    # --- receive (G1, G5) ---------------------------------------------------------------------

    def reply(self, event: ev.ReplyEvent) -> None:
        """A reply answers an outstanding request, and is the same each time."""
        rid = event.rid
        request = self._request(rid)
        if not request.tries:
            self.broken("G1", rid, "a reply to what was never sent")
        elif request.freed:
            self.broken("G1", rid, "a reply that had been acknowledged")
        elif request.alone and rid not in (self.current, self.stable):
            self.broken("G1", rid, f"a reply while {self.current!r} is outstanding")
        if event.answers is not None and event.answers != rid:
            self.broken("G1", rid, f"its reply answers {event.answers!r}")
        self._same_each_time(request, event)
        self.held = rid
        # What was in doubt in an earlier life can no longer free it: that life is fenced.
        request.may_be_freed = request.may_be_freed and request.alone and bool(self.maybe)
        if request.alone:
            self.fresh = {}
        self.fresh[rid] = request
        if event.ckpt is not None and type(event) is ev.Received:
            self._stable_receive(rid, event.ckpt)

    def _same_each_time(self, request: Request, event: ev.ReplyEvent) -> None:
        first = request.handed
        if first is None:
            request.handed = event
            if event.eid in self.reply_eids:
                self.broken("G1", event.rid, f"its reply {event.eid} was that of another")
            self.reply_eids.add(event.eid)
        elif (
            event.digest != first.digest or event.eid != first.eid or event.outcome != first.outcome
        ):
            text = f"handed out as {_content(first)}, then as {_content(event)}"
            self.broken("G5", event.rid, text)

    def receive_begun(self, _event: ev.ReceiveBegun) -> None:
        """What a connect shows as received may change; with a window, replies may be freed."""
        self.r_known = False
        self._may_be_freed([one for one in self.fresh.values() if not one.alone])

    def _may_be_freed(self, requests: list[Request]) -> None:
        for request in requests:
            request.may_be_freed = True
            self.fresh.pop(request.rid, None)

    def acknowledge_begun(self, event: ev.AcknowledgeBegun) -> None:
        """Replies may be freed from now on."""
        self.r_known = False
        for rid in event.rids:
            self._request(rid).may_be_freed = True

    def acknowledged(self, event: ev.Acknowledged) -> None:
        """Replies are freed; the last is the one received last, if a checkpoint came with it."""
        for rid in event.rids:
            request = self._request(rid)
            request.may_be_freed = request.freed = True
            self.fresh.pop(rid, None)
        if event.ckpt is not None and event.rids:
            self._stable_receive(event.rids[-1], event.ckpt)

    def reply_missing(self, event: ev.ReplyMissing) -> None:
        """A reply is kept until it is acknowledged."""
        request = self._request(event.rid)
        was_there = request.acked_at is not None or request.handed is not None
        if was_there and not request.may_be_freed:
            self.broken("G5", event.rid, "its reply is gone, and was not acknowledged")

    def satisfied(self, _event: ev.Satisfied) -> None:
        """Every acknowledged request has had its reply."""
        for rid, request in self.requests.items():
            if request.acked_at is not None and request.handed is None:
                self.broken("G5", rid, "its reply was never handed out")

    # --- disconnect ---------------------------------------------------------------------------

    def disconnect_begun(self, _event: ev.DisconnectBegun) -> None:
        """A disconnect acknowledges what was received in this life."""
        self.may_have_ended, self.r_known = True, False
        self.ending = list(self.fresh.values())
        self._may_be_freed(self.ending)
        if self.held is not None:
            self._request(self.held).may_be_freed = True

    def disconnected(self, _event: ev.Disconnected) -> None:
        """The tombstone is there, and what had been received is freed."""
        self.has_ended = True
        for request in self.ending:
            request.freed = True


def _content(event: ev.ReplyEvent) -> tuple[str, str, str]:
    return (event.eid, event.outcome, event.digest)


_TAKE: dict[type[ev.ClientEvent], Callable[[Diary, Any], None]] = {
    ev.Connected: Diary.connected,
    ev.SendBegun: Diary.send_begun,
    ev.SendOk: Diary.send_ok,
    ev.SendFailed: Diary.send_failed,
    ev.Received: Diary.reply,
    ev.Rereceived: Diary.reply,
    ev.ReceiveBegun: Diary.receive_begun,
    ev.AcknowledgeBegun: Diary.acknowledge_begun,
    ev.Acknowledged: Diary.acknowledged,
    ev.ReplyMissing: Diary.reply_missing,
    ev.Satisfied: Diary.satisfied,
    ev.DisconnectBegun: Diary.disconnect_begun,
    ev.Disconnected: Diary.disconnected,
}
_TOOK_EFFECT: frozenset[type[ev.Event]] = frozenset(
    {ev.SendOk, ev.Received, ev.Rereceived, ev.Acknowledged, ev.Disconnected}
)
"""Events of operations that must not take effect once a later life has begun (fencing)."""
