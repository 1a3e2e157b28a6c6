"""A store of the example: `onceq store run`, which makes its directory if there is none.

python -m examples.exchange.store RUN NUMBER
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from examples.exchange.market import RunDirectory


def main(directory: RunDirectory, number: int) -> None:
    """Become the command."""
    at = directory.read_setup().stores[number - 1]
    home = directory.store(number)
    command = [sys.executable, "-m", "onceq.cli.main", "store", "run", str(home), "--listen", at]
    os.execv(sys.executable, command if home.exists() else [*command, "--init"])  # noqa: S606 - our own command


if __name__ == "__main__":
    main(RunDirectory(Path(sys.argv[1])), int(sys.argv[2]))
