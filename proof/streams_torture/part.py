"""Torture of streams as a part of the proof: a run of faults, judged, and a control that fails."""

from __future__ import annotations

import random
import shutil
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from proof import goals
from proof.part import Control, Limits, Measure, Outcome, Part, Size
from proof.streams_torture.faults import KILLS, PARTITIONS, Faults
from proof.streams_torture.judge import Judged, judged
from proof.streams_torture.processes import FLIGHT
from proof.streams_torture.proxying import Way
from proof.streams_torture.stand import Stand

if TYPE_CHECKING:
    from collections.abc import Callable

    from proof.part import Order

CONTROL = (
    "a source of streams that takes what one store has for stable, and that store's disk is lost"
)
HEAD = """\
Three stores on disks behind proxies, a source, a receiver of what is stable and a live one, each in
a process of its own. They are killed with -9 and started again, stand still, are parted in one
direction or both; disks fill up, and fail to sync. The source sends all the time. At the end all is
stable, and each receiver has it. What each process recorded, and the logs of the stores, are judged
by the history checker (`onceq.streams.history`).
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Amount:
    """How much a run takes. apart_s: between two faults, at most."""

    messages: int
    kills: int
    partitions: int
    apart_s: float
    most_s: float


AMOUNTS = {
    Size.SMALL: Amount(messages=2_000, kills=8, partitions=1, apart_s=0.5, most_s=60.0),
    Size.PROOF: Amount(
        messages=20_000_000, kills=1_000, partitions=200, apart_s=1.2, most_s=1_250.0
    ),
    Size.LONG: Amount(
        messages=400_000_000, kills=20_000, partitions=4_000, apart_s=1.2, most_s=18_000.0
    ),
}
FIRST_S = 60.0
"""Until the first message is stable."""
KEPT_BYTES = 256 << 20
ALONE = 3 * FLIGHT
ALONE_S = 30.0
DOWN_S = 0.5
"""The control: so many messages, or so long, at one store alone, where others can have but one
flight of them; and how long that one is down then."""


def tortured(order: Order) -> tuple[Judged, Faults]:
    """Run until there is enough of everything, or for as long as it may take; judge what was."""
    stand = Stand(order.place / "run", kept_bytes=KEPT_BYTES)
    faults = Faults(stand, random.Random(order.seed))

    def strike() -> None:
        _strike(order, stand, faults, AMOUNTS[order.size])
        faults.end()

    return _judged(stand, strike), faults


def controlled(order: Order, *, is_mistaken: bool = True) -> Judged:
    """Let the only store that a source reaches lose its disk, and the source end."""
    stand = Stand(order.place / "control", kept_bytes=KEPT_BYTES, is_mistaken=is_mistaken)

    def lose() -> None:
        first, *others = range(len(stand.stores))
        for number in others:
            stand.proxies.turn(number, Way.NONE)
        before, until = stand.sent(), time.monotonic() + ALONE_S
        while time.monotonic() < until and stand.sent() <= before + ALONE:
            stand.tick()
        stand.source.kill(DOWN_S)
        stand.stores[first].kill(DOWN_S)
        shutil.rmtree(stand.places[stand.stores[first].name])
        for number in others:
            stand.proxies.cut(number)
            stand.proxies.turn(number, Way.BOTH)

    return _judged(stand, lose, stand.stores[0].name)


def _judged(stand: Stand, strike: Callable[[], None], *forgot: str) -> Judged:
    try:
        _until_sending(stand)
        strike()
        in_time = stand.finish()
    finally:
        stand.close()
    found = judged(stand, forgot=forgot)
    if not in_time:
        found.wrong.append("some was not stable, or not delivered, after all faults had ended")
    return found


def _until_sending(stand: Stand) -> None:
    until = time.monotonic() + FIRST_S
    while stand.sent() == 0:
        stand.tick()
        if time.monotonic() > until:
            raise TimeoutError(f"nothing was stable in {FIRST_S} s")


def _strike(order: Order, stand: Stand, faults: Faults, amount: Amount) -> None:
    until, following = time.monotonic() + amount.most_s, 0.0
    while time.monotonic() < until:
        stand.tick()
        faults.tick()
        done = faults.did[KILLS]
        order.say("kills", min(done, amount.kills), amount.kills)
        is_enough = done >= amount.kills and faults.did[PARTITIONS] >= amount.partitions
        if is_enough and stand.sent() >= amount.messages:
            return
        if time.monotonic() >= following:
            faults.strike()
            following = time.monotonic() + faults.chance.random() * amount.apart_s


def run(order: Order) -> Outcome:
    """Run the torture, then the control."""
    found, faults = tortured(order)
    control = controlled(order)
    seed = f"seed {order.seed}"
    return Outcome(
        measures=[
            Measure(what=goals.STREAM_KILLS, reached=faults.did[KILLS]),
            Measure(what=goals.STREAM_PARTITIONS, reached=faults.did[PARTITIONS]),
            Measure(what=goals.STREAM_SENT, reached=found.report.sent),
            Measure(what="messages shown to receivers of streams", reached=found.report.delivered),
        ],
        violations=[f"{text}: {seed}" for text in found.wrong],
        controls=[Control(what=CONTROL, broke=int(bool(control.wrong)), of=1)],
        page=page(found, faults),
    )


def page(found: Judged, faults: Faults) -> str:
    """Return the section of the report."""
    report = found.report
    done = {**faults.did, **{f"recorded: {what}": count for what, count in report.counts.items()}}
    lines = [
        f"{report.sent:,} messages, {report.delivered:,} shown.",
        "",
        HEAD,
        "| | times |",
        "| --- | --: |",
        *(f"| {what} | {count:,} |" for what, count in sorted(done.items())),
    ]
    return "\n".join(lines) + "\n"


PART = Part(
    name="streams-torture",
    text="Stores, sources and receivers of streams, killed, stopped, parted; their history judged.",
    run=run,
    states=(goals.STREAM_KILLS, goals.STREAM_PARTITIONS, goals.STREAM_SENT),
    controls={CONTROL: 1.0},
    alone=True,
    limits=Limits(small_s=240.0),
)
