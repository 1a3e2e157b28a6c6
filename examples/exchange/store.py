"""A store of the example: `onceq store run`, which makes its directory if there is none.

It ends with whoever started it.

python -m examples.exchange.store RUN NUMBER
"""

from __future__ import annotations

import sys
from pathlib import Path

from examples.exchange.market import RunDirectory
from examples.running.lifeline import hold_lifeline
from onceq.cli.main import main as command_line


def main(directory: RunDirectory, number: int) -> None:
    """Do what the command does."""
    at = directory.read_setup().stores[number - 1]
    home = directory.store(number)
    command = ["store", "run", str(home), "--listen", at]
    sys.argv[1:] = command if home.exists() else [*command, "--init"]
    command_line()


if __name__ == "__main__":
    hold_lifeline()
    main(RunDirectory(Path(sys.argv[1])), int(sys.argv[2]))
