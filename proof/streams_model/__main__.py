"""Shows a schedule, runs many, or hunts a broken variant: `python -m proof.streams_model`."""

from __future__ import annotations

import argparse
import sys
import time

from proof.streams_model.hunting import hunt, run_seeds
from proof.streams_model.rules import PROMISES, VARIANT_BY_NAME
from proof.streams_model.world import World


def main() -> int:
    """Do what is requested; 1 if a promise is broken by all rules, or a variant is not caught."""
    ask = argparse.ArgumentParser(prog="python -m proof.streams_model", description=__doc__)
    ask.add_argument("--seed", type=int, help="show the schedule of this seed, step by step")
    ask.add_argument("--variant", choices=sorted(VARIANT_BY_NAME), help="without this rule")
    ask.add_argument("--runs", type=int, default=1_000, help="schedules, from --first on")
    ask.add_argument("--first", type=int, default=0)
    asked = ask.parse_args()
    if asked.seed is not None:
        return _show(asked.seed, asked.variant)
    if asked.variant is not None:
        return _hunt(asked.variant, asked.first)
    began = time.monotonic()
    tally = run_seeds((asked.first, asked.first + asked.runs))
    seconds = time.monotonic() - began
    sys.stdout.writelines(f"BROKEN {one}\n" for one in tally.broken)
    sys.stdout.write(
        f"{tally.schedules:,} schedules, {tally.recoveries:,} recoveries, {tally.stable:,} stable,"
        f" {seconds:.1f} s, {tally.schedules / seconds:,.0f}/s: {len(tally.broken)} broken\n"
    )
    done = ", ".join(f"{what} {count:,}" for what, count in sorted(tally.did.items()))
    sys.stdout.write(f"{done}\n")
    return int(bool(tally.broken))


def _show(seed: int, variant: str | None) -> int:
    world = World(seed, VARIANT_BY_NAME[variant].rules if variant else None)
    world.trace = []
    world.run()
    sys.stdout.writelines(f"{line}\n" for line in world.trace)
    for promise, text in world.promises.broken.items():
        sys.stdout.write(f"BROKEN {promise} ({PROMISES[promise]}): {text}\n")
    return int(bool(world.promises.broken))


def _hunt(name: str, first: int) -> int:
    began = time.monotonic()
    found = hunt(name, first)
    verdict = f"{found.promise}: {found.text}" if found.promise else "NOT CAUGHT"
    seconds = time.monotonic() - began
    sys.stdout.write(f"{name}: {found.schedules:,} schedules, {seconds:.1f} s: {verdict}\n")
    return int(not found.promise)


if __name__ == "__main__":
    sys.exit(main())
