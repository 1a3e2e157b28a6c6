"""Explores from the command line: `python -m proof.model --configuration NAME`."""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING

from proof.model.part import EXTENTS, extended, is_caught
from proof.model.search import search
from proof.model.settings import BY_NAME, SETTINGS
from proof.model.variants import VARIANT_BY_NAME, hunt
from proof.part import Size

if TYPE_CHECKING:
    from proof.model.search import Found


def main() -> int:
    """Explore what is requested; 1 if a guarantee is broken, or a variant is not caught."""
    ask = argparse.ArgumentParser(prog="python -m proof.model", description=__doc__)
    ask.add_argument("--configuration", choices=sorted(BY_NAME), help="one, not all")
    ask.add_argument("--variant", choices=sorted(VARIANT_BY_NAME), help="hunt a broken variant")
    ask.add_argument("--size", type=Size, choices=list(Size), default=Size.PROOF)
    ask.add_argument("--states", type=int, help="of a configuration, at most; else the size's")
    asked = ask.parse_args()
    if asked.variant is not None:
        return _hunt(asked.variant)
    size: Size = asked.size
    limit = asked.states or EXTENTS[size].states
    chosen = [one for one in SETTINGS if asked.configuration in (None, one.name)]
    is_broken = False
    for setting in chosen:
        found = search(extended(setting, size), limit=limit)
        _tell(found)
        is_broken = is_broken or found.broken is not None
    return int(is_broken)


def _hunt(name: str) -> int:
    """Hunt a variant and tell how it breaks what is promised."""
    variant = VARIANT_BY_NAME[name]
    sys.stdout.write(f"{variant.name}: {variant.text}\n")
    found = hunt(variant)
    _tell(found)
    return int(not is_caught(variant, found))


def _tell(found: Found) -> None:
    """Write what a search found, and the way to what is broken, one step on each line."""
    extent = "all" if found.is_all else "up to the limit"
    verdict = "nothing is broken" if found.broken is None else f"BROKEN: {found.broken}"
    sys.stdout.write(
        f"{found.setting}: {found.states:,} states, {found.steps:,} steps, depth {found.depth},"
        f" {found.seconds:.1f} s, {found.states / found.seconds:,.0f} states/s, {extent}:"
        f" {verdict}\n"
    )
    for number, line in enumerate(found.trace, 1):
        sys.stdout.write(f"{number:4} {line}\n")
    for line in found.end:
        sys.stdout.write(f"     {line}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
