"""The model as a part of the proof: explore each configuration, catch each broken variant."""

from __future__ import annotations

import multiprocessing
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from proof.goals import STATES
from proof.model.search import search
from proof.model.settings import SETTINGS
from proof.model.variants import VARIANTS, hunt
from proof.part import Measure, Outcome, Part, Size

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from proof.model.layout import Setting
    from proof.model.search import Found
    from proof.model.variants import Variant
    from proof.part import Order

ABREAST = 2
HEAD = """\
An abstract state machine of clients, clerk, queue manager, servers and Spark, written from the
guarantees, without the product. Every state that can be reached is visited, breadth first, up to
the limit. G1 to G8 are checked in each, and that every run without further faults comes to a good
end (G12); what lies beyond the limit is not judged. States are told apart by 64-bit fingerprints:
that one of n was taken for another has a probability of at most n²/2⁶⁵, here below {chance}.
`python -m proof.model --configuration NAME` explores one; `--variant NAME` prints how a variant
breaks what is promised.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Extent:
    """How far a size goes. faults: in one history, at most; None: those of the configuration.

    more: faults beyond those of the configuration. states: of a configuration, at most.
    """

    faults: int | None = None
    more: int = 0
    states: int


EXTENTS = {
    Size.SMALL: Extent(faults=1, states=25_000),
    Size.PROOF: Extent(states=500_000),
    Size.LONG: Extent(more=2, states=5_000_000),
}


def extended(setting: Setting, size: Size) -> Setting:
    """Return a configuration with the faults of a size."""
    extent = EXTENTS[size]
    faults = setting.faults if extent.faults is None else min(extent.faults, setting.faults)
    return replace(setting, faults=faults + extent.more)


def explore(setting: Setting, size: Size) -> Found:
    """Explore a configuration as far as a size goes."""
    return search(extended(setting, size), limit=EXTENTS[size].states)


def run(order: Order) -> Outcome:
    """Explore all, two at a time; then hunt the variants."""
    context = multiprocessing.get_context("spawn")
    total = len(SETTINGS) + len(VARIANTS)
    explored: list[Found] = []
    caught: list[Found] = []
    with ProcessPoolExecutor(ABREAST, mp_context=context) as pool:
        hunts = pool.map(hunt, VARIANTS)
        searches = pool.map(explore, SETTINGS, [order.size] * len(SETTINGS))
        for variant, found in zip(VARIANTS, hunts, strict=True):
            caught.append(found)
            order.say(f"variant {variant.name}", len(caught), total)
        for found in searches:
            explored.append(found)
            order.say(found.setting, len(caught) + len(explored), total)
    return Outcome(
        measures=list(_measures(explored, caught)),
        violations=[*_violations(explored, order.size), *_uncaught(caught)],
        page=page(explored, caught),
    )


def is_caught(variant: Variant, found: Found) -> bool:
    """Whether the guarantee that a variant breaks is the one found broken."""
    return found.broken == variant.guarantee and len(found.trace) > 0


def _measures(explored: Sequence[Found], caught: Sequence[Found]) -> Iterator[Measure]:
    yield Measure(what=STATES, reached=sum(found.states for found in explored))
    reached = sum(
        is_caught(variant, found) for variant, found in zip(VARIANTS, caught, strict=True)
    )
    yield Measure(what="broken variants of the model, caught", reached=reached, goal=len(VARIANTS))
    whole = sum(found.is_all for found in explored)
    text = f"of {len(explored)} configurations of the model, explored to their end"
    yield Measure(what=text, reached=whole)


def _violations(explored: Sequence[Found], size: Size) -> Iterator[str]:
    for found in explored:
        if found.broken is not None:
            steps = "; ".join(found.trace)
            again = f"python -m proof.model --configuration {found.setting} --size {size}"
            yield f"the model breaks {found.broken} in {found.setting}: {steps} ({again})"


def _uncaught(caught: Sequence[Found]) -> Iterator[str]:
    for variant, found in zip(VARIANTS, caught, strict=True):
        if not is_caught(variant, found):
            yield (
                f"variant {variant.name} should break {variant.guarantee} and broke {found.broken}"
                f" (python -m proof.model --variant {variant.name})"
            )


def page(explored: Sequence[Found], caught: Sequence[Found]) -> str:
    """Return the section of the report."""
    largest = max(found.states for found in explored)
    whole = sum(found.is_all for found in explored)
    lines = [
        f"{whole} of {len(explored)} configurations were explored to their end, the others up to",
        "the limit.",
        "",
        HEAD.format(chance=f"{largest**2 / 2**65 + 1e-10:.0e}"),
        "| configuration | who, and what | states | steps | depth | seconds | |",
        "| --- | --- | --- | --- | --- | --- | --- |",
    ]
    for setting, found in zip(SETTINGS, explored, strict=True):
        extent = "all" if found.is_all else "up to the limit"
        cells = f"{found.states:,} | {found.steps:,} | {found.depth} | {found.seconds:.1f}"
        lines.append(f"| {setting.name} | {setting.text} | {cells} | {extent} |")
    lines += [
        "",
        "Each of these variants breaks one rule. The search finds how that breaks a guarantee, by",
        "the shortest way, of as many steps.",
        "",
        "| variant | what was broken | in | caught by | steps |",
        "| --- | --- | --- | --- | --- |",
    ]
    for variant, found in zip(VARIANTS, caught, strict=True):
        by = found.broken or "nothing"
        cells = f"{variant.setting} | {by} | {len(found.trace)}"
        lines.append(f"| {variant.name} | {variant.text} | {cells} |")
    return "\n".join(lines) + "\n"


PART = Part(
    name="model",
    text="explore the states of an abstract client, queue manager, servers and Spark, to a limit",
    run=run,
    states=(STATES,),
)
