"""A clerk that records what its client sees, for the history checker.

Each call of the clerk is recorded before it is made and
after it has answered, so that a death in between is judged as what it is: a doubt. It changes
nothing about what the clerk does, and hides no error.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from typing import Any, Generic, Protocol, TypeVar

from onceq import Clerk, Device, Reply
from onceq.clerk import ReplyPolicy
from onceq.clerk.session import Session
from onceq.errors import OnceqError, Outcome, ReplyGone
from onceq.history.events import (
    AcknowledgeBegun,
    Acknowledged,
    Connected,
    DisconnectBegun,
    Disconnected,
    Doubted,
    KillAnswered,
    KillBegun,
    KillFailed,
    ReceiveBegun,
    Received,
    Recorder,
    ReplyMissing,
    Rereceived,
    Satisfied,
    SendBegun,
    SendFailed,
    SendOk,
    digest,
)
from onceq.model.element import KillAnswer, RequestOutcome
from onceq.model.ops import Sent


class Receipt(Protocol):
    """A reply that says whose it is. rid: of the request that its handler was given."""

    rid: str


T = TypeVar("T")
R = TypeVar("R", bound=Receipt)


class RecordedClerk(Generic[T, R]):
    """The calls of a clerk, each recorded before and after.

    alone: one request is outstanding at a time. limit_s: of each connect and send of one; None:
    they wait for as long as the link lives. Raises what the clerk raises.
    """

    def __init__(
        self,
        clerk: Clerk[T, R],
        recorder: Recorder,
        *,
        alone: bool = True,
        limit_s: float | None = None,
    ) -> None:
        self.clerk = clerk
        self._record = recorder.record
        self._alone = alone
        self._limit_s = limit_s

    def _session(self) -> Session[T, R]:
        return self.clerk._session  # noqa: SLF001 # pyright: ignore[reportPrivateUsage] # a clerk tells nobody else its epoch

    def _who(self) -> dict[str, Any]:
        session = self._session()
        return {
            "registrant": session.name,
            "thread": session.thread,
            "epoch": session.who.epoch,
            "actor": f"client {session.name}",
        }

    def connect(self) -> None:
        """Connects; records what was shown."""
        clerk = self.clerk.connect(timeout_s=self._limit_s)
        was = "disconnected" if clerk.was_disconnected else self._session().was
        self._record(
            Connected(
                was=was,
                s_rid=clerk.last_sent,
                r_rid=clerk.last_received,
                ckpt=clerk.checkpoint,
                **self._who(),
            )
        )

    def expected(self, _request: T, expects: str | None) -> str | None:
        """Returns how a request is to end; for those that can tell it by the request."""
        return expects

    def send_many(
        self, requests: Sequence[tuple[str, T]], *, expects: str | None = "done"
    ) -> list[Sent]:
        """Sends requests, by one send where there is one.

        expects: how each is to end, as far as its sender knows.
        """
        for rid, order in requests:
            end = self.expected(order, expects)
            self._record(SendBegun(rid=rid, expects=end, alone=self._alone, **self._who()))
        try:
            answers = (
                self.clerk.send_many(requests)
                if len(requests) > 1
                else [self.clerk.send(*requests[0], timeout_s=self._limit_s)]
            )
        except OnceqError as error:
            for rid, _ in requests:
                unknown = error.outcome is Outcome.UNKNOWN
                self._record(SendFailed(rid=rid, unknown=unknown, **self._who()))
            raise
        for (rid, _), answer in zip(requests, answers, strict=True):
            self._record(SendOk(rid=rid, state=answer.state, eid=str(answer.eid), **self._who()))
        return answers

    def send_one_way(self, rid: str, order: T, *, expects: str | None = "done") -> None:
        """Sends a request whose answer nobody waits for: nothing says that it is stable."""
        self._record(SendBegun(rid=rid, expects=expects, alone=self._alone, **self._who()))
        try:
            self.clerk.send_one_way(rid, order)
        except OnceqError as error:
            unknown = error.outcome is Outcome.UNKNOWN
            self._record(SendFailed(rid=rid, unknown=unknown, **self._who()))
            raise

    def receive(self, checkpoint: bytes | None = None, *, timeout_s: float = 60.0) -> Reply[R]:
        """Receives the next reply."""
        return self.receive_many(1, checkpoint, timeout_s=timeout_s)[0]

    def receive_many(
        self, limit: int, checkpoint: bytes | None = None, *, timeout_s: float = 60.0
    ) -> list[Reply[R]]:
        """Receives the waiting replies, at least one."""
        if checkpoint is not None:
            self._record(ReceiveBegun(**self._who()))
        with self._doubting("receive"):
            replies = self.clerk.receive_many(limit, checkpoint=checkpoint, timeout_s=timeout_s)
        for reply in replies:
            self._record(Received(ckpt=checkpoint, **self._reply(reply)))
        return replies

    def rereceive(self) -> Reply[R]:
        """Receives the last reply again."""
        try:
            reply = self.clerk.rereceive()
        except ReplyGone as error:
            self._record(ReplyMissing(rid=error.rid, **self._who()))
            raise
        self._record(Rereceived(**self._reply(reply)))
        return reply

    def process(
        self, output: Callable[[Reply[R]], None], device: Device, *, timeout_s: float = 60.0
    ) -> None:
        """Outputs each reply that is outstanding, or in doubt, on a testable device."""
        doubted = self.clerk.unacknowledged
        if self.clerk.outstanding:
            self._record(ReceiveBegun(**self._who()))

        def handled(reply: Reply[R]) -> None:
            seen = self._reply(reply)
            if reply.rid in doubted:
                self._record(Rereceived(**seen))
            else:
                self._record(Received(ckpt=self.clerk.checkpoint, **seen))
            output(reply)

        with self._doubting("receive"):
            self.clerk.process(handled, ReplyPolicy.test(device), timeout_s=timeout_s)

    def _reply(self, reply: Reply[R]) -> dict[str, Any]:
        done = reply.outcome is RequestOutcome.DONE
        return {
            "rid": reply.rid,
            "eid": str(reply.eid),
            "outcome": reply.outcome.value,
            "digest": digest(reply.body),
            "answers": reply.value.rid if done else None,
            **self._who(),
        }

    def acknowledge(self, rids: list[str]) -> None:
        """Frees replies."""
        freed = tuple(rids)
        self._record(AcknowledgeBegun(rids=freed, **self._who()))
        with self._doubting("acknowledge"):
            self.clerk.acknowledge(rids)
        self._record(Acknowledged(rids=freed, **self._who()))

    def cancel_last_request(self, eid: str, *, timeout_s: float = 10.0) -> KillAnswer:
        """Kills the last request, whose eid is known from its send."""
        rid, actor = self.clerk.last_sent or "", self._who()["actor"]
        self._record(KillBegun(rid=rid, eid=eid, actor=actor))
        try:
            answer = self.clerk.cancel_last_request(timeout_s=timeout_s)
        except OnceqError as error:
            unknown = error.outcome is Outcome.UNKNOWN
            self._record(KillFailed(rid=rid, eid=eid, unknown=unknown, actor=actor))
            raise
        self._record(KillAnswered(rid=rid, eid=eid, answer=answer.value, actor=actor))
        return answer

    def disconnect(self) -> None:
        """Ends the session."""
        self._record(DisconnectBegun(**self._who()))
        with self._doubting("disconnect"):
            self.clerk.disconnect()
        self._record(Disconnected(**self._who()))

    def satisfied(self) -> None:
        """Says that every reply that is owed has been received."""
        self._record(Satisfied(**self._who()))

    @contextmanager
    def _doubting(self, what: str) -> Generator[None]:
        """Records that the answer to a commit was lost."""
        try:
            yield
        except OnceqError as error:
            if error.outcome is Outcome.UNKNOWN:
                self._record(Doubted(what=what, actor=self._who()["actor"]))
            raise
