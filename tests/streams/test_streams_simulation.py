"""What ships of sources, receivers and stores, over a network that fails: nothing promised breaks.

Mistakes in what ships must show, so that it is seen that the judge would notice.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import pytest

from proof.streams_simulation.variants import VARIANTS
from proof.streams_simulation.world import World

if TYPE_CHECKING:
    from collections.abc import Iterable

SEEDS = (*range(40), 47, 268)
"""In the last two a receiver is told of what was given up, and of what was acknowledged."""


def broken(seeds: Iterable[int]) -> dict[str, str]:
    """What the first of some schedules breaks that breaks anything."""
    for seed in seeds:
        found = World(seed).run().promises.broken
        if found:
            return {name: f"seed {seed}: {text}" for name, text in found.items()}
    return {}


def test_no_promise_is_broken() -> None:
    did, stable = Counter[str](), 0
    for seed in SEEDS:
        world = World(seed).run()
        assert world.promises.broken == {}, seed
        did.update(world.did)
        stable += len(world.promises.stable)
    assert stable > 20 * len(SEEDS)
    for what in (
        "recoveries",
        "stores killed",
        "stores wiped",
        "sources killed",
        "sources that sent with a store down",
        "sources that were succeeded",
        "wires cut",
        "partitions",
        "lists changed",
        "numbers given up",
        "losses told to receivers: acknowledged",
        "losses told to receivers: reclaimed",
        "losses told to receivers: trimmed",
        "numbers overwritten",
        "numbers trimmed",
        "receivers killed",
        "receivers rolled back",
    ):
        assert did[what] > 0, what


def test_a_seed_is_always_the_same_schedule() -> None:
    one, other = World(3).run(), World(3).run()
    assert one.promises.stable == other.promises.stable
    assert one.did == other.did


UNSEEN = {
    "answers-of-an-epoch",
    "change-that-can-begin",
    "copies-end",
    "cut",
    "given-up-told",
    "one-admission",
    "registered-at-a-set",
    "registered-in-an-epoch",
    "told-late",
    "trimmed-by-a-set",
}
"""Mistakes that no schedule notices, as far as they were hunted: what the simulation cannot see."""


def test_no_other_mistake_goes_unnoticed() -> None:
    assert {name for name, variant in VARIANTS.items() if not variant.within} == UNSEEN


@pytest.mark.parametrize("name", sorted(VARIANTS.keys() - UNSEEN))
def test_a_mistake_is_noticed(name: str) -> None:
    variant = VARIANTS[name]
    with variant.made():
        assert broken(range(variant.within)), variant.text
