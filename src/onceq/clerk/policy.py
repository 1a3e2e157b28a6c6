"""What becomes of a reply when its client cannot say whether it was processed (spec C14).

A table: one row for each policy. Given to `Clerk.process`; see `docs/exactly-once-output.md`. A
policy does nothing by itself: what it asks of the client's devices and people are Ops (`Act`).
Source: BHM90 3; CSEP 9.2, non-undoable operations.
"""

from __future__ import annotations

import enum
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, Generic, Self, TypeVar

from onceq.clerk.device import Device
from onceq.clerk.session import Reply
from onceq.errors import InvalidValue
from onceq.model import names, ops
from onceq.model.arguments import check_function

R = TypeVar("R")


class Settled(enum.Enum):
    """What became of a reply once `process` has settled it.

    PROCESSED: the handler has returned, in this call. BEFORE: an earlier attempt had processed it.
    SKIPPED: an earlier attempt had begun, and nobody will ever know how far it came.
    """

    PROCESSED = "processed"
    BEFORE = "processed before"
    SKIPPED = "skipped"


@dataclass(frozen=True, slots=True)
class Processed(Generic[R]):
    """A reply that needs nothing more, and what became of it."""

    reply: Reply[R]
    settled: Settled


@dataclass(frozen=True, slots=True)
class Rule:
    """A row of the table.

    mark: what is made stable as the checkpoint before processing begins; None: nothing.
    frees: the reply is acknowledged as soon as it is processed; otherwise, with a window of 1, the
    next send does that.
    again: whether to process a reply in doubt (policy, reply, checkpoint).
    otherwise: what became of it if not.
    """

    mark: Callable[[ReplyPolicy], ops.Program[bytes]] | None
    frees: bool
    again: Callable[[ReplyPolicy, Reply[Any], bytes | None], ops.Program[bool]]
    otherwise: Settled = Settled.BEFORE


def _begun(_: ReplyPolicy) -> ops.Program[bytes]:
    yield from ()
    return b""


def _state(policy: ReplyPolicy) -> ops.Program[bytes]:
    return names.check_bytes("device's state", (yield from ops.Act(act=policy.asked)))


def _decided(
    _policy: ReplyPolicy, _reply: Reply[Any], _ckpt: bytes | None, *, again: bool
) -> ops.Program[bool]:
    yield from ()
    return again


def _undone(policy: ReplyPolicy, reply: Reply[Any], _: bytes | None) -> ops.Program[bool]:
    yield from ops.Act(act=partial(policy.asked, reply))
    return True


def _unchanged(policy: ReplyPolicy, _: Reply[Any], ckpt: bytes | None) -> ops.Program[bool]:
    return (yield from _state(policy)) == ckpt


def _told(policy: ReplyPolicy, reply: Reply[Any], _: bytes | None) -> ops.Program[bool]:
    answer = yield from ops.Act(act=partial(policy.asked, reply))
    return not names.check_flag("the answer to `ask`", answer)


_again = partial(_decided, again=True)
_not_again = partial(_decided, again=False)

RULES: dict[str, Rule] = {
    "repeat": Rule(mark=None, frees=True, again=_again),
    "undo": Rule(mark=_begun, frees=True, again=_undone),
    "test": Rule(mark=_state, frees=False, again=_unchanged),
    "ask": Rule(mark=_begun, frees=True, again=_told),
    "skip": Rule(mark=_begun, frees=False, again=_not_again, otherwise=Settled.SKIPPED),
}
"""What each policy does. `test` and `skip` free nothing themselves: the one can ask its device
however late it is, and the other skips."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplyPolicy:
    """What a client does with a reply that it may already have processed: one of five policies.

    Made by the methods below. A client that comes back must use the policy that it died with.
    act: what is asked of the client's side. late: the device is read after the receive.
    """

    name: str
    act: Callable[..., Any] | None = None
    late: bool = False

    @property
    def asked(self) -> Callable[..., Any]:
        """What is asked of the client's side. InvalidValue: nothing was given."""
        return _callable(f"`act` of policy {self.name!r}", self.act)

    @property
    def rule(self) -> Rule:
        """The row of the table."""
        return RULES[self.name]

    @classmethod
    def repeat(cls) -> Self:
        """Processes it again: at least once. For outputs that carry the rid, or are idempotent."""
        return cls(name="repeat")

    @classmethod
    def undo(cls, take_back: Callable[[Reply[Any]], object]) -> Self:
        """Calls `take_back` with it, and processes it again.

        take_back: undoes what the handler may have done with this reply: all, a part, or nothing.
        """
        return cls(name="undo", act=_callable("take_back", take_back))

    @classmethod
    def test(cls, device: Device, *, late: bool = False) -> Self:
        """Asks the device: the reply is processed once and only once (C8).

        late: reads the device after the reply has come, and logs its state in a round trip of its
        own: for a device that others use while the client waits. Otherwise it is read before, and
        logged with the receive.
        """
        state = _callable("device.state", getattr(device, "state", None))
        return cls(name="test", act=state, late=names.check_flag("late", late))

    @classmethod
    def ask(cls, was_processed: Callable[[Reply[Any]], object]) -> Self:
        """Asks `was_processed`, a person or program, about it; processes it if that says False."""
        return cls(name="ask", act=_callable("was_processed", was_processed))

    @classmethod
    def skip(cls) -> Self:
        """Skips it: at most once. A reply whose processing was cut short is never processed."""
        return cls(name="skip")


def _callable(kind: str, value: object) -> Callable[..., Any]:
    if not callable(value):
        raise InvalidValue(f"{kind} is a function, not {type(value).__name__}")
    return value


def check_policy(value: object, *, may_await: bool) -> ReplyPolicy:
    """Returns a policy, or raises InvalidValue. may_await: what it asks may be async."""
    if not isinstance(value, ReplyPolicy) or value.name not in RULES:
        raise InvalidValue(f"a policy is a ReplyPolicy, not {type(value).__name__}")
    if value.act is not None:
        check_function(f"`act` of policy {value.name!r}", value.act, may_await=may_await)
    return value
