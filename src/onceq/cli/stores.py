"""`onceq store`: run a store of streams, and look at what one has on its disk."""

from __future__ import annotations

import asyncio
import os
import signal
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Final

import msgspec
import typer

from onceq.cli.command import Invocation, command
from onceq.cli.exits import OK, VIOLATION
from onceq.cli.output import Output, hint
from onceq.errors import InvalidValue
from onceq.streams.net.address import Address, address, refuse_unless_safe
from onceq.streams.net.asker import Asker
from onceq.streams.net.tls import Certificates
from onceq.streams.store.daemon import Daemon
from onceq.streams.store.directory import initialize
from onceq.streams.store.disk_store import DiskStore
from onceq.streams.store.limits import Limits, WhenFull
from onceq.streams.store.log.entries import SEGMENT_BYTES
from onceq.streams.store.noting_store import opened
from onceq.streams.store.verifying import known
from onceq.streams.store.verifying import scrub_once as scrub_log
from onceq.streams.store.verifying import verify as verify_log

Directory = Annotated[Path, typer.Argument(metavar="DIR", help="The directory of the store.")]
MIB: Final = 1 << 20
STREAM_COLUMNS: Final = (
    *("stream", "topic", "session", "epoch"),
    *("begin", "end", "stable", "damaged"),
)
SEGMENT_COLUMNS: Final = ("segment", "size", "entries", "frames", "damaged")


@dataclass(frozen=True, slots=True, kw_only=True)
class Tls:
    """The files by which stores know each other; all of them or none."""

    tls_certificate: Annotated[Path | None, typer.Option(help="This store's certificate.")] = None
    tls_key: Annotated[Path | None, typer.Option(help="Its key.")] = None
    tls_authority: Annotated[Path | None, typer.Option(help="Who certifies the others.")] = None

    @property
    def certificates(self) -> Certificates | None:
        """The certificates; None: there are none. InvalidValue if some are missing."""
        certificate, key, authority = self.tls_certificate, self.tls_key, self.tls_authority
        if certificate is not None and key is not None and authority is not None:
            return Certificates(certificate=certificate, key=key, authority=authority)
        if (certificate, key, authority) != (None, None, None):
            raise InvalidValue(
                "--tls-certificate, --tls-key and --tls-authority are given together, or none"
            )
        return None


@dataclass(frozen=True, slots=True, kw_only=True)
class Kept:
    """How much of each stream a store keeps."""

    keep_mib: Annotated[
        int | None, typer.Option(min=1, help="MiB of each stream; default: no limit.")
    ] = None
    keep_s: Annotated[
        float | None, typer.Option(min=0, help="Seconds; what is older may go. Default: no limit.")
    ] = None
    when_full: Annotated[
        WhenFull, typer.Option(help="block: wait for receivers; overwrite: give up the oldest.")
    ] = WhenFull.BLOCK

    @property
    def limits(self) -> Limits:
        """The limits of each stream."""
        size = None if self.keep_mib is None else self.keep_mib * MIB
        return Limits(size_bytes=size, age_s=self.keep_s, when_full=self.when_full)


@dataclass(frozen=True, slots=True, kw_only=True)
class Begun:
    """Whether a new store is begun, and of which kind."""

    init: Annotated[bool, typer.Option("--init", help="Begin a new store there first.")] = False
    no_cache: Annotated[
        bool, typer.Option("--no-cache", help="With --init: one that keeps no messages.")
    ] = False

    def begin(self, directory: Path) -> None:
        """Begin it, if it is new. InvalidValue if a store that is there is to be of a kind."""
        if self.init:
            initialize(directory, os.urandom, segment_bytes=SEGMENT_BYTES, keeps=not self.no_cache)
        elif self.no_cache:
            raise InvalidValue("--no-cache is said with --init: a store stays of its kind")


def run(
    invoked: Invocation,
    directory: Directory,
    kept: Kept,
    tls: Tls,
    *,
    begun: Begun,
    listen: Annotated[str, typer.Option(help="host:port; port 0: any that is free.")],
) -> int:
    """Run a store until SIGTERM or Ctrl-C; it then commits what it took, and says so.

    It listens on this machine only, unless certificates are given.
    """
    at, certificates = address(listen), tls.certificates
    refuse_unless_safe(at, has_tls=certificates is not None)
    begun.begin(directory)
    store = opened(directory, os.urandom, kept.limits)
    if store.forgot:
        hint(f"onceq: {directory} is damaged where nobody can prove what it was: it knows nothing")
    try:
        daemon = Daemon(store, at, certificates=certificates)
        asyncio.run(_served(daemon, directory, invoked.output))
    finally:
        store.close()
    _say(invoked.output, "stopped", f"onceq: {directory} is committed and closed")
    return OK


async def _served(daemon: Daemon, directory: Path, output: Output) -> None:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)

    def ready(at: Address) -> None:
        text = f"onceq: {directory} serves at {at}; Ctrl-C stops it"
        _say(output, "ready", text, address=str(at))

    await daemon.run(ready=ready, stop=stop)


def _say(output: Output, event: str, text: str, **fields: Any) -> None:
    if output.as_json:
        output.line({"event": event, **fields})
    hint(text)


def show(invoked: Invocation, directory: Directory) -> int:
    """Show the streams that a store knows; it may be running."""
    identity, catalogue = known(directory)
    rows = [
        {
            "stream": f"{held.stream:016x}",
            "topic": held.topic,
            "session": held.session,
            "epoch": held.promised,
            "begin": held.begin,
            "end": held.end,
            "stable": held.stable,
            "damaged": len(held.damaged),
            "receivers": {one.key: held.positions.get(one.key, 0) for one in held.receivers},
        }
        for held in catalogue.streams.values()
    ]
    invoked.output.rows(STREAM_COLUMNS, rows)
    if not rows:
        hint(f"onceq: the store {identity.store} knows no stream")
    return OK


def verify(invoked: Invocation, directory: Directory) -> int:
    """Read all that a store has on its disk, and change nothing. Exit 1: something is damaged."""
    rows = [msgspec.structs.asdict(one) for one in verify_log(directory)]
    invoked.output.rows(SEGMENT_COLUMNS, rows)
    damaged = sum(row["damaged"] for row in rows)
    if damaged:
        hint(f"onceq: {damaged} place(s) are damaged: `onceq store scrub` heals what others have")
    return VIOLATION if damaged else OK


def scrub(
    invoked: Invocation,
    directory: Directory,
    tls: Tls,
    *,
    own: Annotated[str, typer.Option(help="Its address, as the lists of stores have it.")] = "",
) -> int:
    """Read all that a stopped store has, at 8 MiB a second, and heal it from the other stores.

    Exit 1: something is damaged that no other store gave.
    """
    certificates = tls.certificates
    asker = Asker(None if certificates is None else certificates.connecting())
    store = opened(directory, os.urandom)
    try:
        done = asyncio.run(_scrubbed(store, own, asker))
    finally:
        store.close()
    left = {f"{stream:016x}": numbers for stream, numbers in done.left.items()}
    invoked.output.item({"size": done.size, "healed": done.healed, "left": left})
    return VIOLATION if left else OK


async def _scrubbed(store: DiskStore, own: str, asker: Asker) -> Any:
    try:
        return await scrub_log(store, own, asker)
    finally:
        asker.close()


def make_app() -> typer.Typer:
    """Returns the commands of stores."""
    app = typer.Typer(no_args_is_help=True, help="Stores of streams.")
    command(app, "run")(run)
    command(app, "show")(show)
    command(app, "verify")(verify)
    command(app, "scrub")(scrub)
    return app
