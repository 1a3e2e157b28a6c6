"""The Programs of periodic requests: declare, change, and tick (ADR 39).

A tick: SQL names what is due, a pure function computes what is to be sent and what comes next, and
one Op does it in one transaction. Servers, waiting dequeues and Spark's driver run `tend`.
"""

from __future__ import annotations

import logging
from functools import partial
from typing import Any

from onceq import errors, telemetry
from onceq.manager.retaining import retire
from onceq.model import names, ops
from onceq.model.arguments import check_kind
from onceq.model.periodic import Periodic, PeriodicInfo
from onceq.model.periodic_ops import (
    AlterPeriodic,
    CreatePeriodic,
    DueTick,
    DueTicks,
    HoldTick,
    ListPeriodics,
    Now,
    PausePeriodic,
    RemovePeriodic,
    Tick,
    Ticked,
    TickState,
)

log = logging.getLogger(__name__)

UNKNOWN_AGAIN_S = 60.0
"""In how long a tick that cannot be computed on one machine is tried again, perhaps on another."""
_MOVED = frozenset({TickState.SENT, TickState.SKIPPED})


def tend_at_times() -> ops.Program[None]:
    """Ticks, if nothing of this process has looked in the last second."""
    if (yield from ops.MayTend()):
        yield from tend()


def tend() -> ops.Program[int]:
    """Sends what is due now, and removes what is kept no longer; returns how many it sent."""
    sent = 0
    for due in (yield from DueTicks()):
        sent += yield from _tick(due)
    yield from retire()
    return sent


def _tick(due: DueTick) -> ops.Program[int]:
    """Passes the ticks of one periodic request that are due, until one is not passed."""
    sent = 0
    try:
        plan = list(due.times.plan(due.next_at, due.now))
    except errors.InvalidValue as error:  # a zone that is not known here
        yield from _put_off(due, str(error))
        return sent
    for one in plan:
        op = Tick(name=due.name, revision=due.revision, next_at=one.due, tick_at=one.at, to=one.to)
        ticked = yield from op
        sent += ticked.state is TickState.SENT
        if ticked.state not in _MOVED:
            yield from _told(due, ticked)
            break
    return sent


def _told(due: DueTick, ticked: Ticked) -> ops.Program[None]:
    if ticked.error is not None and ticked.is_news:
        event = telemetry.TickRefused(periodic=due.name, error=ticked.error)
        yield from ops.Act(act=partial(telemetry.tell, log, event))


def _put_off(due: DueTick, error: str) -> ops.Program[None]:
    is_news = yield from HoldTick(
        name=due.name,
        revision=due.revision,
        next_at=due.next_at,
        error=error,
        after_s=UNKNOWN_AGAIN_S,
    )
    ticked = Ticked(state=TickState.REFUSED, error=error, is_news=is_news)
    yield from _told(due, ticked)


# --- what programs and people do ------------------------------------------------------------------


def declare(periodic: Periodic[Any]) -> ops.Program[bool]:
    """Makes a periodic request, if there is none of its name; SettingsDiffer if it differs."""
    now = yield from Now()
    first = periodic.times.after(now)
    if (yield from CreatePeriodic(name=periodic.name, next_at=first, **periodic.fields)):
        return True
    there = yield from show(periodic.name)
    different = [
        f"{name} is {getattr(there, name)!r}, declared {value!r}"
        for name, value in periodic.fields.items()
        if getattr(there, name) != value
    ]
    if different:
        raise errors.SettingsDiffer(
            f"periodic request {periodic.name!r} exists with other settings: "
            f"{'; '.join(different)}; declare it as it is, or change it with `qm.alter_periodic`"
        )
    return False


def alter(periodic: Periodic[Any]) -> ops.Program[None]:
    """Changes a periodic request into this one. PeriodicNotFound."""
    check_kind(Periodic, "alter_periodic", periodic)
    while True:  # until nobody else has changed it meanwhile
        there = yield from show(periodic.name)
        next_at = periodic.times.after((yield from _passed(there)))
        change = AlterPeriodic(
            name=periodic.name, next_at=next_at, revision=there.revision, **periodic.fields
        )
        if (yield from change):
            return


def pause(name: str, *, paused: bool) -> ops.Program[bool]:
    """Pauses a periodic request, or resumes it with its next tick; returns whether that changed."""
    while True:  # until nobody else has changed it meanwhile
        there = yield from show(name)
        if there.is_paused == paused:
            return False
        next_at = there.next_at if paused else there.times.after((yield from _passed(there)))
        change = PausePeriodic(name=name, revision=there.revision, paused=paused, next_at=next_at)
        if (yield from change):
            return True


def _passed(there: PeriodicInfo) -> ops.Program[Any]:
    """Returns after what the next tick is to be: now, but never before what was sent already."""
    now = yield from Now()
    return now if there.ticked_at is None else max(now, there.ticked_at)


def show(name: str) -> ops.Program[PeriodicInfo]:
    """Returns a periodic request as it is now. PeriodicNotFound."""
    found = yield from ListPeriodics(name=names.check_periodic(name))
    if not found:
        raise errors.PeriodicNotFound(f"periodic request {name!r} does not exist: declare it first")
    return found[0]


def remove_op(name: str) -> RemovePeriodic:
    """Returns the checked Op that removes a periodic request. InvalidName."""
    return RemovePeriodic(name=names.check_periodic(name))
