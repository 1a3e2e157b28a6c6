"""A driver of its own, to be killed: serves once. Arguments: URL, repository, faults, master."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

from onceq.spark.session import build_session
from tests.spark.serving import make_server


def main() -> None:
    url, repository, directory, master = sys.argv[1:]
    faults = Path(directory)
    spark = build_session("child", master=master)
    gateway: Any = spark.sparkContext._gateway
    java = gateway.proc.pid
    (faults / "pids").write_text(f"{os.getpid()} {java}")
    server = make_server(repository, faults)
    server.run(url, repository=repository, spark=spark, checkpoint=faults / "checkpoint", once=True)
    sys.stdout.write(f"failures {dict(server.statistics().failures)}\n")
    spark.stop()


if __name__ == "__main__":
    main()
