"""The ledger: books each bar in PostgreSQL, and passes each move on to a queue, exactly once.

    python -m examples.exchange.ledger RUN

A row for each bar, a total for each stock, the moves in the queue, and how far the stream has come:
one commit. It has nothing else to remember.
"""

from __future__ import annotations

import signal
import sys
import threading
from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, wait
from pathlib import Path
from typing import TYPE_CHECKING, Any

import onceq
from examples.exchange.data import Bar, is_move
from examples.exchange.market import (
    BARS,
    FEEDS,
    MOVED,
    REPOSITORY,
    SESSIONS,
    RunDirectory,
    Setup,
    move_of,
)
from examples.running.lifeline import hold_lifeline
from examples.running.status import say
from onceq import streams

if TYPE_CHECKING:
    from types import FrameType

    import psycopg

BOOK = """
with given as (
    select * from unnest(%s::bigint[], %s::date[], %s::text[], %s::numeric[], %s::numeric[],
                         %s::boolean[]) g (number, day, symbol, close, value, moved)
), booked as (
    insert into bar select %s, g.* from given g
)
insert into total as t
    select symbol, count(*), sum(close), sum(value) from given group by symbol order by symbol
    on conflict (symbol) do update set
        bars = t.bars + excluded.bars, close = t.close + excluded.close,
        value = t.value + excluded.value
"""


class Books:
    """Books the bars of one feed. qm: any queue manager of the repository."""

    def __init__(self, feed: str, qm: onceq.QueueManager) -> None:
        self.feed = feed
        self._qm = qm

    def book(
        self,
        came: list[streams.Message[Bar]],
        context: streams.IntoContext[psycopg.Connection[Any]],
    ) -> None:
        """Books what came, in the transaction that also says how far that is."""
        bars = [one.value for one in came]
        columns = (
            [one.number for one in came],
            [bar.day for bar in bars],
            [bar.symbol for bar in bars],
            [bar.close for bar in bars],
            [bar.value for bar in bars],
            [is_move(bar) for bar in bars],
        )
        context.connection.execute(BOOK, (*columns, self.feed))
        for bar in bars:
            if (move := move_of(bar)) is not None:
                self._qm.enqueue(MOVED, move, connection=context.connection)


def serve(setup: Setup) -> None:
    """Books both feeds, side by side, until SIGTERM."""
    with onceq.open(setup.url, repository=REPOSITORY) as qm:
        bridges = [
            streams.into(
                BARS,
                Books(feed, qm).book,
                name=f"ledger-{feed}",
                at=setup.list,
                source_session_id=SESSIONS[feed],
                url=setup.url,
                repository=REPOSITORY,
            )
            for feed in FEEDS
        ]

        def stop(_number: int = 0, _frame: FrameType | None = None) -> None:
            for bridge in bridges:
                bridge.stop()

        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGTERM, stop)
        with ThreadPoolExecutor(len(bridges)) as pool:
            running = [pool.submit(bridge.run) for bridge in bridges]
            say(ready=True)
            wait(running, return_when=FIRST_COMPLETED)
            stop()
            for one in running:
                one.result()


if __name__ == "__main__":
    hold_lifeline()
    serve(RunDirectory(Path(sys.argv[1])).read_setup())
