"""`onceq top`: queues and servers as they are now, again and again.

On a terminal the table is drawn anew in its place, and fits its width: what is last in a row is
left out first. Elsewhere, and with `--once`, it is printed once.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from typing import Annotated, Final

import typer
from rich.cells import cell_len
from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from onceq import QueueManager
from onceq.cli.command import Invocation
from onceq.cli.output import GAP, PIPE_WIDTH, duration, is_terminal, plain
from onceq.model.admin_ops import Load, QueueLoad, SessionLoad

QUEUE_COLUMNS: Final = (
    *("queue", "open", "waiting", "claimed", "back-off", "oldest", "done/s", "aborted/s"),
    *("servers", "suspect", "held"),
)
SERVER_COLUMNS: Final = ("server", "does", "for", "rid", "queue", "started")
OPEN: Final = {
    (True, True): "yes",
    (True, False): "no dequeue",
    (False, True): "no enqueue",
    (False, False): "stopped",
}
"""By whether a queue is started for enqueue, and for dequeue."""


def top(
    invoked: Invocation,
    *,
    once: Annotated[bool, typer.Option("--once", help="Print it once, and end.")] = False,
    interval_s: Annotated[
        float, typer.Option("--interval", min=0.1, help="Seconds from one look to the next.")
    ] = 2.0,
) -> None:
    """Show queues and servers as they are now, anew every two seconds, until Ctrl-C.

    done/s and aborted/s are of the last minute. `does`: runs, sleeps, looks (for work), gone (it
    has ended, and nobody has taken over), missing (the same; what it ran waits for a verdict). With
    --json each look is two lines: {"queues": [...]} and {"servers": [...]}. Where standard output
    is no terminal, it is printed once. Each look counts what waits: it costs more the more waits.
    """
    with invoked.open() as qm:
        if once or not is_terminal():
            _show(invoked, qm.load())
            return
        try:
            watch(invoked, qm, lambda: time.sleep(interval_s))
        except KeyboardInterrupt:
            return


def watch(invoked: Invocation, qm: QueueManager, wait: Callable[[], object]) -> None:
    """Shows one look after another, until it is interrupted."""
    if invoked.as_json:
        while True:
            _show(invoked, qm.load())
            wait()
    console = Console(highlight=False, markup=False, emoji=False)
    with Live(console=console, screen=False, auto_refresh=False, vertical_overflow="crop") as live:
        while True:
            load = qm.load()
            live.update(drawn(load, console.width), refresh=True)
            wait()


def _show(invoked: Invocation, load: Load) -> None:
    if invoked.as_json:
        invoked.output.line({"queues": [asdict(one) for one in load.queues]})
        invoked.output.line({"servers": [asdict(one) for one in load.servers]})
        return
    width = Console().width if is_terminal() else PIPE_WIDTH
    Console(width=width, highlight=False, markup=False, emoji=False).print(drawn(load, width))


def drawn(load: Load, width: int) -> Group:
    """Returns both tables, no wider than this many characters."""
    head = (
        f"{time.strftime('%H:%M:%S')}  {len(load.queues)} queue(s), {len(load.servers)} session(s)"
    )
    queues = [_queue_row(one) for one in load.queues]
    servers = [_server_row(one) for one in load.servers]
    return Group(
        Text(head, no_wrap=True, overflow="ellipsis"),
        *(
            _table(columns, rows, width)
            for columns, rows in (
                (QUEUE_COLUMNS, queues),
                (SERVER_COLUMNS, servers),
            )
        ),
    )


def _openness(one: QueueLoad) -> str:
    """Returns for what a queue is open. paused: nothing is dequeued, as the environment failed."""
    is_paused = one.paused_until is not None and one.dequeue_started
    return "paused" if is_paused else OPEN[one.enqueue_started, one.dequeue_started]


def _queue_row(one: QueueLoad) -> dict[str, str]:
    return {
        "queue": one.queue,
        "open": _openness(one),
        "waiting": str(one.ready),
        "claimed": str(one.claimed),
        "back-off": str(one.backing_off),
        "oldest": "-" if one.oldest_s is None else duration(max(0.0, one.oldest_s)),
        "done/s": f"{one.done_per_s:.1f}",
        "aborted/s": f"{one.aborted_per_s:.1f}",
        "servers": str(one.servers),
        "suspect": str(one.suspect),
        "held": str(one.held),
    }


def _server_row(one: SessionLoad) -> dict[str, str]:
    return {
        "server": f"{one.host} {one.pid}",
        "does": one.state,
        "for": "-" if one.for_s is None else duration(one.for_s),
        "rid": one.rid or "-",
        "queue": one.queue or " ".join(one.queues) or "-",
        "started": plain(one.started_at),
    }


def _table(columns: Sequence[str], rows: Sequence[Mapping[str, str]], width: int) -> Table:
    """Returns a table with as many columns as fit; the first one always does, cut if need be."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    left = width
    for name in columns:
        needed = max(cell_len(text) for text in (name, *(row[name] for row in rows))) + GAP
        if left < needed - GAP and table.columns:
            break
        table.add_column(name, no_wrap=True, overflow="ellipsis")
        left -= needed
    for row in rows:
        table.add_row(*(row[name] for name in columns[: len(table.columns)]))
    return table
