"""Native servers and Spark decode requests alike: taken as the same value, or refused alike.

Types are invented, and bodies for them, of the type or with something wrong. Each goes to the
native decoder, to Spark's function for a request, and into the column that Arrow batches and
DataFrames have, which goes to Java and back. The control: a decoder that takes text for numbers
everywhere must be told from ours. A violation names the seed of its type: `tried(seed)`.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from onceq.model.code_pages import JSON, JSON_OF_TEXTS
from onceq.model.queue import Queue
from onceq.spark.arrow import pa
from onceq.spark.serve.incoming import Decoder
from onceq.spark.session import build_session
from proof import goals
from proof.decoding.forms import Accepted, Body, columns, each, native, same
from proof.decoding.invented import Invented, invent
from proof.part import Control, Limits, Measure, Outcome, Part, Size

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from onceq.spark.arrow import RecordBatch
    from proof.decoding.forms import Fate
    from proof.part import Order

TYPES: Final = {Size.SMALL: 60, Size.PROOF: 420, Size.LONG: 8_000}
ON_JAVA: Final = {Size.SMALL: 4, Size.PROOF: 420, Size.LONG: 2_000}
"""For this many of the first types, the column goes to Java and back."""
BODIES: Final = 50
TAKEN: Final = "of them, requests that were taken"
REFUSED: Final = "of them, refused alike"
JAVA: Final = "of those taken, the same after Java"
LAX: Final = "a type whose text is taken for numbers"
SAID: Final = 20


@dataclass(slots=True)
class Tried:
    """The result for some types. lax: for how many a lax decoder was told from ours."""

    taken: int = 0
    refused: int = 0
    on_java: int = 0
    lax: int = 0
    wrong: list[str] = field(default_factory=list[str])


def run(order: Order) -> Outcome:
    """Invents types and bodies, and compares what becomes of them."""
    types, on_java = TYPES[order.size], ON_JAVA[order.size]
    spark = build_session("onceq decoding", master="local[2]")
    found = Tried()
    for number in range(types):
        order.say("decoding", number, types)
        tried(order.seed * 1_000_003 + number, found, spark if number < on_java else None)
    return Outcome(
        measures=[
            Measure(what=goals.DECODED, reached=found.taken + found.refused),
            Measure(what=TAKEN, reached=found.taken, goal=1),
            Measure(what=REFUSED, reached=found.refused, goal=1),
            Measure(what=JAVA, reached=found.on_java, goal=1),
        ],
        violations=found.wrong[:SAID],
        controls=[Control(what=LAX, broke=found.lax, of=types)],
        page=f"{types:,} types, {BODIES} bodies each: {found.taken:,} bodies were taken by every "
        f"server as the same value, {found.on_java:,} of them through Java and back; "
        f"{found.refused:,} were refused by every server with the same words. A decoder that takes "
        f"text for numbers differed on {found.lax:,} of the types.\n",
    )


def tried(seed: int, found: Tried | None = None, spark: SparkSession | None = None) -> Tried:
    """Tries one type, and adds to what was found."""
    found = found or Tried()
    chance = random.Random(seed)
    invented = invent(chance)
    queue: Queue[Any, Any] = Queue("q", invented.kind, bytes)
    bodies = [_body(chance, invented) for _ in range(BODIES)]
    fates = native(queue, bodies)
    batch, places, refused = columns(queue, bodies)
    wrong = list(_differing("each", bodies, fates, each(queue, bodies)))
    at_columns: list[Fate] = [refused.get(place, Accepted(None)) for place in range(len(bodies))]
    blank: list[Fate] = [Accepted(None) if isinstance(one, Accepted) else one for one in fates]
    wrong += _differing("a column", bodies, blank, at_columns)
    if "request" in batch.schema.names:
        wrong += _columns_differing(bodies, fates, places, batch)
        if spark is not None and batch.num_rows:
            there = _through_java(spark, Decoder(queue), batch)
            wrong += _columns_differing(bodies, fates, places, there)
            found.on_java += batch.num_rows
    found.wrong += [f"type {seed}: {one}" for one in wrong]
    taken = sum(isinstance(one, Accepted) for one in fates)
    found.taken += taken
    found.refused += len(fates) - taken
    lax = native(queue, [(body, JSON_OF_TEXTS) for body, _ in bodies])
    found.lax += any(True for _ in _differing("lax", bodies, fates, lax))
    return found


def _body(chance: random.Random, invented: Invented) -> Body:
    texts = chance.random() < 0.2
    return invented.body(texts), JSON_OF_TEXTS if texts else JSON


def _differing(
    form: str, bodies: list[Body], fates: list[Fate], others: list[Fate]
) -> Iterable[str]:
    for body, one, other in zip(bodies, fates, others, strict=True):
        if repr(one) != repr(other):  # not by ==, as one NaN is not another
            yield f"{form}: {body}: {one}, but {other}"


def _columns_differing(
    bodies: list[Body], fates: list[Fate], places: list[int], batch: RecordBatch
) -> Iterable[str]:
    for place, column in zip(places, batch["request"].to_pylist(), strict=True):
        fate = fates[place]
        if not isinstance(fate, Accepted) or not same(fate.value, column):
            yield f"column: {bodies[place]}: {fate}, but {column}"


def _passed(batches: Iterator[RecordBatch]) -> Iterator[RecordBatch]:
    yield from batches


def _through_java(spark: SparkSession, decoder: Decoder, batch: RecordBatch) -> RecordBatch:
    """Returns a batch as a function for Arrow batches gets it, and as its answers come back."""
    known: Any = spark
    frame = known.createDataFrame(pa.Table.from_batches([batch]), decoder.spark_schema).coalesce(1)
    passed = frame.mapInArrow(_passed, decoder.spark_schema).toArrow()
    return passed.combine_chunks().to_batches()[0]


PART: Final = Part(
    name="decoding",
    text="decodes invented requests by every server: taken as the same, or refused alike",
    run=run,
    states=(goals.DECODED,),
    controls={LAX: 0.03},
    on_spark=True,
    limits=Limits(small_s=180.0, proof_s=900.0, long_s=2 * 3600.0),
)
