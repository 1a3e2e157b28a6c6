"""The audit of a long history, half of it archived: what is broken is named, and nothing else.

The history is made by a generator (`made`), as servers would have left it. Then something is broken
in each way there is (`plants`), and the audit must name each by its guarantee and its rid, and no
other request. The rows are audited once, with the violations in them; a control is that they are
found.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, TypeAlias

import onceq
from onceq.spark.pipelines import Audited, Known, archive, audit
from onceq.spark.session import build_session
from proof import goals
from proof.audit.made import BLOCK, EACH, LIMIT, QUEUE, Made
from proof.audit.plants import PLANTS, Plant
from proof.part import Control, Limits, Measure, Outcome, Part, Size

if TYPE_CHECKING:
    from proof.part import Order

ROWS: Final = {Size.SMALL: 2 * BLOCK, Size.PROOF: 1_000 * BLOCK, Size.LONG: 4_000 * BLOCK}
CHUNK: Final = 40 * BLOCK
RATE: Final = "rows of history audited a second, on two cores"
RATE_MIN: Final = 5_000_000 // 180
"""Five million in three minutes."""
FOUND: Final = "a repository that is broken in one place has no violation there"

Named: TypeAlias = "tuple[str, str | None]"
"""A guarantee, and a rid."""


def run(order: Order) -> Outcome:
    """Makes a history, archives half of it, breaks it, and audits it."""
    rows = ROWS[order.size]
    spark = build_session("onceq audit", master="local[2]")
    with onceq.open(f"embedded:{order.place}/postgresql") as qm:
        qm.declare(QUEUE)
        made = Made(qm.located.conninfo, qm.repository, rows)
        made.begin()
        _write(order, made, 0, rows // 2)
        order.say("archiving", rows // 2, rows)
        archive(order.place / "archive", made.url, spark=spark, keep_days=0)
        _write(order, made, rows // 2, rows)
        made.end()
        broken = _break(made)
        order.say("auditing", rows, rows)
        known = Known(effects="onceq.booked", effects_each=EACH, abort_limit=LIMIT)
        return _outcome(order, audit(made.url, known=known, spark=spark), broken)


def _write(order: Order, made: Made, first: int, last: int) -> None:
    for some in range(first, last, CHUNK):
        order.say("making rows", some, made.rows)
        made.write(some, min(last, some + CHUNK))


def _break(made: Made) -> dict[Plant, Named]:
    """Breaks a row for each plant; returns what must be named."""
    left = made.numbers()
    wanted: dict[Plant, Named] = {}
    for plant in PLANTS:
        number = left[plant.of].pop()
        made.break_at(number, plant.do)
        wanted[plant] = (plant.guarantee, plant.names or f"order-{number}")
    return wanted


def _outcome(order: Order, found: Audited, broken: dict[Plant, Named]) -> Outcome:
    named = {(one.guarantee, one.rid) for one in found.found}
    about = {rid for _, rid in broken.values()}
    ended = sum(count for *_, count in found.days)
    missed = [plant.name for plant, wanted in broken.items() if wanted not in named]
    caught = len(broken) - len(missed)
    violations = [f"was not found: {name}" for name in missed]
    violations += [f"is sound: {one}" for one in found.found if one.rid not in about]
    is_small = order.size is Size.SMALL  # the beginning of Spark's jobs: only stated
    return Outcome(
        measures=[
            Measure(what=goals.AUDITED, reached=0 if violations else ended),
            Measure(
                what=RATE,
                reached=int(ended / found.took_s),
                goal=None if is_small else RATE_MIN,
            ),
        ],
        violations=violations,
        controls=[Control(what=FOUND, broke=caught, of=len(broken))],
        page=f"{ended:,} rows of history, {found.archived:,} of them archived, "
        f"{found.places - ended:,} rows that stand in queues and {found.effects:,} effects: "
        f"audited in {found.took_s:.0f} s. {len(broken)} violations were planted; {caught} were "
        "named, and nothing else was.\n",
    )


PART: Final = Part(
    name="audit",
    text="audits a long history, live and archived: what is broken is named, and nothing else",
    run=run,
    states=(goals.AUDITED,),
    controls={FOUND: 1.0},
    alone=True,  # it states a rate
    limits=Limits(small_s=400.0, long_s=2 * 3600.0),
)
