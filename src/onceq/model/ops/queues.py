"""Queues: create, alter, destroy, list (spec Q1). Pure."""

from __future__ import annotations

from dataclasses import dataclass

from onceq.model.ops.base import Integer, Op
from onceq.model.queue import Limits, QueueInfo, QueueSettings
from onceq.model.retention import Retention


class CreateQueue(Op[bool], changes="a queue is made"):
    """Creates a queue and its error queue; False if a queue of that name already exists."""

    queue: str
    settings: QueueSettings


class AlterQueue(Op[bool], changes="the settings of a queue are changed"):
    """Changes the given settings; None leaves one as it is. QueueNotFound.

    limits: both of them; `Limits()` takes them away; retention: likewise. on_failure: of what fails
    from now on.
    """

    queue: str
    abort_limit: Integer | None = None
    backoff_ms: Integer | None = None
    backoff_max_ms: Integer | None = None
    execution_limit_s: Integer | None = None
    body_bytes_max: Integer | None = None
    tag_bytes_max: Integer | None = None
    keep_body: bool | None = None
    enqueue_started: bool | None = None
    dequeue_started: bool | None = None
    retry_limit: Integer | None = None
    limits: Limits | None = None
    on_failure: str | None = None
    retention: Retention | None = None


class DestroyQueue(Op[bool], changes="a queue is destroyed"):
    """Destroys an empty queue. QueueNotFound, QueueNotEmpty, DeadlineExceeded.

    QueueNotEmpty too for a client's reply queue and for the error queue of another queue.
    """

    queue: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Pause:
    """A pause of a queue: after how many faults with nothing done between, and for how long."""

    faults: int
    pause_s: int


class FindPause(Op[Pause | None]):
    """The pause of its queue that the last abort of an element began, while it lasts (Q4)."""

    queue_id: Integer
    seq: int


class ListQueues(Op[list[QueueInfo]]):
    """All queues by name, or just the named one."""

    queue: str | None = None
