"""The Ops that have spans, and what their spans say: a table, and the kinds of steps in it.

Used by `watched`. A look that finds nothing, and a wait, have no span. What a step is told is the
Op and its answer; it changes neither, but for the property `onceq_trace` of what is sent.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final, TypeAlias

import msgspec
from msgspec.structs import replace
from opentelemetry import context as contexts
from opentelemetry.trace import SpanKind

from onceq.model import ops
from onceq.model.element import Element
from onceq.model.trace import with_trace
from onceq.otel.spans import (
    CHARGE,
    ID,
    NOWHERE,
    Begun,
    Destination,
    Moment,
    Operation,
    Subject,
    Teller,
)

REPLIES: Final = "reply-{client}"
"""Of the names of reply queues: there is one for each client."""
within_one: Final[ContextVar[bool]] = ContextVar("onceq_otel_within_one", default=False)
"""Whether a dequeue is under way, which is one span: the Ops of which it consists have none."""

Rids: TypeAlias = "list[str | None]"

SEND: Final = Operation("send", "send", SpanKind.PRODUCER)
SEND_ONE_WAY: Final = Operation("send_one_way", "send", SpanKind.PRODUCER)
ENQUEUE: Final = Operation("enqueue", "send", SpanKind.PRODUCER)
ENQUEUE_TAGGED: Final = Operation("enqueue", "send", SpanKind.CLIENT)
"""It carries no properties, so nothing links to it."""
CLAIM: Final = Operation("claim", "receive", SpanKind.CLIENT)
RECEIVE: Final = Operation("receive", "receive", SpanKind.CLIENT)
DEQUEUE: Final = Operation("dequeue", "receive", SpanKind.CLIENT)
PROCESS: Final = Operation("process", "process", SpanKind.CONSUMER)
FINISH: Final = Operation("finish", "settle", SpanKind.CLIENT)
ABORT: Final = Operation("abort", "settle", SpanKind.CLIENT)
ACKNOWLEDGE: Final = Operation("acknowledge", "settle", SpanKind.CLIENT)


@dataclass(slots=True)
class Known:
    """What a session has claimed: the message, its queue, the context of its processing."""

    subject: Subject
    where: Destination = NOWHERE
    within: Any = None


@dataclass(slots=True)
class Memory:
    """What one run of a Program has seen. queues: their names by number. claimed: by seq."""

    queues: dict[int, str] = field(default_factory=dict[int, str])
    claimed: dict[int, Known] = field(default_factory=dict[int, Known])

    def where(self, queue_id: int) -> Destination:
        """Returns the queue with this number."""
        return Destination(self.queues.get(queue_id))

    def claim(self, elements: Sequence[Element]) -> list[Subject]:
        """Notes what was claimed; returns what spans say of it."""
        for one in elements:
            subject = Subject(one.rid, one.trace, attempt=one.aborts + 1, last_abort=one.code)
            self.claimed[one.seq] = Known(subject, self.where(one.queue_id))
        return [self.claimed[one.seq].subject for one in elements]

    def known(self, seq: int) -> Known:
        """Returns what is known of an element."""
        return self.claimed.get(seq) or Known(Subject(None))

    def forget(self, seqs: Sequence[int]) -> None:
        """Notes that elements are settled."""
        for one in seqs:
            self.claimed.pop(one, None)

    def learn(self, op: ops.Op[Any], answer: Any) -> None:
        """Notes the numbers of queues, which claims go by."""
        if isinstance(op, ops.ListQueues):
            self.queues.update({one.queue_id: one.name for one in answer})
        elif isinstance(op, ops.Survey):
            self.queues.update(zip(answer.numbers, op.queues, strict=True))


class Step:
    """An Op that has a span. op: what is performed. Then it is answered, or has failed, once."""

    def __init__(self, teller: Teller, memory: Memory, op: Any) -> None:
        self.teller = teller
        self.memory = memory
        self.op = op
        self.begun: Begun | None = None
        self._begin()

    def answered(self, answer: Any) -> None:
        """Ends its span; notes what was answered."""
        try:
            self._end(None)
        finally:
            self._note(answer)

    def failed(self, code: str) -> None:
        """Ends its span with the code of an error."""
        self._end(code)

    def _begin(self) -> None:
        """Begins its span, where that comes before the answer."""

    def _note(self, answer: Any) -> None:
        """Notes an answer."""

    def _end(self, code: str | None) -> None:
        if self.begun is not None:
            self.begun.end(code)


# --- send -----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Sends:
    """How an Op sends. what: where its queue stands; rids: None: not known yet.

    carry: gives the Op that takes the context of its span along.
    """

    operation: Operation
    rids: Callable[[Any], Rids]
    carry: Callable[[Any, str], Any]
    what: Callable[[Any], Any] = lambda op: op


def _in_send(op: ops.Send, trace: str) -> ops.Send:
    properties = with_trace(op.request.properties, trace)
    return replace(op, request=replace(op.request, properties=properties))


def _in_each(op: ops.SendMany, trace: str) -> ops.SendMany:
    given = op.properties or [None] * len(op.rids)
    each = [with_trace(msgspec.json.decode(one or "{}"), trace) for one in given]
    return replace(op, properties=[msgspec.json.encode(one).decode() for one in each])


def _in_properties(op: Any, trace: str) -> Any:
    return replace(op, properties=with_trace(op.properties, trace))


def _in_nothing(op: Any, _: str) -> Any:
    return op


SENDS: Final[dict[type[ops.Op[Any]], Sends]] = {
    ops.Send: Sends(SEND, lambda op: [op.request.rid], _in_send),
    ops.SendMany: Sends(SEND, lambda op: list(op.rids), _in_each),
    ops.Post: Sends(
        SEND_ONE_WAY,
        lambda op: [op.send.request.rid],
        lambda op, trace: replace(op, send=_in_send(op.send, trace)),
        lambda op: op.send,
    ),
    ops.Enqueue: Sends(ENQUEUE, lambda op: [op.rid], _in_properties),
    ops.EnqueueMany: Sends(ENQUEUE, lambda op: [None for _ in op.bodies], _in_properties),
    ops.EnqueueTagged: Sends(ENQUEUE_TAGGED, lambda _: [None], _in_nothing),
}


class Sending(Step):
    """A send: its span is where links lead to, so its context travels with each message."""

    def _begin(self) -> None:
        sends = SENDS[type(self.op)]
        self._rids = sends.rids(self.op)
        where = Destination(sends.what(self.op).queue)
        subjects = [Subject(rid) for rid in self._rids]
        self.begun = self.teller.begin(sends.operation, where, subjects)
        trace = self.begun.trace
        if trace is not None:
            self.op = sends.carry(self.op, trace)

    def answered(self, answer: Any) -> None:
        """Ends its span. Of an element without a rid, the eid is the id."""
        if self.begun is not None and self._rids == [None]:
            self.begun.add(ID, str(answer[0] if isinstance(self.op, ops.EnqueueMany) else answer))
        super().answered(answer)


# --- receive --------------------------------------------------------------------------------------


class Finding(Step):
    """A look for messages: its span is made when it has found some, or failed."""

    def __init__(self, operation: Operation, teller: Teller, memory: Memory, op: Any) -> None:
        self._operation = operation
        super().__init__(teller, memory, op)

    def _begin(self) -> None:
        self._since = Moment()

    def failed(self, code: str) -> None:
        """Makes the span of a look that failed."""
        self._tell([], code)

    def _note(self, answer: list[Element]) -> None:
        if answer:
            self._tell([Subject(one.rid, one.trace) for one in answer], None)

    def _where(self) -> Destination:
        return _replies(self.op)

    def _tell(self, subjects: Sequence[Subject], code: str | None) -> None:
        begun = self.teller.begin(self._operation, self._where(), subjects, since=self._since)
        begun.end(code)


class Claiming(Finding):
    """A server's claim. All that it had claimed before has been settled."""

    def _where(self) -> Destination:
        return self.memory.where(self.op.queue_id)

    def _note(self, answer: list[Element]) -> None:
        self.memory.claimed.clear()
        if subjects := self.memory.claim(answer):
            self._tell(subjects, None)


class Dequeueing(Finding):
    """A dequeue of a queue manager's, which may consist of several Ops."""

    def _begin(self) -> None:
        super()._begin()
        self._token: Any = within_one.set(True)  # no keyword

    def answered(self, answer: Element | None) -> None:
        """Makes the span of what was dequeued, if anything was."""
        within_one.reset(self._token)
        super().answered([] if answer is None else [answer])

    def failed(self, code: str) -> None:
        """Makes the span of a dequeue that failed."""
        within_one.reset(self._token)
        super().failed(code)

    def _where(self) -> Destination:
        return Destination(self.op.queue)


# --- process --------------------------------------------------------------------------------------


class Processing(Step):
    """A call of a handler: in it, the span is the current one."""

    def _begin(self) -> None:
        known = self.memory.known(self.op.element.seq)
        self.begun = self.teller.begin(PROCESS, Destination(self.op.queue), [known.subject])
        known.within = self.begun.context
        self._token = contexts.attach(known.within)

    def _end(self, code: str | None) -> None:
        contexts.detach(self._token)
        super()._end(code)


# --- settle ---------------------------------------------------------------------------------------


class Finishing(Step):
    """A server's finish. It may claim what comes next: that is received by the same statement."""

    def _begin(self) -> None:
        self._since = Moment()
        known = [self.memory.known(one) for one in self.op.seqs]
        where = self.memory.where(self.op.queue_id)
        self.begun = _settlement(self.teller, FINISH, where, known)

    def _note(self, answer: ops.Finished) -> None:
        self.memory.forget(self.op.seqs)
        if subjects := self.memory.claim(answer.following):
            where = self.memory.where(self.op.queue_id)
            self.teller.begin(CLAIM, where, subjects, since=self._since).end()


class Aborting(Step):
    """A server gives back, or fails, what it had claimed."""

    def _begin(self) -> None:
        known = self.memory.known(self.op.seq)
        self.begun = _settlement(self.teller, ABORT, known.where, [known])
        self.begun.add(CHARGE, self.op.charge.value)

    def answered(self, answer: object) -> None:
        """Ends its span; what it knew of the element is over."""
        self.memory.forget([self.op.seq])
        super().answered(answer)


class Acknowledging(Step):
    """A client frees replies."""

    def _begin(self) -> None:
        known = [Known(Subject(rid)) for rid in self.op.rids]
        self.begun = _settlement(self.teller, ACKNOWLEDGE, _replies(self.op), known)


def _settlement(
    teller: Teller, operation: Operation, where: Destination, known: Sequence[Known]
) -> Begun:
    """Begins the span of what ends messages; of one, within that of its processing."""
    within = known[0].within if len(known) == 1 else None
    return teller.begin(operation, where, [one.subject for one in known], within=within)


def _replies(op: Any) -> Destination:
    """Returns the reply queue of whoever asks."""
    return Destination(REPLIES.format(client=op.who.registrant_id), REPLIES)


STEPS: Final[dict[type[ops.Op[Any]], Callable[[Teller, Memory, Any], Step]]] = {
    **dict.fromkeys(SENDS, Sending),
    ops.Claim: partial(Claiming, CLAIM),
    ops.Receive: partial(Finding, RECEIVE),
    ops.Dequeue: partial(Dequeueing, DEQUEUE),
    ops.Call: Processing,
    ops.Finish: Finishing,
    ops.AbortElement: Aborting,
    ops.Acknowledge: Acknowledging,
}
"""The Ops that have spans, and how each is told of."""
