"""Repeats a batch of inputs: `python -m proof.streams_fuzz SEED`."""

from __future__ import annotations

import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from proof.streams_fuzz.part import Verdicts, batch
from proof.streams_simulation.disk_nodes import identified


def main() -> int:
    """Run the batch of a seed; 1 if something is wrong."""
    made = Verdicts()
    with TemporaryDirectory() as home:
        batch(int(sys.argv[1]), identified(Path(home) / "store", keeps=True), made)
    sys.stdout.write("\n".join(made.wrong) + f"\n{made.tried.total()} inputs\n")
    return int(bool(made.wrong))


if __name__ == "__main__":
    sys.exit(main())
