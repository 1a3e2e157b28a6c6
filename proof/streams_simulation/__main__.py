"""Runs schedules, or hunts a mistake: `python -m proof.streams_simulation [--variant NAME]`."""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter

from proof.streams_simulation.variants import VARIANTS
from proof.streams_simulation.world import World


def main() -> int:
    """Run schedules of seeds; 1 if a promise is broken, or a mistake is not noticed."""
    ask = argparse.ArgumentParser(prog="python -m proof.streams_simulation", description=__doc__)
    ask.add_argument("--runs", type=int, default=100)
    ask.add_argument("--first", type=int, default=0)
    ask.add_argument("--variant", choices=sorted(VARIANTS), help="with this mistake, until noticed")
    asked = ask.parse_args()
    if asked.variant is not None:
        return _hunt(asked.variant, range(asked.first, asked.first + asked.runs))
    began, did, stable, broken = time.monotonic(), Counter[str](), 0, 0
    for seed in range(asked.first, asked.first + asked.runs):
        world = World(seed).run()
        did.update(world.did)
        stable += len(world.promises.stable)
        for promise, text in world.promises.broken.items():
            broken += 1
            sys.stdout.write(f"BROKEN {seed} {promise}: {text}\n")
            sys.stdout.flush()
    seconds = time.monotonic() - began
    done = ", ".join(f"{what} {count:,}" for what, count in sorted(did.items()))
    sys.stdout.write(f"{asked.runs} schedules, {stable:,} stable, {seconds:.1f} s: {done}\n")
    return int(broken > 0)


def _hunt(name: str, seeds: range) -> int:
    with VARIANTS[name].made():
        for seed in seeds:
            for promise, text in World(seed).run().promises.broken.items():
                sys.stdout.write(f"{name}: noticed in {seed}: {promise}: {text}\n")
                return 0
    sys.stdout.write(f"{name}: NOT NOTICED in {len(seeds)}\n")
    return 1


if __name__ == "__main__":
    sys.exit(main())
