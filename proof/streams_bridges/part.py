"""Bridges struck at each of their steps, as a part of the proof."""

from __future__ import annotations

import random
from concurrent.futures import ThreadPoolExecutor
from multiprocessing import forkserver
from typing import TYPE_CHECKING, Final

from proof import goals
from proof.fault_ground import Ground
from proof.part import Control, Limits, Measure, Outcome, Part, Size
from proof.streams_bridges.ground import BROKEN, REPOSITORY, Database, Stores
from proof.streams_bridges.points import CONTROL, KINDS, Trial, trials
from proof.streams_bridges.trying import EFFECTS, Run

if TYPE_CHECKING:
    from collections.abc import Sequence

    from proof.part import Order

AT_ONCE: Final = 3
WARM: Final = ["proof.streams_bridges.processes"]
"""What the process that forks the others has imported, if it is not there yet."""
CONTROLS: Final = {Size.SMALL: 1, Size.PROOF: 5, Size.LONG: 20}
REFUSES_NOTHING: Final = "a position whose compare-and-set refuses nothing"
HEAD: Final = """\
Each point is struck at its first, second and a later occurrence: the process of the bridge dies, an
exception is raised, its connection to the database is lost before or after the next commit (where
messages are sent: all links to stores), or it stands still while a later life does all that there
is to do. Then the effects of all messages must be in the table once, in order, and all requests in
the topic; and positions in the database and in the stores must agree.
"""


def run(order: Order) -> Outcome:
    """Try everything, several at once; and what must break."""
    planned = trials(order.size, random.Random(order.seed))
    forkserver.set_forkserver_preload(WARM)
    wrong: list[str] = []
    done: list[Trial] = []
    with Ground() as ground, Stores() as stores:
        database = Database(ground.conninfo, REPOSITORY)

        def one(numbered: tuple[int, Trial]) -> None:
            number, trial = numbered
            found = Run(stores, database, trial, ground.place / f"t{number}").wrong()
            wrong.extend(f"{text} (seed {order.seed})" for text in found)
            done.append(trial)
            order.say("trials", len(done), len(planned))

        with ThreadPoolExecutor(AT_ONCE) as threads:
            list(threads.map(one, enumerate(planned)))
        broken = Database(ground.conninfo, BROKEN)
        broke = [
            any(EFFECTS in text for text in Run(stores, broken, CONTROL, place).wrong())
            for place in (ground.place / f"c{number}" for number in range(CONTROLS[order.size]))
        ]
    return Outcome(
        measures=[
            Measure(
                what=goals.BRIDGE_POINTS,
                reached=len({trial.point for trial in done}),
                goal=len({trial.point for trial in planned}),
            ),
            Measure(what="trials at fault points of bridges", reached=len(done)),
        ],
        violations=wrong,
        controls=[Control(what=REFUSES_NOTHING, broke=sum(broke), of=len(broke))],
        page=page(done),
    )


def page(done: Sequence[Trial]) -> str:
    """Return the section of the report."""
    lines = [
        f"{len(done):,} trials.",
        "",
        HEAD,
        "| point | of | trials |",
        "| --- | --- | --: |",
        *(
            f"| {point} | {kind} | {sum(one.point == point for one in done)} |"
            for point, kind in KINDS.items()
        ),
    ]
    return "\n".join(lines) + "\n"


PART = Part(
    name="streams-bridges",
    text="Every step of bridges, struck in five ways at its first, second and later time.",
    run=run,
    states=(goals.BRIDGE_POINTS,),
    controls={REFUSES_NOTHING: 1.0},
    in_memory=True,
    limits=Limits(small_s=300.0),
)
