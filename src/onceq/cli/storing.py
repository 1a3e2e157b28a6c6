"""What `onceq store` does: settings from options, and a store that runs or is looked at."""

from __future__ import annotations

import asyncio
import contextlib
import enum
import os
import socket
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

import msgspec

from onceq.cli import listing
from onceq.cli.exits import OK, VIOLATION
from onceq.cli.listing import Told
from onceq.cli.output import Output, hint
from onceq.cli.units import seconds, session_text, size_bytes
from onceq.errors import InvalidValue
from onceq.server.log_lines import write_log
from onceq.streams.errors import StoreRefused
from onceq.streams.model import asks
from onceq.streams.net.address import address, refuse_unless_safe
from onceq.streams.net.asking import listed
from onceq.streams.store import verifying
from onceq.streams.store.limits import Limits, WhenFull
from onceq.streams.store.listing import listed as as_listed
from onceq.streams.store.noting_store import opened
from onceq.streams.store.rolling import LogFile, Roll, RollingHandler
from onceq.streams.store.running import RunningStore, StoreKind, StoreSettings, run_store

if TYPE_CHECKING:
    from collections.abc import Generator, Sequence

    from onceq.cli.stores import At, Begun, Kept, LogTo
    from onceq.streams.model import listings
    from onceq.streams.net.tls import Certificates
    from onceq.streams.store.disk_store import DiskStore

STREAM_COLUMNS: Final = (
    *("stream", "topic", "session", "epoch"),
    *("begin", "end", "stable", "damaged"),
)
SEGMENT_COLUMNS: Final = ("segment", "size", "entries", "frames", "damaged")
ANSWER_S: Final = 5.0

Word = TypeVar("Word", bound=enum.StrEnum)


def one_of(words: type[Word], text: str, option: str) -> Word:
    """Returns the word that a text is. InvalidValue if it is none of them; option: whose it is."""
    for word in words:
        if text == word:
            return word
    raise InvalidValue(f"{option} {text!r}: give one of {', '.join(word.value for word in words)}")


def settings_of(directory: Path | None, kept: Kept, begun: Begun, at: At) -> StoreSettings:
    """Returns how a store is to be run. InvalidValue."""
    may_keep = Limits(
        size_bytes=None if kept.limit is None else size_bytes(kept.limit, "--limit"),
        age_s=None if kept.age is None else float(seconds(kept.age, "--age")),
        when_full=one_of(WhenFull, kept.when_full, "--when-full"),
        state_lifetime_s=float(seconds(kept.state_lifetime, "--state-lifetime")),
    )
    return StoreSettings(
        listen=at.listen,
        directory=directory,
        kind=None if begun.kind is None else one_of(StoreKind, begun.kind, "--kind"),
        init=begun.init,
        own=at.own,
        may_keep=may_keep,
        certificates=at.certificates,
        metrics=at.metrics,
    )


def run(output: Output, settings: StoreSettings, log: LogTo) -> int:
    """Runs a store until it is told to stop."""
    settings.checked()
    begin_log(log)
    if settings.init:
        _refuse_taken(settings)
    name = settings.directory or "a memory store"

    def ready(running: RunningStore) -> None:
        if running.forgot:
            hint(f"onceq: {name} is damaged where nobody can prove what it was: it knows nothing")
        text = f"onceq: {name} serves at {running.address}; Ctrl-C stops it"
        output.event("ready", text, address=running.address, metrics=running.metrics)

    run_store(settings, ready=ready)
    output.event("stopped", f"onceq: {name} is committed and closed")
    return OK


def _refuse_taken(settings: StoreSettings) -> None:
    """Raises StoreRefused if nobody can listen where a new store is to: nothing is begun then.

    InvalidValue for certificates that cannot be read.
    """
    if settings.certificates is not None:
        settings.certificates.listening()
    for one in settings.checked():
        if one is None:
            continue
        try:
            with socket.create_server((one.host, one.port), family=_family(one.host)):
                pass
        except OSError as error:
            raise StoreRefused(
                f"the store cannot listen at {one}: {error.strerror}; give another address."
                f" {settings.directory} is as it was"
            ) from error


def _family(host: str) -> socket.AddressFamily:
    return socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)[0][0]


def begin_log(log: LogTo) -> None:
    """Makes this process log as it was told. InvalidValue if there is no file to be rolled."""
    if log.log is None:
        if log.roll is not None or log.roll_size is not None:
            raise InvalidValue("--roll and --roll-size are said with --log: a file is rolled")
        log.begin()
        return
    file = LogFile(
        path=log.log,
        size_bytes=None if log.roll_size is None else size_bytes(log.roll_size, "--roll-size"),
        roll=None if log.roll is None else one_of(Roll, log.roll, "--roll"),
    )
    try:
        handler = RollingHandler(file)
    except OSError as error:
        raise InvalidValue(f"--log {log.log}: {error.strerror}: give a file to log to") from error
    write_log(log.log_format, log.log_level, handler)


@contextlib.contextmanager
def _looked_at(directory: Path) -> Generator[None]:
    """Raises StoreRefused for a directory that cannot be read, or is none."""
    try:
        yield
    except OSError as error:
        raise StoreRefused(
            f"{directory} cannot be read: {error.strerror}: give the directory of a store"
        ) from error


def show(output: Output, store: str, certificates: Certificates | None) -> int:
    """Shows what a store knows: by its directory, or as it answers."""
    found, told, name = _known(store, certificates)
    rows = [row_of(one, told.get((store, one.stream))) for one in found]
    output.rows(STREAM_COLUMNS, rows)
    for row in rows:
        listing.tell_kept(output, f"{row['topic']} of session {row['session']}", row)
    if not found:
        hint(f"onceq: the store {name} knows no stream")
    return OK


def _known(
    store: str, certificates: Certificates | None
) -> tuple[Sequence[listings.Listed], Told, str]:
    """Returns the streams that a store knows, what it tells receivers of them, and its name."""
    if not Path(store).exists():
        try:
            at = address(store)
        except InvalidValue:
            pass  # it is a directory that is not there, as which it is refused
        else:
            refuse_unless_safe(at, has_tls=certificates is not None)
            return *asyncio.run(_asked(store, certificates)), store
    with _looked_at(Path(store)):
        identity, catalogue = verifying.known(Path(store))
    found = [as_listed(held) for held in catalogue.streams.values()]
    answers = (catalogue.learn(listing.learning(one)) for one in found)
    told = {(store, one.stream): one for one in answers if isinstance(one, asks.Information)}
    return found, told, identity.store


async def _asked(
    store: str, certificates: Certificates | None
) -> tuple[Sequence[listings.Listed], Told]:
    with listing.asker_of(certificates) as asker:
        found = await listed(asker, store, ANSWER_S)
        if found is None:
            raise StoreRefused(f"no store answers at {store}: give the directory or address of one")
        return found, await listing.told_by(asker, {store: found}, ANSWER_S)


def row_of(one: listings.Listed, told: asks.Information | None) -> dict[str, Any]:
    """Returns a stream as a row. told: to receivers."""
    return {
        "stream": f"{one.stream:016x}",
        "topic": one.topic,
        "session": session_text(one.session),
        "epoch": one.epoch,
        "begin": one.begin,
        "end": one.end,
        "stable": one.stable,
        "damaged": one.damaged,
        "stores": [own.text() for own in one.lists],
        **listing.kept(told),
        "receivers": [
            {
                **msgspec.structs.asdict(receiver),
                "session": session_text(receiver.session),
                "lag": max(0, one.stable - receiver.below),
            }
            for receiver in one.receivers
        ],
    }


def verify(output: Output, directory: Path) -> int:
    """Reads all that a store has on its disk."""
    with _looked_at(directory):
        rows = [msgspec.structs.asdict(one) for one in verifying.verify(directory)]
    output.rows(SEGMENT_COLUMNS, rows)
    damaged = sum(row["damaged"] for row in rows)
    if damaged:
        hint(f"onceq: {damaged} place(s) are damaged: `onceq store scrub` heals what others have")
    return VIOLATION if damaged else OK


def scrub(output: Output, directory: Path, own: str, certificates: Certificates | None) -> int:
    """Reads all that a stopped store has, and heals it from others."""
    if own:
        address(own)
    with _looked_at(directory):
        store = opened(directory, os.urandom)
    try:
        done = asyncio.run(_scrubbed(store, own, certificates))
    finally:
        store.close()
    left = {f"{stream:016x}": numbers for stream, numbers in done.left.items()}
    output.item({"size": done.size, "healed": done.healed, "left": left})
    return VIOLATION if left else OK


async def _scrubbed(
    store: DiskStore, own: str, certificates: Certificates | None
) -> verifying.Scrubbed:
    with listing.asker_of(certificates) as asker:
        return await verifying.scrub_once(store, own, asker)
