"""The options of a run: from arguments, else from the environment, else by default."""

from __future__ import annotations

import argparse
import dataclasses
import os
from pathlib import Path
from typing import TYPE_CHECKING

from examples.exchange.faults import KILLS
from examples.running.wheels import DATA

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """What is to be run. rate: bars a second while parts are killed. kills: of each part.

    bars: at most so many of each feed; None: all. unpaced: whether all is done again, unpaced and
    undisturbed. limit_s: for the work of each; then it ends and reports what is not done.
    """

    seed: int
    rate: int
    json: bool
    kills: int
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
    parser.add_argument("--bars", type=int, default=None, help="at most so many of each feed")
    parser.add_argument("--unpaced", action=argparse.BooleanOptionalAction, default=True)
    parser.add_argument("--spark", action=argparse.BooleanOptionalAction, default=True)
    parser.add_argument("--limit-s", type=float, default=200.0)
    parser.add_argument("--runs", type=Path, default=DATA / "exchange")
    found = vars(parser.parse_args(arguments))
    if not found["seed"].isdecimal():
        parser.error(f"the seed is a whole number, not {found['seed']!r}")
    if found["rate"] < 1 or found["kills"] < 0 or (found["bars"] is not None and found["bars"] < 1):
        parser.error("--rate and --bars are at least 1, --kills at least 0")
    found["seed"] = int(found["seed"])
    return Options(**found)
