"""A driver of two servers, to be killed: one keeps a state, one has rows of several requests.

Arguments: URL, the repository of each, and a directory in which each has one of its name.
"""

from __future__ import annotations

import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from onceq.spark import add
from onceq.spark.session import build_session
from tests.spark.serving import make_server
from tests.spark.test_joint import by_customer
from tests.spark.test_stateful import KEEPING


def joint(repository: str) -> dict[str, Any]:
    """Return the options of a server that adds up each customer's orders in one row."""
    return {
        "batch": by_customer,
        "tables": {"totals": add("customer", "cents", into=f"{repository}.totals")},
    }


def main() -> None:
    url, keeping, adding, directory = sys.argv[1:]
    spark = build_session("child", master="local[2]")
    with ThreadPoolExecutor(2) as pool:
        for name, options in ((keeping, KEEPING), (adding, joint(adding))):
            place = Path(directory) / name
            server = make_server(name, place, **options)
            notes = place / "checkpoint"
            pool.submit(server.run, url, repository=name, spark=spark, checkpoint=notes)


if __name__ == "__main__":
    main()
