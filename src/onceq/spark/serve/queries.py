"""Several queries that serve as one server: their names, and that they begin and end together.

Used by `onceq.spark.serve.server`. In PostgreSQL each is a Spark server of its own, so that their
claims are disjoint, and one computes while another commits.
"""

from __future__ import annotations

from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from onceq.engine.perform.stop import Stop
    from onceq.spark.serve.home import Home


def names_of(name: str, queries: int) -> list[str]:
    """Returns the registrations of a server with that many queries: the first has its name.

    So a server that is given more queries than before goes on with what it had; what fewer leave
    behind is taken over as any dead server's is.
    """
    return [name, *(f"{name}/{n}" for n in range(2, queries + 1))]


def notes_of(notes: Path, queries: int) -> list[Path]:
    """Returns the checkpoints of its queries, likewise."""
    return [notes, *(notes.with_name(f"{notes.name}-{n}") for n in range(2, queries + 1))]


def serve_all(serve: Callable[[Home], None], homes: Sequence[Home], stop: Stop) -> None:
    """Serves with each query until all end: one here, several each in a thread.

    What one of several raises ends the others as `stop` does, and is raised when they have ended.
    """
    if len(homes) == 1:
        serve(homes[0])
        return
    with ThreadPoolExecutor(len(homes), "onceq-query") as pool:
        try:
            served = [pool.submit(serve, home) for home in homes]
            _, going = wait(served, return_when=FIRST_EXCEPTION)
        except BaseException:
            stop.set()
            raise
        if going and not stop.is_set():
            stop.set()
            wait(going)
            stop.clear()
    for one in served:
        one.result()
