"""The options of a run: from arguments, else from the environment, else by default."""

from __future__ import annotations

import argparse
import dataclasses
import os
from pathlib import Path
from typing import TYPE_CHECKING

from examples.exchange.faults import KILLS, KILLS_LEAST
from examples.running.wheels import DATA

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """What is to be run. rate: bars a second while parts are killed. kills: of each part.

    least_kills: with fewer in all, that run has failed.
    bars: at most so many of each feed; None: all. unpaced: whether all is done again, unpaced and
    undisturbed. limit_s: for the work of each; then it ends and reports what is not done.
    """

    seed: int
    rate: int
    json: bool
    kills: int
    least_kills: int
    bars: int | None
    unpaced: bool
    spark: bool
    limit_s: float
    runs: Path


def parse(arguments: Sequence[str], environment: Mapping[str, str]) -> Options:
    """Reads the command line, then the environment. SystemExit 2 on what cannot be."""
    parser = argparse.ArgumentParser(
        prog="run.py", description="Sends, books and passes on every bar of an exchange once."
    )
    given = environment.get
    parser.add_argument("--seed", default=given("SEED") or str(int.from_bytes(os.urandom(2))))
    parser.add_argument("--rate", type=int, default=int(given("RATE") or 10_000))
    parser.add_argument("--json", action="store_true", default=given("JSON", "") not in {"", "0"})
    parser.add_argument("--kills", type=int, default=KILLS, help="of each part")
    parser.add_argument(
        "--least-kills", type=int, default=KILLS_LEAST, help="in all; with fewer, exit code 1"
    )
    parser.add_argument("--bars", type=int, default=None, help="at most so many of each feed")
    parser.add_argument("--unpaced", action=argparse.BooleanOptionalAction, default=True)
    parser.add_argument("--spark", action=argparse.BooleanOptionalAction, default=True)
    parser.add_argument("--limit-s", type=float, default=200.0)
    parser.add_argument("--runs", type=Path, default=DATA / "exchange")
    found = vars(parser.parse_args(arguments))
    if not found["seed"].isdecimal():
        parser.error(f"the seed is a whole number, not {found['seed']!r}")
    least = {"rate": 1, "bars": 1, "kills": 0, "least_kills": 0}
    if any(found[name] is not None and found[name] < bound for name, bound in least.items()):
        parser.error("--rate and --bars are at least 1, --kills and --least-kills at least 0")
    found["seed"] = int(found["seed"])
    return Options(**found)
