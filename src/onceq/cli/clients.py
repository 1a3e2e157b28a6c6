"""`onceq client list`, `forget` and `close`: who sends, and the end of those who left."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated, Any, Final

import typer

from onceq.cli.command import Invocation, command
from onceq.cli.exits import NOT_FOUND, OK
from onceq.cli.output import hint
from onceq.model.admin_ops import ClientInfo, Forgotten

app: Final = typer.Typer(no_args_is_help=True, help="Clients: list them, forget or close one.")

COLUMNS: Final = (
    *("name", "thread", "state", "epoch", "outstanding", "replies", "waits", "last sent"),
    *("last received", "last seen"),
)
FORGOTTEN: Final = ("thread", "cancelled", "replies", "kept", "registrations", "s_rid", "r_rid")

Name = Annotated[str, typer.Argument(metavar="NAME", help="The client's name, as `list` shows it.")]
Force = Annotated[
    bool,
    typer.Option(
        "--force", help="Do it even if it is connected: cancel its requests and fence it."
    ),
]
TimeoutS = Annotated[
    float, typer.Option("--timeout", min=0.0, help="Seconds to wait for whoever holds it.")
]


def as_row(info: ClientInfo) -> dict[str, Any]:
    """Returns a client as the command line shows it."""
    return {**asdict(info), "outstanding": info.requests, "seen_at": info.seen_at}


def _for_people(row: dict[str, Any]) -> dict[str, Any]:
    return {
        **row,
        "thread": row["thread"] or None,
        "last sent": row["s_rid"],
        "last received": row["r_rid"],
        "last seen": row["seen_at"],
    }


@command(app, "list")
def list_clients(
    invoked: Invocation,
    name: Annotated[str | None, typer.Argument(metavar="[NAME]", help="Only this client.")] = None,
) -> int:
    """List the clients: how far each is, requests outstanding, replies not collected, last seen.

    `state`: a client is connected until it says disconnect(), so also when its process has ended.
    `waits` marks one that waits for a reply now.
    Exit 3 when there is no client of this name.
    """
    with invoked.open() as qm:
        rows = [as_row(info) for info in qm.clients(name)]
    invoked.output.rows(COLUMNS, rows if invoked.as_json else [_for_people(row) for row in rows])
    if name is not None and not rows:
        hint(f"onceq: no client {name!r} was ever here")
        return NOT_FOUND
    return OK


@command(app, "forget")
def forget(
    invoked: Invocation,
    name: Name,
    *,
    thread: Annotated[
        str | None,
        typer.Option(help="Only this thread of the client; '' is the thread without a name."),
    ] = None,
    force: Force = False,
    timeout_s: TimeoutS = 10.0,
) -> int:
    """Forget a client that will not return: its replies, checkpoint and registrations go.

    Refused (exit 1) while it is connected or has something outstanding; with --force its life is
    ended and its requests are cancelled. What failed and is held in error queues stays. If the
    client does connect again, it is told what it sent last, and none of its rids runs twice.
    Exit 3: there is no such client.
    """
    with invoked.open() as qm:
        gone = qm.forget(name, thread=thread, forced=force, timeout_s=timeout_s)
    return _said(invoked, name, gone)


@command(app, "close")
def close(
    invoked: Invocation,
    name: Name,
    *,
    force: Force = False,
    timeout_s: TimeoutS = 10.0,
) -> int:
    """Close a client's name for ever: as forget, and the rids of trimmed history go too.

    Nobody can connect by this name again, so nothing that it sent can run twice. There is no way
    back. Exit 3: there is no such client.
    """
    with invoked.open() as qm:
        gone = qm.close_client(name, forced=force, timeout_s=timeout_s)
    return _said(invoked, name, gone)


def _said(invoked: Invocation, name: str, gone: list[Forgotten]) -> int:
    rows = [{"name": name, **asdict(one)} for one in gone]
    if not rows:
        hint(f"onceq: no client {name!r} is here: `onceq client list` shows them")
        return NOT_FOUND
    invoked.output.rows(("name", *FORGOTTEN), rows)
    return OK
