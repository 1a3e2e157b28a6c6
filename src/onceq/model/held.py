"""What failed and is held for an operator, one by one and in groups (spec Q4, G3, X9). Pure."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Final, TypedDict
from uuid import UUID

import msgspec

from onceq.model import names
from onceq.model.element import Unheld
from onceq.model.ops.base import Integer, Op

TEXT_BYTES_MAX: Final = 1 << 20
"""No code, and no text, of a failure has more bytes."""


class HeldSearch(TypedDict, total=False):
    """Which held elements are wanted, as keywords; what is not given may be anything.

    queue: in which they failed, or the error queue that holds them. code, text: of their failure;
    texts are compared without their numbers, so that any text of a group chooses all of it.
    registrant: whose they were. since, until: aware datetimes of the failure; since is included,
    until is not. limit: how many at most, at least 1.
    """

    eid: UUID | None
    queue: str | None
    code: str | None
    text: str | None
    registrant: str | None
    since: datetime | None
    until: datetime | None
    limit: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Held:
    """A failed element in an error queue; or one at its abort limit, in a queue that holds it.

    The latter has not failed yet, and owes its reply still.

    queue: in which it failed; None: history does not tell any more, and several queues have this
    error queue. error_queue: None: its own queue holds it. code, error: of its failure. attempts:
    executions that were charged to it. failed_at: of the last abort in a queue that holds; None if
    history does not tell; then it counts as failed at enqueued_at. is_reply: it is a reply, whose
    processing by its client failed (spec C15); it has no code.
    """

    eid: UUID
    rid: str
    registrant: str | None
    queue: str | None
    error_queue: str | None
    code: str | None
    error: str | None
    attempts: int
    enqueued_at: datetime
    failed_at: datetime | None
    is_reply: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldGroup:
    """Held elements that failed alike: in one queue, with one code and one text but for numbers.

    text: with `#` in place of each number, hexadecimal number and UUID. first_at, last_at: of
    their failures, as far as history tells. eid: of the one that failed last, as an example.
    """

    count: int
    queue: str | None
    error_queue: str | None
    code: str | None
    text: str | None
    first_at: datetime | None
    last_at: datetime | None
    eid: UUID


@dataclass(frozen=True, slots=True, kw_only=True)
class Redriven:
    """A held element that was to run again. eid, rid: that it has now; None: it was not redriven.

    refused: why not: somebody else redrove or took it meanwhile, or its queue is gone; None: it
    was, or was only to be seen.
    """

    old: Held
    eid: UUID | None = None
    rid: str | None = None
    refused: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Released:
    """What its queue held and was to be retried or given up. fate: None: it was a dry run."""

    old: Held
    fate: Unheld | None = None


class HeldWhere(msgspec.Struct, frozen=True, kw_only=True):
    """What HeldSearch says but for its limit, checked. In an Op it stands for its fields."""

    eid: UUID | None = None
    queue: str | None = None
    code: str | None = None
    text: str | None = None
    registrant: str | None = None
    since: datetime | None = None
    until: datetime | None = None


class FindHeld(Op[list[Held]]):
    """What is held: the latest failures first, or the earliest.

    own: only what its own queue holds, or only what error queues hold; None: both.
    """

    where: HeldWhere
    limit: Integer
    earliest: bool = False
    own: bool | None = None


class GroupHeld(Op[list[HeldGroup]]):
    """What is held, by what failed alike, the largest first. limit: of groups."""

    where: HeldWhere
    limit: Integer


def check_held(called: str, search: HeldSearch, limit: int) -> tuple[HeldWhere, int]:
    """Returns what is wanted of held elements, and how many at most. InvalidName, InvalidValue.

    called: the method, for the error. limit: unless one is given.
    """
    names.check_keywords(called, search, HeldSearch)
    given = {name: search.get(name) for name in ("queue", "registrant", "eid")}
    most = search.get("limit", limit)
    names.check_search({"rid": None, "state": None, **given, "limit": most})
    for name in ("code", "text"):
        if search.get(name) is not None:
            names.check_text(name, search.get(name), TEXT_BYTES_MAX)
    for name in ("since", "until"):
        names.check_moment(name, search.get(name))
    where = {name: value for name, value in search.items() if name != "limit"}
    return msgspec.convert(where, HeldWhere), most
