"""The options of a run: from arguments, else from the environment, else by default.

Used by `run.py` and by tests, which give another server.
"""

from __future__ import annotations

import argparse
import dataclasses
import os
from pathlib import Path
from typing import TYPE_CHECKING

from examples.cdnow import faults
from examples.running.wheels import DATA

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

SERVER = "examples.cdnow.spark_app"
KILLS = {faults.DRIVER: 2, faults.CLIENT: 2, faults.POSTMASTER: 2}


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """What is to be run. limit_s: for the work; then it ends and reports what is not done.

    pipeline: whether what has ended is archived, audited and reported on afterwards.
    """

    orders: Path | None
    seed: int
    json: bool
    clients: int
    kills: dict[str, int]
    limit_s: float
    runs: Path
    server: str
    pipeline: bool


def parse(arguments: Sequence[str], environment: Mapping[str, str]) -> Options:
    """Reads the command line, then the environment. SystemExit 2 on what cannot be."""
    parser = argparse.ArgumentParser(prog="run.py", description="Books every order exactly once.")
    given = environment.get
    parser.add_argument("--seed", default=given("SEED") or str(int.from_bytes(os.urandom(2))))
    parser.add_argument("--orders", type=Path, default=given("ORDERS") or None)
    parser.add_argument("--json", action="store_true", default=given("JSON", "") not in {"", "0"})
    parser.add_argument("--clients", type=int, default=8)
    for kind in faults.KINDS:
        option = f"--{kind.split()[-1]}-kills"
        parser.add_argument(option, type=int, default=KILLS[kind], dest=kind, metavar="N")
    parser.add_argument("--limit-s", type=float, default=270.0)
    parser.add_argument("--runs", type=Path, default=DATA / "run")
    parser.add_argument("--server", default=SERVER, help="the module that serves, for tests")
    parser.add_argument("--pipeline", action=argparse.BooleanOptionalAction, default=True)
    found = vars(parser.parse_args(arguments))
    if not found["seed"].isdecimal():
        parser.error(f"the seed is a whole number, not {found['seed']!r}")
    if not 1 <= found["clients"] <= 64:
        parser.error("there are 1 to 64 clients")
    return Options(
        orders=None if found["orders"] is None else Path(found["orders"]),
        seed=int(found["seed"]),
        json=found["json"],
        clients=found["clients"],
        kills={kind: max(0, found[kind]) for kind in faults.KINDS},
        limit_s=found["limit_s"],
        runs=found["runs"],
        server=found["server"],
        pipeline=found["pipeline"],
    )
