"""Batches that book what they are asked to: what their tests share."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import onceq
from tests.parts import plain, rows, serving

if TYPE_CHECKING:
    from collections.abc import Callable

    from onceq.model.queue import Handled

RAW = onceq.Queue("raw", bytes, bytes, backoff_ms=0, abort_limit=2)
N = 20


class Booking:
    """A handler that books what it is asked to, and knows what it was asked."""

    def __init__(self, conninfo: str, repository: str) -> None:
        self.insert = f"insert into {repository}.booked values (%s, pg_current_xact_id()::text)"
        self.calls: list[bytes] = []
        self.during: dict[bytes, Callable[[onceq.Context], None]] = {}
        with plain(conninfo) as connection:
            connection.execute(f"create table {repository}.booked (what text, xid text)".encode())

    def __call__(self, body: bytes, context: onceq.Context) -> bytes:
        self.calls.append(body)
        context.connection.execute(self.insert.encode(), (body.decode(),))
        if body in self.during:
            self.during[body](context)
        return b"done " + body


def serve_all(
    qm: onceq.QueueManager, conninfo: str, handled: Handled[Any, Any], bodies: list[bytes]
) -> dict[str, onceq.Reply[bytes]]:
    """Sends all at once, then serves them; returns the replies by body."""
    qm.declare(RAW)
    with qm.clerk("till", RAW, window=1000) as clerk:
        clerk.send_many([(body.decode(), body) for body in bodies])
        with serving(conninfo, qm.repository, handled) as server:
            replies = [clerk.receive(timeout_s=60) for _ in bodies]
            assert server.statistics().lives == 1
        clerk.acknowledge([reply.rid for reply in replies])
    assert qm.show("raw").depth == 0
    return {reply.rid: reply for reply in replies}


def booked(conninfo: str, qm: onceq.QueueManager) -> list[str]:
    found = rows(conninfo, f"select what from {qm.repository}.booked order by what")
    return [what for (what,) in found]


def numbered(count: int = N) -> list[bytes]:
    return [f"{number:03}".encode() for number in range(count)]
