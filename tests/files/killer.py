"""Runs submit or collect again and again, each time killed with -9 one step later.

`python -m tests.files.killer submit|collect URL REPOSITORY ARGUMENTS...`: prints how many runs
were killed before one came to its end. A step is the moment before, or after, anything that
lasts: a call of the database, a write, an fsync, a cut, a new name. Each run is a process of its
own, forked from this one, which has imported everything and opened nothing.
"""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

from onceq.engine.connect.connection import Link
from onceq.engine.embedded.locate import locate
from onceq.files import CollectOrder, SubmitOrder, collect, submit
from proof.harness.steps import Death

KILLS_MAX = 200
BATCH = 3


def run(steps: int, what: str, url: str, repository: str, *arguments: str) -> None:
    """One run, in the child."""
    death = Death(steps)
    death.watch(Link, "run")
    for name in ("pwrite", "fsync", "ftruncate"):
        death.watch(os, name)
    for name in ("rename", "replace", "unlink"):
        death.watch(Path, name)
    located = locate(url)
    path = Path(arguments[0])
    if what == "submit":
        submit(SubmitOrder(path=path, queue=arguments[1], rid=arguments[2]), located, repository)
    else:
        order = CollectOrder(client=arguments[1], out=path, timeout_s=60)
        collect(order, located, repository)


def main(arguments: list[str]) -> None:
    # Small batches, so that there are many steps.
    vars(sys.modules["onceq.files.submit"])["BATCH_ROWS"] = BATCH
    vars(sys.modules["onceq.files.collect"])["BATCH_REPLIES"] = BATCH
    for kills in range(KILLS_MAX):
        child = os.fork()
        if child == 0:
            run(kills + 1, *arguments)
            os._exit(0)
        _, status = os.waitpid(child, 0)
        code = os.waitstatus_to_exitcode(status)
        if code == 0:
            sys.stdout.write(f"{kills}\n")
            return
        assert code == -signal.SIGKILL, code
    raise AssertionError("it never came to its end")


if __name__ == "__main__":
    main(sys.argv[1:])
