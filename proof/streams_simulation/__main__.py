"""Runs schedules, or hunts a mistake: `python -m proof.streams_simulation [--variant NAME]`."""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from pathlib import Path

from proof.streams_simulation.hunting import Run, hunt, tally
from proof.streams_simulation.variants import VARIANTS


def main() -> int:
    """Run schedules of seeds; 1 if a promise is broken, or a mistake is not noticed."""
    ask = argparse.ArgumentParser(prog="python -m proof.streams_simulation", description=__doc__)
    ask.add_argument("--runs", type=int, default=100)
    ask.add_argument("--first", type=int, default=0)
    ask.add_argument("--disks", action="store_true", help="stores have disks, which fail")
    ask.add_argument("--variant", choices=sorted(VARIANTS), help="with this mistake, until noticed")
    asked = ask.parse_args()
    seeds = range(asked.first, asked.first + asked.runs)
    with tempfile.TemporaryDirectory() as home:
        if asked.variant is not None:
            return _hunt(asked.variant, seeds, Path(home))
        return _run(Run(seeds=seeds, on_disks=asked.disks, home=Path(home)))


def _run(run: Run) -> int:
    began = time.monotonic()
    made = tally(run)
    seconds = time.monotonic() - began
    for text in made.broken:
        sys.stdout.write(f"BROKEN {text}\n")
    done = ", ".join(f"{what} {count:,}" for what, count in sorted(made.did.items()))
    counted = f"{made.schedules} schedules, {made.stable:,} stable"
    sys.stdout.write(f"{counted}, {seconds:.1f} s: {done}\n")
    return int(bool(made.broken))


def _hunt(name: str, seeds: range, home: Path) -> int:
    found = hunt(name, seeds, home)
    for promise, text in found.broken.items():
        seed = seeds[found.schedules - 1]
        sys.stdout.write(f"{name}: noticed in {seed}: {promise}: {text}\n")
        return 0
    sys.stdout.write(f"{name}: NOT NOTICED in {len(seeds)}\n")
    return 1


if __name__ == "__main__":
    sys.exit(main())
