"""A stream of requests and their replies, as a Program for each step (spec C6).

Run by `Clerk.stream` and `AsyncClerk.stream`. It sends ahead up to the window. It acknowledges
replies, half a window at a time, once the consumer has come back for more. So whatever a crash cuts
short is received again, and never lost. Source: BHM90 11.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from typing import Any, Generic, TypeVar

from onceq import errors
from onceq.clerk import program, receiving
from onceq.clerk.session import Reply, Session, check
from onceq.model import ops
from onceq.model.client_state import Call, ClientState

R = TypeVar("R")

SENT_AT_ONCE = 1000
"""The most requests in one transaction; they are in memory until it commits."""
HANDED_AT_ONCE = 100
"""The most replies in memory."""


class Stream(Generic[R]):
    """One pass over requests. timeout_s: of each wait for a reply, or for room.

    What a full queue does not take is sent later: fewer at once, when replies have come.
    """

    def __init__(
        self,
        session: Session[Any, R],
        requests: Iterable[ops.Request],
        timeout_s: float | None,
    ) -> None:
        self._session = session
        self._requests = iter(requests)
        self._timeout_s = timeout_s
        self._is_begun = False
        self._is_over = False
        self._refused: list[ops.Request] = []
        self._at_once = SENT_AT_ONCE

    def step(self) -> ops.Program[list[Reply[R]]]:
        """Returns the next replies; none when all were sent, received and acknowledged.

        What it returned before counts as processed, and is acknowledged once that is half a
        window. ReceiveTimeout, QueueFull: nothing is lost, and another step waits on.
        """
        session = self._session
        if not self._is_begun:
            self._begin()
        while True:
            yield from self._acknowledge(everything=False)
            sent = yield from self._send_ahead()
            if not session.outstanding and sent == 0 and not self._refused:
                yield from self._acknowledge(everything=True)
                return []
            if not session.outstanding:
                continue
            more = sent > 0 and session.room > 0
            try:
                return (
                    yield from receiving.receive(
                        session,
                        ckpt=None,
                        rid=None,
                        limit=max(1, min(HANDED_AT_ONCE, session.window // 2)),
                        timeout_s=0.0 if more else self._timeout_s,
                    )
                )
            except errors.ReceiveTimeout:
                if not more:
                    raise

    def _begin(self) -> None:
        """What was handed out but not acknowledged is handed out again."""
        session = self._session
        check(session, Call.WATCH)
        if session.received:
            session.outstanding = {**session.received, **session.outstanding}
            session.received, session.seen, session.beyond = {}, 0, None
            session.state = ClientState.REQ_SENT
        self._is_begun = True

    def _acknowledge(self, *, everything: bool) -> ops.Program[None]:
        """Half a window at a time: each costs a commit. With a window of 1 the next send does."""
        session = self._session
        rids = list(session.received)
        due = everything or (session.window > 1 and 2 * len(rids) >= session.window)
        if rids and due:
            yield from receiving.acknowledge(session, rids, None)

    def _send_ahead(self) -> ops.Program[int]:
        """Sends what there is room for, in one transaction; returns how many requests it took.

        A rid that a former life got done and acknowledged no longer has a reply.
        """
        session = self._session
        room = session.room if session.window > 1 or not session.outstanding else 0
        count = min(room, self._at_once)
        some, self._refused = self._refused[:count], self._refused[count:]
        if not self._is_over:
            more = list(itertools.islice(self._requests, count - len(some)))
            self._is_over = len(more) < count - len(some)
            some += more
        if not some:
            return 0
        try:
            yield from program.send_many(session, some, room_s=self._room_s(some))
        except errors.QueueFull:
            self._refused = some + self._refused
            self._at_once = max(1, len(some) // 2)
            if len(some) == 1 and not session.outstanding:
                raise
            return 0
        self._at_once = min(2 * self._at_once, SENT_AT_ONCE)
        session.gone = ()
        receiving.arrived(session)
        return len(some)

    def _room_s(self, some: list[ops.Request]) -> float | None:
        """For how long to wait for room: not if fewer may fit, or if a reply may come first."""
        waits = len(some) == 1 and not self._session.outstanding
        return self._timeout_s if waits else 0.0
