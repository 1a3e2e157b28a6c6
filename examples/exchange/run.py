"""`make exchange`: every bar of an exchange sent, kept, booked and passed on exactly once.

    python examples/exchange/run.py [--seed N] [--rate N] [--json] [...]

SEED, RATE and JSON in the environment do the same. Standard output is the report, or with JSON one
object; progress goes to stderr. Exit codes: 0 everything agrees, 1 something does not, 2 an
argument cannot be used, 130 interrupted. It ends by itself within its limit, and ends only what it
has started.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from examples.exchange.options import parse
from examples.exchange.runner import main

if __name__ == "__main__":
    sys.exit(main(parse(sys.argv[1:], os.environ)))
