"""What `onceq stream` does: it asks stores, sends lines to them, and prints what comes."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
import secrets
import signal
import stat
import sys
import time
from collections.abc import AsyncGenerator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from onceq.cli.exits import NOT_FOUND, OK, VIOLATION
from onceq.cli.output import Output, hint, plain
from onceq.errors import InvalidValue
from onceq.streams.errors import FlightFull, NotRegistered
from onceq.streams.model import listings
from onceq.streams.model.options import ACTIVITY_MS
from onceq.streams.model.quorum import StoreList, listed
from onceq.streams.net.address import address
from onceq.streams.net.asker import Asker
from onceq.streams.net.asking import Deregistered, deregistered, listed_all
from onceq.streams.receiver.async_receiver import AsyncReceiver
from onceq.streams.receiver.ops import Message, Shown
from onceq.streams.receiver.placing import Who
from onceq.streams.source.async_source import AsyncSource
from onceq.streams.source.epochs import SourceLife
from onceq.streams.source.options import core_of

if TYPE_CHECKING:
    from onceq.cli.streams import Asked, Named, Received

LIST_COLUMNS: Final = (
    "topic",
    "session",
    "stream",
    "epoch",
    "end",
    "stable",
    "receivers",
    "stores",
)
RECEIVER_COLUMNS: Final = ("receiver", "below", "lag", "stores")
STORE_COLUMNS: Final = (
    *("store", "epoch", "admitted", "begin", "end", "stable", "damaged", "receivers"),
)
DEREGISTERED_COLUMNS: Final = ("store", "text")
FLIGHT: Final = 1_000
LINE_BYTES_MAX: Final = 1 << 20
LIFE_BITS: Final = 63


def session_of(text: str, option: str) -> int:
    """Returns a session: a number of 64 bits, as 2017 or 0x7e1. InvalidValue for another text."""
    try:
        number = int(text, 0)
    except ValueError:
        number = -1
    if not 0 <= number < 1 << 64:
        raise InvalidValue(f"{option} {text!r}: give a number of 64 bits, as 2017 or 0x7e1")
    return number


@contextlib.asynccontextmanager
async def _asking(asked: Asked) -> AsyncGenerator[tuple[Asker, StoreList]]:
    """Gives who asks stores, and which."""
    certificates = asked.certificates
    own = listed(asked.stores)
    for store in own.stores:
        address(store)
    asker = Asker(None if certificates is None else certificates.connecting())
    try:
        yield asker, own
    finally:
        asker.close()


async def _answers(asked: Asked) -> Mapping[str, tuple[listings.Listed, ...]]:
    """Returns what stores know. NotRegistered: none answers."""
    async with _asking(asked) as (asker, own):
        found = await listed_all(asker, own.stores, asked.timeout)
        if not found:
            raise NotRegistered(
                f"none of the stores answers within {asked.timeout} s: {own.text()}"
            )
        for silent in sorted(own.stores - found.keys()):
            hint(f"onceq: {silent} does not answer")
        return found


def _of_stream(
    found: Mapping[str, tuple[listings.Listed, ...]], topic: str, session: int
) -> dict[str, listings.Listed]:
    """Returns what stores have of the stream of a topic and a session."""
    return {
        store: one
        for store, known in found.items()
        for one in known
        if (one.topic, one.session) == (topic, session)
    }


def list_streams(output: Output, asked: Asked) -> int:
    """Lists streams, each once, as the store says that has most of it."""
    found = asyncio.run(_answers(asked))
    by_stream: dict[int, dict[str, listings.Listed]] = {}
    for store, known in found.items():
        for one in known:
            by_stream.setdefault(one.stream, {})[store] = one
    output.rows(LIST_COLUMNS, [_row(of_stores) for of_stores in by_stream.values()])
    if not by_stream:
        hint("onceq: the stores know no stream")
    return OK


def _row(of_stores: Mapping[str, listings.Listed]) -> dict[str, Any]:
    best = max(of_stores.values(), key=lambda one: (one.admitted, one.end))
    return {
        "topic": best.topic,
        "session": f"0x{best.session:x}",
        "stream": f"{best.stream:016x}",
        "epoch": best.admitted,
        "end": best.end,
        "stable": max(one.stable for one in of_stores.values()),
        "receivers": len({one.key for known in of_stores.values() for one in known.receivers}),
        "stores": len(of_stores),
        "address": best.address,
        "lists": [own.text() for own in best.lists],
    }


def _stream(topic: str, named: Named) -> dict[str, listings.Listed]:
    session = session_of(named.source, "--source")
    return _of_stream(asyncio.run(_answers(named)), topic, session)


def _unknown(topic: str, named: Named) -> int:
    hint(f"onceq: no store knows a stream of topic {topic!r} and session {named.source}")
    return NOT_FOUND


def show(output: Output, topic: str, named: Named) -> int:
    """Shows how far the receivers of a stream are."""
    found = _stream(topic, named)
    if not found:
        return _unknown(topic, named)
    stable = max(one.stable for one in found.values())
    below: dict[str, list[int]] = {}
    for known in found.values():
        for one in known.receivers:
            below.setdefault(one.key, []).append(one.below)
    rows = [
        {
            "receiver": key,
            "below": max(ones),
            "lag": max(0, stable - max(ones)),
            "stores": len(ones),
        }
        for key, ones in sorted(below.items())
    ]
    output.rows(RECEIVER_COLUMNS, rows)
    if not rows:
        hint(f"onceq: the stream of topic {topic!r} has no receiver")
    return OK


def show_stores(output: Output, topic: str, named: Named) -> int:
    """Shows what each store has of a stream."""
    found = _stream(topic, named)
    if not found:
        return _unknown(topic, named)
    rows = [
        {
            "store": store,
            "epoch": one.epoch,
            "admitted": one.admitted,
            "begin": one.begin,
            "end": one.end,
            "stable": one.stable,
            "damaged": one.damaged,
            "receivers": len(one.receivers),
            "lists": [own.text() for own in one.lists],
        }
        for store, one in sorted(found.items())
    ]
    output.rows(STORE_COLUMNS, rows)
    return OK


def deregister(output: Output, topic: str, named: Named, receiver: str) -> int:
    """Has all stores of a stream forget a receiver."""
    session = session_of(named.source, "--source")

    async def run() -> Mapping[str, Deregistered]:
        found = _of_stream(await _answers(named), topic, session)
        lists = [own for one in found.values() for own in one.lists]
        all_stores = {store for own in lists for store in own.stores} | found.keys()
        async with _asking(named) as (asker, _):
            known = await listed_all(asker, all_stores, named.timeout)
            of_stream = _of_stream(known, topic, session)
            silent = dict.fromkeys(all_stores - known.keys(), Deregistered.SILENT)
            done = await deregistered(asker, of_stream, receiver, named.timeout)
            return {**silent, **done}

    done = asyncio.run(run())
    output.rows(
        DEREGISTERED_COLUMNS, [{"store": one, "text": done[one].value} for one in sorted(done)]
    )
    if not {Deregistered.DONE, Deregistered.NOT_NOW} & set(done.values()):
        hint(f"onceq: no store that answers knows {receiver!r} as a receiver of {topic!r}")
        return NOT_FOUND
    return OK if set(done.values()) <= {Deregistered.DONE, Deregistered.UNKNOWN} else VIOLATION


# messages


def send(output: Output, topic: str, file: Path, named: Named, *, listen: str | None) -> int:
    """Sends lines, and waits until all are stable."""
    life = SourceLife(
        life=secrets.randbits(LIFE_BITS) + 1,
        born_s=int(time.time()),
        own=listed(named.stores),
        topic=topic,
        session=session_of(named.source, "--source"),
    )
    at = None if listen is None else address(listen)
    core = core_of(life, {"flight_size": FLIGHT})
    source = AsyncSource(core, listen=at, certificates=named.certificates)
    first, end = asyncio.run(_sent(source, file, named.timeout))
    values = {"sent": end - first, "first": first if end > first else None, "next_number": end}
    output.item(values)
    return OK


async def _sent(source: AsyncSource, file: Path, timeout_s: float) -> tuple[int, int]:
    """Send what is to follow; return the first number of it, and the one behind the last."""
    async with source:
        await source.wait_registered(timeout_s)
        first = source.next_number
        if str(file) == "-":
            async for line in _lines_of_input():
                await _send(source, line)
        else:
            with file.open("rb") as lines:
                for line in itertools.islice(lines, first, None):  # the others were sent before
                    await _send(source, line)
        await source.wait_stable()
        return first, source.next_number


async def _lines_of_input() -> AsyncGenerator[bytes]:
    """Yields the lines of standard input as they come, while the source goes on living."""
    if stat.S_ISREG(os.fstat(sys.stdin.fileno()).st_mode):
        for line in sys.stdin.buffer:
            yield line
        return
    reader = asyncio.StreamReader(limit=LINE_BYTES_MAX)
    loop = asyncio.get_running_loop()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    async for line in reader:
        yield line


async def _send(source: AsyncSource, line: bytes) -> None:
    text = line.removesuffix(b"\n")
    while True:
        try:
            source.send(text)
        except FlightFull:
            await source.wait_room(len(text))
        else:
            return


def receive(output: Output, topic: str, received: Received) -> int:
    """Prints messages until there were enough, or until it is told to stop."""
    session = session_of(received.session, "--session")
    who = Who(
        topic=topic,
        source=session_of(received.source, "--source"),
        session=session,
        key=f"session {session:x}",
        known=listed(received.stores),
        life=secrets.randbits(LIFE_BITS) + 1,
        activity_ms=ACTIVITY_MS,
    )
    shown = 0

    def show_it(one: Shown) -> None:
        nonlocal shown
        if not isinstance(one, Message):
            kind = type(one).__name__
            hint(f"onceq: {kind}: numbers {one.first} to {one.last} are not received")
            return
        shown += 1
        _print(output, one)
        if shown == received.count:
            receiver.stop()

    receiver = AsyncReceiver(who, show_it, certificates=received.certificates)
    asyncio.run(_until_stopped(receiver))
    return OK


def _print(output: Output, one: Message) -> None:
    if output.as_json:
        again = {"retransmitted": True} if one.retransmitted else {}
        output.line({"number": one.number, "epoch": one.epoch, "text": plain(one.body), **again})
    else:
        output.text(plain(one.body))


async def _until_stopped(receiver: AsyncReceiver) -> None:
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, receiver.stop)
    await receiver.run()
