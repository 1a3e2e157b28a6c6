"""A clerk that records what its client sees, for the history checker."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from onceq.errors import OnceqError, Outcome
from onceq.testing.events import (
    Connected,
    DisconnectBegun,
    Disconnected,
    ReceiveBegun,
    Received,
    Recorder,
    Rereceived,
    Satisfied,
    SendBegun,
    SendFailed,
    SendOk,
    digest,
)

if TYPE_CHECKING:
    from collections.abc import Generator
    from pathlib import Path

    import onceq
    from tests.crash.server_child import Order, Receipt


class RecordedClerk:
    """The calls of a clerk, each recorded before and after."""

    def __init__(
        self, clerk: onceq.Clerk[Order, Receipt], recorder: Recorder, *, alone: bool = True
    ) -> None:
        self.clerk = clerk
        self._record = recorder.record
        self._alone = alone

    def _who(self) -> dict[str, Any]:
        session = self.clerk._session
        return {
            "registrant": session.name,
            "thread": session.thread,
            "epoch": session.epoch,
            "actor": f"client {session.name}",
        }

    def connect(self) -> None:
        clerk = self.clerk.connect()
        was = "disconnected" if clerk.was_disconnected else clerk._session.was
        self._record(
            Connected(
                was=was,
                s_rid=clerk.last_sent,
                r_rid=clerk.last_received,
                ckpt=clerk.checkpoint,
                **self._who(),
            )
        )

    def send_many(self, requests: list[tuple[str, Order]], *, expects: str | None = "done") -> None:
        for rid, order in requests:
            expected = "failed" if order.kind in {"poison", "fail"} else expects
            self._record(SendBegun(rid=rid, expects=expected, alone=self._alone, **self._who()))
        try:
            answers = (
                self.clerk.send_many(requests)
                if len(requests) > 1
                else [self.clerk.send(*requests[0])]
            )
        except OnceqError as error:
            for rid, _ in requests:
                unknown = error.outcome is Outcome.UNKNOWN
                self._record(SendFailed(rid=rid, unknown=unknown, **self._who()))
            raise
        for (rid, _), answer in zip(requests, answers, strict=True):
            self._record(SendOk(rid=rid, state=answer.state, **self._who()))

    def receive(
        self, checkpoint: bytes | None = None, *, timeout_s: float = 60.0
    ) -> onceq.Reply[Receipt]:
        if checkpoint is not None:
            self._record(ReceiveBegun(**self._who()))
        reply = self.clerk.receive(checkpoint, timeout_s=timeout_s)
        self._record(Received(ckpt=checkpoint, **self._reply(reply)))
        return reply

    def rereceive(self) -> onceq.Reply[Receipt]:
        reply = self.clerk.rereceive()
        self._record(Rereceived(**self._reply(reply)))
        return reply

    def _reply(self, reply: onceq.Reply[Receipt]) -> dict[str, Any]:
        done = reply.outcome.value == "done"
        return {
            "rid": reply.rid,
            "eid": str(reply.eid),
            "outcome": reply.outcome.value,
            "digest": digest(reply.body),
            "answers": reply.value.rid if done else None,
            **self._who(),
        }

    def disconnect(self) -> None:
        self._record(DisconnectBegun(**self._who()))
        self.clerk.disconnect()
        self._record(Disconnected(**self._who()))

    def satisfied(self) -> None:
        self._record(Satisfied(**self._who()))


@contextmanager
def recorded(
    qm: onceq.QueueManager,
    name: str,
    queue: onceq.Queue[Order, Receipt],
    files: Path,
    *,
    window: int = 1,
) -> Generator[RecordedClerk]:
    """A connected clerk that records."""
    with Recorder(files / f"client-{name}.events") as recorder:
        clerk = RecordedClerk(qm.clerk(name, queue, window=window), recorder, alone=window == 1)
        clerk.connect()
        try:
            yield clerk
        finally:
            clerk.clerk.close()
