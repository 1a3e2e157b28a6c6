"""`onceq store`: run a store of streams, and look at what one has on its disk.

What the commands do is in `storing`, which is imported when one of them runs: streams are of no
concern to all others.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from onceq.cli.command import Invocation, command
from onceq.cli.serving import Log
from onceq.errors import InvalidValue

if TYPE_CHECKING:
    from onceq.streams.net.tls import Certificates

Directory = Annotated[Path, typer.Argument(metavar="DIR", help="The directory of the store.")]


@dataclass(frozen=True, slots=True, kw_only=True)
class Tls:
    """The files by which stores know each other; all of them or none."""

    tls_certificate: Annotated[Path | None, typer.Option(help="One's own certificate.")] = None
    tls_key: Annotated[Path | None, typer.Option(help="Its key.")] = None
    tls_authority: Annotated[Path | None, typer.Option(help="Who certifies the others.")] = None

    @property
    def certificates(self) -> Certificates | None:
        """The certificates; None: there are none. InvalidValue if some are missing."""
        certificate, key, authority = self.tls_certificate, self.tls_key, self.tls_authority
        if certificate is not None and key is not None and authority is not None:
            from onceq.streams.net.tls import Certificates  # noqa: PLC0415 - when it is needed

            return Certificates(certificate=certificate, key=key, authority=authority)
        if (certificate, key, authority) != (None, None, None):
            raise InvalidValue(
                "--tls-certificate, --tls-key and --tls-authority are given together, or none"
            )
        return None


@dataclass(frozen=True, slots=True, kw_only=True)
class At(Tls):
    """Where a store listens, and what it is called."""

    listen: Annotated[str, typer.Option(help="host:port; port 0: any that is free.")]
    own: Annotated[
        str | None,
        typer.Option(help="Its address in the lists of stores; default: where it listens."),
    ] = None
    metrics: Annotated[
        str | None, typer.Option(help="host:port: /metrics for Prometheus, and /health.")
    ] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Kept:
    """How much of each stream a store keeps."""

    limit: Annotated[
        str | None, typer.Option(metavar="SIZE", help="Of each stream, as 10GiB; default: none.")
    ] = None
    age: Annotated[
        str | None, typer.Option(metavar="TIME", help="What is older may go, as 7d; default: none.")
    ] = None
    when_full: Annotated[
        str,
        typer.Option(
            metavar="block|overwrite",
            help="What receivers have not: block waits for them, overwrite gives it up.",
        ),
    ] = "block"
    state_lifetime: Annotated[
        str, typer.Option(metavar="TIME", help="A receiver not heard for so long is forgotten.")
    ] = "7d"


@dataclass(frozen=True, slots=True, kw_only=True)
class Begun:
    """Whether a new store is begun, and of which kind."""

    init: Annotated[bool, typer.Option("--init", help="Begin a new store there first.")] = False
    kind: Annotated[
        str | None,
        typer.Option(
            metavar="disk|memory|no-cache",
            help="memory: without DIR; no-cache: keeps no messages. Default: as DIR says, or disk.",
        ),
    ] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LogTo(Log):
    """Where a store logs, and when the file is rolled: by what comes first, at the next message."""

    log: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Log there; default: standard error.")
    ] = None
    roll_size: Annotated[
        str | None, typer.Option(metavar="SIZE", help="Begin a new file after so much, as 10MiB.")
    ] = None
    roll: Annotated[
        str | None, typer.Option(metavar="daily|hourly", help="Begin a new file so often.")
    ] = None


def run(
    invoked: Invocation,
    directory: Annotated[
        Path | None, typer.Argument(metavar="[DIR]", help="The directory of the store.")
    ] = None,
    *,
    kept: Kept,
    begun: Begun,
    at: At,
    log: LogTo,
) -> int:
    """Run a store until SIGTERM or Ctrl-C; it then commits what it took, and says so.

    It listens on this machine only, unless certificates are given. Exit 4: its disk failed, or the
    directory is another's, in use, or of another version.
    """
    from onceq.cli import storing  # noqa: PLC0415 - streams are imported when they are used

    settings = storing.settings_of(directory, kept, begun, at)
    return storing.run(invoked.output, settings, log)


def show(
    invoked: Invocation,
    store: Annotated[
        str, typer.Argument(metavar="DIR|ADDRESS", help="A directory, or host:port of a store.")
    ],
    tls: Tls,
) -> int:
    """Show the streams that a store knows; it may be running."""
    from onceq.cli import storing  # noqa: PLC0415 - streams are imported when they are used

    return storing.show(invoked.output, store, tls.certificates)


def verify(invoked: Invocation, directory: Directory) -> int:
    """Read all that a store has on its disk, and change nothing. Exit 1: something is damaged."""
    from onceq.cli import storing  # noqa: PLC0415 - streams are imported when they are used

    return storing.verify(invoked.output, directory)


def scrub(
    invoked: Invocation,
    directory: Directory,
    tls: Tls,
    *,
    own: Annotated[str, typer.Option(help="Its address, as the lists of stores have it.")] = "",
) -> int:
    """Read all that a stopped store has, and heal it from the other stores of its streams.

    A store that runs does so by itself, at 8 MiB a second. Exit 1: something is damaged that no
    other store gave.
    """
    from onceq.cli import storing  # noqa: PLC0415 - streams are imported when they are used

    return storing.scrub(invoked.output, directory, own, tls.certificates)


def make_app() -> typer.Typer:
    """Returns the commands of stores."""
    app = typer.Typer(no_args_is_help=True, help="Stores of streams.")
    command(app, "run")(run)
    command(app, "show")(show)
    command(app, "verify")(verify)
    command(app, "scrub")(scrub)
    return app
