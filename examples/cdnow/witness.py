"""What a client saw, written down before and after each call, for the audit.

Used by the client. The clerk behaves as it does without it; only what was asked and answered is
recorded, so that a death in between is a doubt, and is judged as one.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

from onceq.errors import OnceqError, Outcome
from onceq.history import events as ev

if TYPE_CHECKING:
    from collections.abc import Generator, Sequence

    import onceq
    from examples.cdnow.shop import Purchase, Receipt

    Clerk = onceq.Clerk[Purchase, Receipt]


class Witness:
    """Records one life of a client. clerk: connected; epoch: of its life."""

    def __init__(self, clerk: Clerk, name: str, epoch: int, recorder: ev.Recorder) -> None:
        self._clerk = clerk
        self._record = recorder.record
        self._who: dict[str, Any] = {"registrant": name, "epoch": epoch, "actor": f"client {name}"}
        was = "disconnected" if clerk.was_disconnected else "new" if epoch == 1 else "connected"
        self._record(
            ev.Connected(
                was=was,
                s_rid=clerk.last_sent,
                r_rid=clerk.last_received,
                ckpt=clerk.checkpoint,
                **self._who,
            )
        )

    def send_many(self, requests: Sequence[tuple[str, Purchase]]) -> None:
        """Sends requests."""
        for rid, _ in requests:
            self._record(ev.SendBegun(rid=rid, expects="done", alone=False, **self._who))
        try:
            answers = self._clerk.send_many(requests)
        except OnceqError as error:
            unknown = error.outcome is Outcome.UNKNOWN
            for rid, _ in requests:
                self._record(ev.SendFailed(rid=rid, unknown=unknown, **self._who))
            raise
        for (rid, _), sent in zip(requests, answers, strict=True):
            self._record(ev.SendOk(rid=rid, state=sent.state, eid=str(sent.eid), **self._who))

    def receive_many(self, limit: int) -> list[onceq.Reply[Receipt]]:
        """Receives the waiting replies. Raises ReceiveTimeout if there are none."""
        replies = self._clerk.receive_many(limit, timeout_s=0.0)
        for reply in replies:
            done = reply.outcome.value == "done"
            self._record(
                ev.Received(
                    rid=reply.rid,
                    eid=str(reply.eid),
                    outcome=reply.outcome.value,
                    digest=ev.digest(reply.body),
                    answers=reply.value.order_id if done else None,
                    **self._who,
                )
            )
        return replies

    def acknowledge(self, rids: Sequence[str], checkpoint: bytes) -> None:
        """Acknowledges replies that are recorded, together with where they are."""
        freed = tuple(rids)
        self._record(ev.AcknowledgeBegun(rids=freed, **self._who))
        with self._doubting("acknowledge"):
            self._clerk.acknowledge(list(rids), checkpoint=checkpoint)
        self._record(ev.Acknowledged(rids=freed, ckpt=checkpoint, **self._who))

    def satisfied(self) -> None:
        """Says that every reply that is owed has been received."""
        self._record(ev.Satisfied(**self._who))

    @contextlib.contextmanager
    def _doubting(self, what: str) -> Generator[None]:
        try:
            yield
        except OnceqError as error:
            if error.outcome is Outcome.UNKNOWN:
                self._record(ev.Doubted(what=what, actor=self._who["actor"]))
            raise
