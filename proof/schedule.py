"""Runs parts, two at a time if they allow it, and reports each as it goes on and ends.

Invariant: when it returns or raises, no part is running.
"""

from __future__ import annotations

import os
import select
from typing import TYPE_CHECKING, Protocol

from proof.running import Result, Running

if TYPE_CHECKING:
    from collections.abc import Sequence

    from proof.part import Part
    from proof.running import Terms

ABREAST = min(2, os.cpu_count() or 1)
TICK_S = 0.2


class Told(Protocol):
    """Is told of a run."""

    def began(self, part: Part) -> None:
        """A part has been started."""

    def went_on(self, running: Running) -> None:
        """A part may have reported something; called several times a second."""

    def ended(self, result: Result) -> None:
        """A part has ended, and nothing of it is left."""


def run_all(parts: Sequence[Part], terms: Terms, told: Told) -> list[Result]:
    """Run the parts; return what became of each, in their order.

    Those on Spark begin first, one after the other, then those that may take longest, so that
    two cores end together; parts that must be alone come last.
    """

    def rank(part: Part) -> tuple[bool, bool, float]:
        return part.alone, not part.on_spark, -part.limits.of(terms.size)

    waiting = sorted(parts, key=rank)
    results: list[Result] = []
    running: list[Running] = []
    try:
        while waiting or running:
            while (part := _next(waiting, running)) is not None:
                waiting.remove(part)
                running.append(Running(part, terms))
                told.began(part)
            select.select([one.answers for one in running], [], [], TICK_S)
            results += _step(running, told)
    finally:
        for one in running:
            one.close()
    return sorted(results, key=lambda result: parts.index(result.part))


def _next(waiting: Sequence[Part], running: Sequence[Running]) -> Part | None:
    """Returns the part to start now: the first that may run beside the running ones."""
    if len(running) >= ABREAST:
        return None
    spark = any(one.part.on_spark for one in running)
    for part in waiting:
        if part.alone:
            return None if running else part
        if not (spark and part.on_spark):
            return part
    return None


def _step(running: list[Running], told: Told) -> list[Result]:
    """Let each report its progress; take out those that have ended."""
    results: list[Result] = []
    for one in tuple(running):
        result = one.step()
        told.went_on(one)
        if result is not None:
            running.remove(one)
            one.close()
            results.append(result)
            told.ended(result)
    return results
