"""What a bridge into a database receives, and under which name; and what it tells its log."""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Sequence
from typing import Final

import msgspec

from onceq import telemetry
from onceq.engine.perform.guarded import said_by
from onceq.errors import HandlerFailed, InvalidValue, OnceqError
from onceq.model import ops
from onceq.model.names import BODY_BYTES_MAX
from onceq.streams import logged
from onceq.streams.bridge.moving import hexed
from onceq.streams.bridge.traces import traceback_of
from onceq.streams.model.events import Loss
from onceq.streams.model.quorum import StoreList
from onceq.streams.receiver.ops import Message
from onceq.streams.receiver.placing import Who
from onceq.streams.store.records import key_of

log = logging.getLogger(__name__)
ERROR_CHARS_MAX: Final = 4_000
"""So much of an error's text is kept."""


class Target(msgspec.Struct, frozen=True, kw_only=True):
    """What is received, and under which name. at: stores to begin with.

    name: of the position; NAME.error is the queue of what raised too often. topic, source: of the
    stream, with the session of its source. batch: most messages of a transaction. abort_limit: how
    often a message may raise, alone. fail_on_data_loss: False: what no store has any more is
    passed, and told.
    """

    name: str
    topic: str
    source: int
    at: StoreList
    batch: int = 1_000
    abort_limit: int = 5
    fail_on_data_loss: bool = True

    def __post_init__(self) -> None:
        if self.batch < 1 or self.abort_limit < 1:
            raise InvalidValue("batch and abort_limit are at least 1")

    @property
    def who(self) -> Who:
        """The receiver: its session is the same in each life of the name."""
        named = hashlib.sha256(f"into {self.name}".encode()).digest()
        session = int.from_bytes(named[:8], "little") or 1
        return Who(
            topic=self.topic,
            source=self.source,
            session=session,
            key=key_of(0, session),
            known=self.at,
        )

    @property
    def errors(self) -> str:
        """The queue of what raised too often."""
        return f"{self.name}.error"


def refusals(target: Target, message: Message, error: OnceqError) -> list[ops.Enqueue]:
    """Return what puts a message into the error queue, in the transaction that passes it.

    One that is larger than an element may be is there in parts, in order, each with its place.
    """
    body, size = message.body, BODY_BYTES_MAX
    bodies = [body[begin : begin + size] for begin in range(0, len(body) or 1, size)]
    of = {
        "topic": target.topic,
        "session": hexed(target.source),
        "stream": hexed(message.stream),
        "epoch": message.epoch,
        "number": message.number,
        "error": storable(said_by(error)),
    }
    return [
        ops.Enqueue(
            queue=target.errors,
            body=one,
            correlation_id=f"{hexed(message.stream)}:{message.epoch}:{message.number}",
            properties={"onceq_stream": of | _place(part, len(bodies))},
            own_transaction=False,
        )
        for part, one in enumerate(bodies, 1)
    ]


def _place(part: int, parts: int) -> dict[str, int]:
    return {"part": part, "parts": parts} if parts > 1 else {}


def storable(text: str) -> str:
    """Return the beginning of what an error says, as PostgreSQL can keep it in JSON."""
    text = text[:ERROR_CHARS_MAX].replace("\0", "\\0")
    return text.encode(errors="backslashreplace").decode()


def tell_undone(
    target: Target, piece: Sequence[Message], error: OnceqError, *, is_known: bool
) -> None:
    """Log that messages have not taken effect, and are tried again.

    is_known: the log has the traceback of this error.
    """
    event = logged.EffectsUndone(
        bridge=target.name,
        topic=target.topic,
        first=piece[0].number,
        last=piece[-1].number,
        code=code_of(error),
        error=storable(said_by(error)),
        traceback=None if is_known else traceback_of(error),
    )
    telemetry.tell(log, event)


def tell_given_up(target: Target, message: Message, error: OnceqError) -> None:
    """Log that a message was passed without its effects."""
    event = logged.EffectsGivenUp(
        bridge=target.name,
        topic=target.topic,
        number=message.number,
        queue=target.errors,
        code=code_of(error),
        error=storable(said_by(error)),
        traceback=traceback_of(error),
    )
    telemetry.tell(log, event)


def tell_missed(target: Target, loss: Loss) -> None:
    """Log that numbers were passed that are void, or lost."""
    event = logged.EffectsMissed(
        bridge=target.name,
        topic=target.topic,
        first=loss.first,
        last=loss.last,
        why=loss.why.value,
    )
    telemetry.tell(log, event)


def code_of(error: OnceqError) -> str:
    """Return what kind of error it was: of a handler's the class of what it raised."""
    return error.code if isinstance(error, HandlerFailed) else type(error).__name__
