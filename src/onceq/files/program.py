"""The Programs of submit and collect: control flow only, no files, no clock.

They use the queue manager's Ops directly, not a clerk. A clerk counts what is outstanding,
within a window; a file may have more rows than any window, and its replies are for another
program, `collect`, to receive. Everything else is the clerk's protocol: connect fences the
former life, a rid sent again gets the same answer, a reply stays until it is acknowledged.
"""

from __future__ import annotations

from dataclasses import dataclass
from uuid import UUID

from msgspec.structs import replace

from onceq import errors
from onceq.files.rows import BadRow, Row, digest_in
from onceq.manager.program import show
from onceq.model import admin_ops, ops
from onceq.model.element import Element
from onceq.model.ops.waiting import when_there_is_room
from onceq.model.queue import QueueKind

REFUSED_ALONE = (errors.RidReused, errors.TooLarge, errors.InvalidValue)
"""Errors in one row that must not stop the others of its transaction."""


@dataclass(slots=True)
class Life:
    """One life of a client. send_no: of its last send. new: nobody ever connected by that name.

    asleep: it is registered as asleep, and is rung when a reply comes.
    """

    client: str
    who: ops.Identity
    send_no: int
    s_rid: str | None
    ckpt: bytes | None
    new: bool
    asleep: bool = False


def begin(client: str) -> ops.Program[Life]:
    """Begins a new life of a client; fences the former one."""
    found = yield from ops.Connect(name=client)
    return Life(
        client=client,
        who=found.who,
        send_no=found.s_no,
        s_rid=found.s_rid,
        ckpt=found.ckpt,
        new=found.was == "new",
    )


def body_bytes_max(queue: str) -> ops.Program[int]:
    """Returns the largest body that a queue takes. QueueNotFound; InvalidValue: the wrong kind."""
    info = yield from show(queue)
    if info.kind is not QueueKind.REQUEST:
        raise errors.InvalidValue(f"queue {queue!r} is a {info.kind} queue: it takes no requests")
    return info.settings.body_bytes_max


def refuse_changed_file(life: Life, prefix: str, sha256: str) -> ops.Program[None]:
    """Refuses a file if this client submitted it with other content before. FileMismatch."""
    used = yield from admin_ops.RidRange(registrant_id=life.who.registrant_id, prefix=prefix)
    for rid in used or ():
        before = digest_in(rid, prefix)
        if before is not None and before != sha256:
            raise errors.FileMismatch(
                f"client {life.client!r} submitted {prefix[:-1]!r} with other content: sha256 was "
                f"{before} and is {sha256}; rename the file, or give another --client, when "
                "these are other requests"
            )


def is_known(eid: str) -> ops.Program[bool]:
    """Returns whether the repository knows an element, wherever it is or was."""
    found = yield from ops.LookUp(eid=UUID(eid), limit=1)
    return bool(found)


def send_rows(
    life: Life, queue: str, rows: list[Row], content_type: str
) -> ops.Program[list[ops.Sent | BadRow]]:
    """Sends rows, in one transaction if none is refused; returns the result of each, or why not.

    While the queue is full it sends fewer at once, and waits for room, without end.
    """
    if not rows:
        return []
    send = ops.SendMany(
        who=life.who,
        queue=queue,
        rids=[row.rid for row in rows],
        bodies=[row.body for row in rows],
        send_no=life.send_no + 1,
        ack=[],
        content_type=content_type,
    )
    try:
        answers = yield from when_there_is_room(send, None if len(rows) == 1 else 0.0)
    except (*REFUSED_ALONE, errors.QueueFull) as error:
        if len(rows) == 1:
            return [BadRow(rows[0].number, str(error), rows[0].source)]
        middle = len(rows) // 2
        first = yield from send_rows(life, queue, rows[:middle], content_type)
        return first + (yield from send_rows(life, queue, rows[middle:], content_type))
    life.send_no += len(rows)
    return list(answers)


def outstanding(life: Life) -> ops.Program[int]:
    """Returns how many of the client's requests have no reply, or one not yet acknowledged."""
    return (yield from ops.CountOutstanding(who=life.who))


def take_replies(life: Life, limit: int, timeout_s: float | None) -> ops.Program[list[Element]]:
    """Returns the oldest waiting replies, at most `limit`; none if none came in time."""
    op = ops.Receive(
        who=life.who,
        s_rid=life.s_rid,
        s_no=life.send_no,
        skip=[],
        limit=limit,
    )
    first = True
    while not (found := (yield from replace(op, asleep=life.asleep, sleep=not life.asleep))):
        life.asleep = True
        if not (yield from ops.Wait(key="receive", first=first, timeout_s=timeout_s)):
            return []
        first = False
    life.asleep = False
    return found


def acknowledge(life: Life, rids: list[str], ckpt: bytes) -> ops.Program[int]:
    """Frees replies that are on disk, and records how far the file reaches, in one transaction."""
    return (
        yield from ops.Acknowledge(
            who=life.who,
            rids=rids,
            ckpt=ckpt,
            s_rid=life.s_rid,
            s_no=life.send_no,
        )
    )
