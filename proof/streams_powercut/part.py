"""Power cuts under stores as a part of the proof: rounds of cuts, and a control that must lose."""

from __future__ import annotations

import asyncio
import contextlib
import random
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from proof import goals
from proof.part import Control, Limits, Measure, Outcome, Part, Size
from proof.powercut import devices
from proof.powercut.drive import Cache, Ground, Kind
from proof.streams_powercut.trial import Verdict, judged, load

if TYPE_CHECKING:
    from proof.part import Order

SYSTEMS = ("ext4", "xfs")
CACHES = (Cache.LOST, Cache.SOME, Cache.KEPT)
CONTROL = "power cuts of stores without fdatasync"
HEAD = """\
Three stores on one drive, which loses its power under all of them at once, while a source sends.
The drive is that of the part `power-cut`. After each cut, a quorum of the stores must have all that
the source had been told to be stable before the cut began, as it was sent.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Amount:
    """How many rounds of how many cuts, and how many cuts of the control."""

    rounds: int
    cuts: int
    control_cuts: int


AMOUNTS = {
    Size.SMALL: Amount(rounds=1, cuts=4, control_cuts=4),
    Size.PROOF: Amount(rounds=10, cuts=10, control_cuts=10),
    Size.LONG: Amount(rounds=200, cuts=10, control_cuts=50),
}


@dataclass(slots=True)
class Found:
    """What became of the cuts."""

    cuts: list[Verdict] = field(default_factory=list[Verdict])
    control: list[Verdict] = field(default_factory=list[Verdict])


def run(order: Order) -> Outcome:
    """Run the rounds; skipped, with the reason, if devices cannot be made."""
    reason = devices.missing()
    if reason is not None:
        return Outcome(skipped=reason)
    with contextlib.ExitStack() as undo:
        try:
            ground = undo.enter_context(Ground(order.place))
        except devices.DeviceFailed as error:
            return Outcome(skipped=str(error))
        return _outcome(order, _run(order, ground))


def _run(order: Order, ground: Ground) -> Found:
    amount, found = AMOUNTS[order.size], Found()
    for number in range(amount.rounds):
        kind = Kind(system=SYSTEMS[number % 2], cache=CACHES[number % len(CACHES)])
        found.cuts += _round(order, ground, kind, name=f"round-{number}", cuts=amount.cuts)
        order.say("power cuts", len(found.cuts), amount.rounds * amount.cuts)
    kind = Kind(system="ext4", cache=Cache.LOST)
    found.control = _round(
        order, ground, kind, name="control", cuts=amount.control_cuts, syncs=False
    )
    return found


def _round(
    order: Order, ground: Ground, kind: Kind, *, name: str, cuts: int, syncs: bool = True
) -> list[Verdict]:
    chance = random.Random(f"{order.seed} {name}")
    image = ground.fresh(f"{name}-load", kind.system)
    with ground.powered(image, "load", kind) as drive:
        made, told = asyncio.run(
            load(
                drive,
                [ground.file(f"{name}-{number}") for number in range(cuts)],
                syncs=syncs,
                chance=chance,
            )
        )
    image.unlink()
    return [judged(ground, cut, kind, told=told, chance=chance) for cut in made]


def _outcome(order: Order, found: Found) -> Outcome:
    lost = [
        f"cut {number}: {one.lost} of {one.stable} stable messages are lost: seed {order.seed}"
        for number, one in enumerate(found.cuts)
        if one.lost
    ]
    wrong = [text for one in found.cuts for text in one.wrong[:1]]
    return Outcome(
        measures=[
            Measure(what=goals.STREAM_CUTS, reached=len(found.cuts)),
            Measure(
                what="stable messages of streams, none lost by a power cut",
                reached=sum(one.stable for one in found.cuts),
            ),
        ],
        violations=[*lost, *wrong],
        controls=[
            Control(
                what=CONTROL,
                broke=sum(bool(one.lost) for one in found.control),
                of=len(found.control),
            )
        ],
        page=HEAD,
    )


PART = Part(
    name="streams-powercut",
    text="The disk of three stores is frozen under load, as a power cut would, and they are opened",
    run=run,
    states=(goals.STREAM_CUTS,),
    controls={CONTROL: 0.3},
    limits=Limits(small_s=300.0),
)
