"""What an operator does with what failed: sees it, in groups too, and has it run again.

Used by QueueManager and AsyncQueueManager. Programs, and the Ops that they run, checked.
"""

from __future__ import annotations

from typing import Final

from onceq.errors import QueueNotFound
from onceq.manager import program
from onceq.model import names, ops
from onceq.model.held import (
    FindHeld,
    GroupHeld,
    Held,
    HeldGroup,
    HeldSearch,
    Redriven,
    Released,
    check_held,
)

LIMIT: Final = 100
REDRIVEN_MOST: Final = 100_000
"""What a call redrives at most, unless it says so: each takes a commit."""


def find(search: HeldSearch) -> ops.Program[list[Held]]:
    """Returns what is held, the latest failure first. QueueNotFound, InvalidName, InvalidValue."""
    where, limit = check_held("held", search, LIMIT)
    yield from _queue_is_there(where.queue)
    return (yield from FindHeld(where=where, limit=limit))


def group(search: HeldSearch) -> ops.Program[list[HeldGroup]]:
    """Returns what is held, in groups, the largest first. Raises as `find` does."""
    where, limit = check_held("held_groups", search, LIMIT)
    yield from _queue_is_there(where.queue)
    return (yield from GroupHeld(where=where, limit=limit))


def redrive(search: HeldSearch, *, dry_run: bool) -> ops.Program[list[Redriven]]:
    """Redrives what is held now, the earliest failure first, each in a transaction of its own.

    What fails again meanwhile is not redriven again. dry_run: only says what would be. Raises as
    `find` does.
    """
    names.check_flag("dry_run", dry_run)
    where, limit = check_held("redrive_held", search, REDRIVEN_MOST)
    yield from _queue_is_there(where.queue)
    found = yield from FindHeld(where=where, limit=limit, earliest=True, own=False)
    if dry_run:
        return [Redriven(old=one) for one in found]
    redriven: list[Redriven] = []
    for one in found:
        redriven.append((yield from _redrive(one)))  # noqa: PERF401 # no comprehension yields
    return redriven


def release(
    called: str,
    search: HeldSearch,
    op: type[ops.RetryHeld | ops.GiveUpHeld],
    *,
    dry_run: bool,
) -> ops.Program[list[Released]]:
    """Retries, or gives up, what its own queue holds now, the earliest failure first.

    Each in a transaction of its own. dry_run: only says what would be. Raises as `find` does.
    """
    names.check_flag("dry_run", dry_run)
    where, limit = check_held(called, search, REDRIVEN_MOST)
    yield from _queue_is_there(where.queue)
    found = yield from FindHeld(where=where, limit=limit, earliest=True, own=True)
    released: list[Released] = []
    for one in found:
        fate = None if dry_run else (yield from op(eid=one.eid))
        released.append(Released(old=one, fate=fate))
    return released


def retry(search: HeldSearch, *, dry_run: bool) -> ops.Program[list[Released]]:
    """Has what its queue holds run again, as itself; see `release`."""
    return release("retry_held", search, ops.RetryHeld, dry_run=dry_run)


def give_up(search: HeldSearch, *, dry_run: bool) -> ops.Program[list[Released]]:
    """Fails what its queue holds, with its failure reply; see `release`."""
    return release("give_up_held", search, ops.GiveUpHeld, dry_run=dry_run)


def _redrive(old: Held) -> ops.Program[Redriven]:
    try:
        new = yield from ops.Redrive(eid=old.eid)
    except QueueNotFound as error:
        return Redriven(old=old, refused=str(error))
    if new is None:
        return Redriven(old=old, refused="it is not held any more")
    return Redriven(old=old, eid=new[0], rid=new[1])


def _queue_is_there(queue: str | None) -> ops.Program[None]:
    if queue is not None:
        yield from program.show(queue)
