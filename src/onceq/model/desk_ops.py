"""Ops of many clerks in one transaction, and how theirs become one: the desk. Pure.

A group takes only what is plain. Its answer is by place, from 1: whoever has none has had nothing
done, and goes alone. So what is rare is decided in one place, by the Op of one clerk.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from onceq.model import ops
from onceq.model.element import Element
from onceq.model.ops import Sent
from onceq.model.ops.base import Integer, Op, SmallInt

GROUP_MAX: Final = 100
"""Each clerk's anchor is an entry in the database's table of locks."""
BYTES_MAX: Final = 8 << 20
"""The bodies of a group together, unless it is of one: a group is one message to the database."""


class SendEach(Op[dict[int, Sent]], changes="requests of many clerks go in together"):
    """Sends a request of each clerk; each acknowledges at most one reply. Empty: none.

    Who is not in the answer: an epoch that is over, an anchor that others hold, a known rid.
    """

    queue: str
    priority: SmallInt
    content_type: str | None
    registrants: list[Integer]
    epochs: list[int]
    send_nos: list[int]
    rids: list[str]
    acks: list[str]
    keeps: list[Integer]
    properties: list[str]
    sha256s: list[bytes]
    bodies: list[bytes]


class ReceiveEach(Op[dict[int, list[Element]]]):
    """Looks for a reply of each clerk: the oldest, or that to a rid which is not empty.

    Who is not in the answer: an epoch that is over, or requests may have expired.
    """

    registrants: list[Integer]
    epochs: list[int]
    rids: list[str]


class AcknowledgeEach(Op[dict[int, int]], changes="replies of many clerks are freed together"):
    """Frees one reply of each clerk. Who is not in the answer: as in SendEach."""

    registrants: list[Integer]
    epochs: list[int]
    rids: list[str]
    s_rids: list[str]
    s_nos: list[int]
    keeps: list[Integer]


@dataclass(frozen=True, slots=True, kw_only=True)
class Grouping:
    """How Ops of one class become one. key: only those of an equal one do; None: it goes alone."""

    key: Callable[[Any], tuple[Any, ...] | None]
    join: Callable[[Sequence[Any]], Op[Any]]


def _send_key(op: ops.Send) -> tuple[Any, ...] | None:
    request = op.request
    is_plain = op.own_transaction and len(op.ack) <= 1
    if not is_plain or request.not_before is not None or request.expires_at is not None:
        return None
    return (ops.Send, op.queue, request.priority, op.content_type)


def _send_each(each: Sequence[ops.Send]) -> SendEach:
    return SendEach(
        queue=each[0].queue,
        priority=each[0].request.priority,
        content_type=each[0].content_type,
        registrants=[op.who.registrant_id for op in each],
        epochs=[op.who.epoch for op in each],
        send_nos=[op.send_no for op in each],
        rids=[op.request.rid for op in each],
        acks=["".join(op.ack) for op in each],
        keeps=[op.keep for op in each],
        properties=[op.request.properties_text or "" for op in each],
        sha256s=[op.request.sha256 for op in each],
        bodies=[op.request.body for op in each],
    )


def _receive_key(op: ops.Receive) -> tuple[Any, ...] | None:
    is_plain = op.ckpt is None and not op.skip and op.limit == 1 and op.after == 0
    return (ops.Receive,) if is_plain else None


def _receive_each(each: Sequence[ops.Receive]) -> ReceiveEach:
    return ReceiveEach(
        registrants=[op.who.registrant_id for op in each],
        epochs=[op.who.epoch for op in each],
        rids=[op.rid or "" for op in each],
    )


def _acknowledge_key(op: ops.Acknowledge) -> tuple[Any, ...] | None:
    return (ops.Acknowledge,) if op.ckpt is None and len(op.rids) == 1 else None


def _acknowledge_each(each: Sequence[ops.Acknowledge]) -> AcknowledgeEach:
    return AcknowledgeEach(
        registrants=[op.who.registrant_id for op in each],
        epochs=[op.who.epoch for op in each],
        rids=[op.rids[0] for op in each],
        s_rids=[op.s_rid or "" for op in each],
        s_nos=[op.s_no for op in each],
        keeps=[op.keep for op in each],
    )


GROUPINGS: Final[Mapping[type[Op[Any]], Grouping]] = {
    ops.Send: Grouping(key=_send_key, join=_send_each),
    ops.Receive: Grouping(key=_receive_key, join=_receive_each),
    ops.Acknowledge: Grouping(key=_acknowledge_key, join=_acknowledge_each),
}


def group_key(op: Op[Any]) -> tuple[Any, ...] | None:
    """Returns what Ops that may go together have in common; None: this one goes alone."""
    grouping = GROUPINGS.get(type(op))
    return None if grouping is None else grouping.key(op)


def weight(op: Op[Any]) -> int:
    """Returns how many bytes of its group's bodies are of this Op."""
    return len(op.request.body) if isinstance(op, ops.Send) else 0
