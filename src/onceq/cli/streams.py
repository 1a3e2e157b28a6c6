"""`onceq stream`: which streams stores have, whom they wait for, messages as lines, and bridges.

What the commands do is in `streaming`, `sending`, `receiving` and `bridging`, which are imported
when one of them runs.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Final

import typer

from onceq.cli.command import Invocation, command
from onceq.cli.serving import Log
from onceq.cli.stores import Tls
from onceq.cli.units import topic_of

Topic = Annotated[str, typer.Argument(metavar="TOPIC", help="The stream's topic.")]
STORES_HELP: Final = 'Addresses, as "host:port host:port"; ";" between groups.'


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked(Tls):
    """Which stores are asked."""

    stores: Annotated[str, typer.Option(help=STORES_HELP)]
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
class Sent(Named):
    """How a life of a source begins. timeout: without a silent store it takes up to 20 s."""

    timeout: Annotated[
        float, typer.Option(metavar="SECONDS", min=0.1, help="How long to wait until it begins.")
    ] = 30.0

    listen: Annotated[
        str | None, typer.Option(help="host:port for receivers; default: they read from stores.")
    ] = None
    accept_loss: Annotated[
        str, typer.Option(metavar="TEXT", help="Go on without what is lost, as this told it.")
    ] = ""
    create: Annotated[
        str,
        typer.Option(
            metavar="all|quorum", help="How many stores must have noted a stream that is new."
        ),
    ] = "all"


@dataclass(frozen=True, slots=True, kw_only=True)
class Received(Named):
    """How a stream is received. timeout: one that was lost with its machine is in use for 30 s."""

    timeout: Annotated[
        float,
        typer.Option(metavar="SECONDS", min=0.1, help="How long to wait until it is registered."),
    ] = 60.0

    session: Annotated[
        str, typer.Option(metavar="SESSION", help="The receiver's: its next life goes on there.")
    ]
    count: Annotated[
        int | None, typer.Option(min=1, help="End after so many; default: Ctrl-C ends it.")
    ] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Relayed(Tls):
    """How a queue is relayed."""

    stores: Annotated[str, typer.Option(help=STORES_HELP)]
    source: Annotated[
        str, typer.Option(metavar="SESSION", help="The relay's as a source, and nobody else's.")
    ]
    name: Annotated[
        str, typer.Option(help="Of the relay: its next life goes on there, and fences this one.")
    ]
    listen: Annotated[
        str | None, typer.Option(help="host:port for receivers; default: they read from stores.")
    ] = None
    batch: Annotated[
        int, typer.Option(min=1, help="Most requests whose numbers are planned at once.")
    ] = 1_000
    accept_loss: Annotated[
        str, typer.Option(metavar="TEXT", help="Go on without what is lost, as the log told it.")
    ] = ""


def list_streams(invoked: Invocation, asked: Asked) -> int:
    """List the streams that some stores know, and what of them is lost. Exit 4: none answers."""
    from onceq.cli import streaming  # noqa: PLC0415 - streams are imported when they are used

    return streaming.list_streams(invoked.output, asked)


def show(invoked: Invocation, topic: Topic, named: Named) -> int:
    """Show the receivers of a stream, how far each is, and what of the stream is lost.

    Exit 3: no store knows the stream.
    """
    from onceq.cli import streaming  # noqa: PLC0415 - streams are imported when they are used

    return streaming.show(invoked.output, topic_of(topic), named)


def stores(invoked: Invocation, topic: Topic, named: Named) -> int:
    """Show what each store of a stream has. Exit 3: no store knows the stream."""
    from onceq.cli import streaming  # noqa: PLC0415 - streams are imported when they are used

    return streaming.show_stores(invoked.output, topic_of(topic), named)


def deregister(
    invoked: Invocation,
    topic: Topic,
    named: Named,
    *,
    receiver: Annotated[
        str | None,
        typer.Option(
            help="Its name, as `onceq stream show` has it: 'session b5'; or a RegID: 'regid 4'."
        ),
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask for the topic again.")] = False,
) -> int:
    """Have stores forget a receiver that never comes back, or without --receiver the whole stream.

    What a receiver has not acknowledged may then be given up. A stream is deleted for ever, with
    all that was sent, and its source begins anew; refused (exit 4) while the source is live, or so
    few stores answer that it might come to nothing. Exit 3: no store knows it; 1: some store did
    not do it, and is to be asked again.
    """
    from onceq.cli import streaming  # noqa: PLC0415 - streams are imported when they are used

    if receiver is None:
        return streaming.deregister_stream(invoked.output, topic_of(topic), named, yes=yes)
    return streaming.deregister(invoked.output, topic_of(topic), named, receiver)


def send(
    invoked: Invocation,
    topic: Topic,
    file: Annotated[Path, typer.Argument(metavar="FILE", help="Lines; - is standard input.")],
    sent: Sent,
) -> int:
    """Send the lines of a file, and end when all are stable.

    Run again, this goes on where the stores are: a line is the message of its number, from 0, so
    that a file with a line of more than 1,048,528 bytes is refused before anything is sent, and so
    is what is no regular file. After a loss that was accepted it goes on with the first line that
    is lost, under a later number. The lines of standard input follow what was sent before, as they
    come: run again, all that come are sent. Exit 1: within the timeout too few stores answered to
    begin, or too few that have what was sent; 4: too few are left to send more.
    """
    from onceq.cli import sending  # noqa: PLC0415 - streams are imported when they are used

    return sending.send(invoked.output, topic_of(topic), file, sent)


def receive(invoked: Invocation, topic: Topic, received: Received) -> int:
    """Print the messages of a stream, each in a line, as they become stable; acknowledge each.

    Numbers that cannot be had are told on standard error, and so are those that were shown and are
    void since a loss was accepted; with --json also among the messages, in their place. So are the
    stores for which it waits until it is registered, and why. Exit 1: within the timeout it was
    not; 4: another one is this receiver, or the stream was deregistered.
    """
    from onceq.cli import receiving  # noqa: PLC0415 - streams are imported when they are used

    return receiving.receive(invoked.output, topic_of(topic), received)


def into(
    invoked: Invocation,
    bridge: Annotated[
        str,
        typer.Argument(metavar="MODULE:ATTRIBUTE", help="The bridge, for example app:ledger."),
    ],
    log: Log,
) -> int:
    """Run a bridge into a database, made by `streams.into`, until SIGTERM or Ctrl-C.

    Effects and position are in the repository that it was made for, or else in that of the command
    line. Exit 1: a later life of its name has taken over; 4: the database cannot be reached, or
    stores have lost what was not taken, or have another stream.
    """
    from onceq.cli import bridging  # noqa: PLC0415 - streams are imported when they are used

    return bridging.into(invoked, bridge, log)


def relay(
    invoked: Invocation,
    queue: Annotated[str, typer.Argument(metavar="QUEUE", help="Whose requests are sent.")],
    topic: Topic,
    relayed: Relayed,
    *,
    log: Log,
) -> int:
    """Send what is in a queue as messages of a topic, each exactly once, until SIGTERM or Ctrl-C.

    It takes requests that owe no reply; they end when their messages are stable. Exit 1: a later
    life of its name has taken over, or the name is another queue's; 3: there is no such queue; 4:
    the database cannot be reached, the stores have another stream, or its session is another
    source's.
    """
    from onceq.cli import bridging  # noqa: PLC0415 - streams are imported when they are used

    return bridging.relay(invoked, queue, topic, relayed, log=log)


def make_app() -> typer.Typer:
    """Returns the commands of streams."""
    app = typer.Typer(no_args_is_help=True, help="Persistent streams.")
    command(app, "list")(list_streams)
    command(app, "show")(show)
    command(app, "stores")(stores)
    command(app, "deregister")(deregister)
    command(app, "send")(send)
    command(app, "receive")(receive)
    command(app, "into")(into)
    command(app, "relay")(relay)
    return app
