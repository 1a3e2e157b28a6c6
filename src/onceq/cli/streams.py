"""`onceq stream`: which streams stores have, whom they wait for, and messages as lines.

What the commands do is in `streaming`, `sending` and `receiving`, which are imported when one of
them runs.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from onceq.cli.command import Invocation, command
from onceq.cli.stores import Tls

Topic = Annotated[str, typer.Argument(metavar="TOPIC", help="The stream's topic.")]


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked(Tls):
    """Which stores are asked."""

    stores: Annotated[
        str, typer.Option(help='Addresses, as "host:port host:port"; ";" between groups.')
    ]
    timeout: Annotated[
        float, typer.Option(metavar="SECONDS", min=0.1, help="How long to wait for them.")
    ] = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Named(Asked):
    """A stream, by its topic and its source's session."""

    source: Annotated[
        str, typer.Option(metavar="SESSION", help="The source's session, as 0x7e1 or 2017.")
    ]


@dataclass(frozen=True, slots=True, kw_only=True)
class Received(Named):
    """How a stream is received."""

    session: Annotated[
        str, typer.Option(metavar="SESSION", help="The receiver's: its next life goes on there.")
    ]
    count: Annotated[
        int | None, typer.Option(min=1, help="End after so many; default: Ctrl-C ends it.")
    ] = None


def list_streams(invoked: Invocation, asked: Asked) -> int:
    """List the streams that some stores know, and what of them is lost. Exit 4: none answers."""
    from onceq.cli import streaming  # noqa: PLC0415 - streams are imported when they are used

    return streaming.list_streams(invoked.output, asked)


def show(invoked: Invocation, topic: Topic, named: Named) -> int:
    """Show the receivers of a stream, how far each is, and what of the stream is lost.

    Exit 3: no store knows the stream.
    """
    from onceq.cli import streaming  # noqa: PLC0415 - streams are imported when they are used

    return streaming.show(invoked.output, topic, named)


def stores(invoked: Invocation, topic: Topic, named: Named) -> int:
    """Show what each store of a stream has. Exit 3: no store knows the stream."""
    from onceq.cli import streaming  # noqa: PLC0415 - streams are imported when they are used

    return streaming.show_stores(invoked.output, topic, named)


def deregister(
    invoked: Invocation,
    topic: Topic,
    named: Named,
    *,
    receiver: Annotated[
        str, typer.Option(help="Its name, as `onceq stream show` has it: 'session b5'.")
    ],
) -> int:
    """Have stores forget a receiver that never comes back, so that they wait for it no more.

    What it has not acknowledged may then be given up. Exit 3: no store knows it; 1: some store did
    not do it, and is to be asked again.
    """
    from onceq.cli import streaming  # noqa: PLC0415 - streams are imported when they are used

    return streaming.deregister(invoked.output, topic, named, receiver)


def send(
    invoked: Invocation,
    topic: Topic,
    file: Annotated[Path, typer.Argument(metavar="FILE", help="Lines; - is standard input.")],
    named: Named,
    *,
    listen: Annotated[
        str | None, typer.Option(help="host:port for receivers; default: they read from stores.")
    ] = None,
    accept_loss: Annotated[
        str, typer.Option(metavar="TEXT", help="Go on without what is lost, as this told it.")
    ] = "",
) -> int:
    """Send the lines of a file, and end when all are stable.

    Run again, this goes on where the stores are: a line is the message of its number, from 0. After
    a loss that was accepted it goes on with the first line that is lost, under a later number. The
    lines of standard input follow what was sent before. Exit 1: within the timeout too few stores
    answered to begin, or too few that have what was sent; 4: too few are left to send more.
    """
    from onceq.cli import sending  # noqa: PLC0415 - streams are imported when they are used

    return sending.send(invoked.output, topic, file, named, listen=listen, accept_loss=accept_loss)


def receive(invoked: Invocation, topic: Topic, received: Received) -> int:
    """Print the messages of a stream, each in a line, as they become stable; acknowledge each.

    Numbers that cannot be had are told on standard error, and so are those that were shown and are
    void since a loss was accepted; with --json also among the messages, in their place.
    """
    from onceq.cli import receiving  # noqa: PLC0415 - streams are imported when they are used

    return receiving.receive(invoked.output, topic, received)


def make_app() -> typer.Typer:
    """Returns the commands of streams."""
    app = typer.Typer(no_args_is_help=True, help="Persistent streams.")
    command(app, "list")(list_streams)
    command(app, "show")(show)
    command(app, "stores")(stores)
    command(app, "deregister")(deregister)
    command(app, "send")(send)
    command(app, "receive")(receive)
    return app
