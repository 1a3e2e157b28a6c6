"""`make run`: every order booked exactly once, while driver, clients and database are killed.

    python examples/cdnow/run.py [--seed N] [--orders FILE.csv] [--json] [...]

SEED, ORDERS and JSON in the environment do the same. Standard output is the report, or with JSON
one object; progress goes to stderr. Exit codes: 0 everything agrees, 1 something does not, 2 the
orders or an argument cannot be used, 130 interrupted. It ends by itself within its limit, and ends
only what it has started.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from examples.cdnow.options import parse
from examples.cdnow.runner import main

if __name__ == "__main__":
    sys.exit(main(parse(sys.argv[1:], os.environ)))
