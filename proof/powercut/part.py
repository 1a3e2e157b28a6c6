"""The part of the proof: rounds of cuts on several kinds of disk, and the controls.

Used by proof/parts.py. A round with fsync off is a control: it must lose what was acknowledged.
"""

from __future__ import annotations

import contextlib
import random
from dataclasses import dataclass
from typing import TYPE_CHECKING

from proof.goals import EVENTS, POWER_CUTS, REQUESTS
from proof.part import Limits, Outcome, Part, Size
from proof.powercut import devices
from proof.powercut.drive import Cache, Ground, Kind
from proof.powercut.page import ASYNCHRONOUS, FSYNC_OFF, outcome
from proof.powercut.trial import Plan, Round

if TYPE_CHECKING:
    from collections.abc import Iterator

    from proof.part import Order

SYSTEMS = ("ext4", "xfs")
CACHES = (Cache.LOST, Cache.SOME, Cache.KEPT)
HASTY = {"synchronous_commit": "off"}
"""A default that every operation which acknowledges something must overrule."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Amount:
    """How many rounds of how many cuts, with fsync on, and with fsync off."""

    rounds: int
    cuts: int
    controls: int
    control_cuts: int


AMOUNTS = {
    Size.SMALL: Amount(rounds=2, cuts=5, controls=1, control_cuts=4),
    Size.PROOF: Amount(rounds=15, cuts=10, controls=3, control_cuts=10),
    Size.LONG: Amount(rounds=200, cuts=10, controls=20, control_cuts=10),
}


def plans(amount: Amount) -> Iterator[Plan]:
    """Yields the rounds: all kinds of disk in turn, half of them with a hasty default."""
    for number in range(amount.rounds):
        settings = HASTY if number % 4 in {1, 2} else {}
        yield Plan(name=f"round-{number}", kind=_kind(number), cuts=amount.cuts, settings=settings)
    for number in range(amount.controls):
        yield Plan(
            name=f"control-{number}",
            kind=_kind(number),
            cuts=amount.control_cuts,
            settings={"fsync": "off"},
        )


def _kind(number: int) -> Kind:
    return Kind(system=SYSTEMS[number % len(SYSTEMS)], cache=CACHES[number % len(CACHES)])


def run(order: Order) -> Outcome:
    """Runs the rounds; skipped, with the reason, if devices cannot be made."""
    reason = devices.missing()
    if reason is not None:
        return Outcome(skipped=reason)
    with contextlib.ExitStack() as undo:
        try:
            ground = undo.enter_context(Ground(order.place))
        except devices.DeviceFailed as error:
            return Outcome(skipped=str(error))
        return _run(order, ground)


def _run(order: Order, ground: Ground) -> Outcome:
    planned = list(plans(AMOUNTS[order.size]))
    of = sum(plan.cuts for plan in planned)
    rounds: list[Round] = []
    done = 0

    def told() -> None:
        nonlocal done
        done += 1
        order.say("power cuts judged", done, of)

    for plan in planned:
        one = Round(
            plan=plan,
            ground=ground,
            place=order.place / plan.name,
            chance=random.Random(f"{order.seed} {plan.name}"),
        )
        rounds.append(one)
        one.run(told)
    return outcome(rounds, order.seed)


PART = Part(
    name="power-cut",
    text="PostgreSQL's disk is frozen under load, as a power cut would, and recovers from the copy",
    run=run,
    states=(POWER_CUTS, REQUESTS, EVENTS),
    controls={FSYNC_OFF: 0.5, ASYNCHRONOUS: 0.0},
    limits=Limits(small_s=300.0, long_s=4 * 3600.0),
)
