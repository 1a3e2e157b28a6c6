"""What `onceq stream send` does: lines become messages of a stream, all of them stable."""

from __future__ import annotations

import asyncio
import itertools
import os
import secrets
import stat
import sys
import time
from collections.abc import AsyncGenerator, Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, Final

from onceq.cli.exits import OK
from onceq.cli.output import Output, hint
from onceq.cli.units import session_of
from onceq.errors import TooLarge
from onceq.streams.api.given import accepted
from onceq.streams.errors import FlightFull
from onceq.streams.model import events
from onceq.streams.model.fragments import FRAGMENT_BYTES_MAX
from onceq.streams.model.losses import Losses
from onceq.streams.model.quorum import listed
from onceq.streams.net.address import address
from onceq.streams.source.async_source import AsyncSource
from onceq.streams.source.epochs import SourceLife
from onceq.streams.source.options import core_of
from onceq.streams.source.sending import Sending

if TYPE_CHECKING:
    from onceq.cli.streams import Sent

FLIGHT: Final = 1_000
LINE_BYTES_MAX: Final = FRAGMENT_BYTES_MAX
"""Of a line of a file, which is the message of its number: more would take several numbers."""
INPUT_BYTES_MAX: Final = 1 << 20
LIFE_BITS: Final = 63


def send(output: Output, topic: str, file: Path, named: Sent) -> int:
    """Sends lines, and waits until all are stable. Raises TooLarge: a line is over the limit."""
    _refuse_long(file)
    certificates = named.certificates
    life = SourceLife(
        life=secrets.randbits(LIFE_BITS) + 1,
        born_s=int(time.time()),
        own=listed(named.stores),
        topic=topic,
        session=session_of(named.source, "--source"),
        accepts=accepted(named.accept_loss, has_tls=certificates is not None),
    )
    core = core_of(life, {"flight_size": FLIGHT, "create": named.create})
    source = AsyncSource(
        core,
        listen=None if named.listen is None else address(named.listen),
        certificates=certificates,
        on_event=_telling(output),
    )
    first, end = asyncio.run(_sent(source, core, file, named.timeout))
    values = {"sent": end - first, "first": first if end > first else None, "next_number": end}
    output.item(values)
    return OK


def _telling(output: Output) -> Callable[[events.Event], None]:
    """Returns what tells why sending waits, and what was lost."""

    def tell(event: events.Event) -> None:
        match event:
            case events.StoresForgot():
                fields = {"forgot": event.forgot, "silent": event.silent, "end": event.end}
                text = _words(event)
                output.event("stores_forgot", text, **fields, accept_loss=event.accept_loss)
            case events.LossAccepted(first=first, last=last):
                count = last - first + 1
                text = f"onceq: what was sent from number {first} on is lost, as was accepted:"
                text += f" {count} numbers are void, messages go on at {last + 1}"
                output.event("loss_accepted", text, first=first, last=last)
            case events.RegistrationError(why=why):
                hint(f"onceq: {why}")
            case events.StoreUnresponsive(store=store, why=why):
                hint(f"onceq: {store} does not answer: {why}")
            case _:
                pass

    return tell


def _words(event: events.StoresForgot) -> str:
    """Returns what is left, and what a person may do."""
    return (
        f"onceq: too few stores answer that have what was sent: all below {event.end} is left."
        " Start those that are down, and this goes on. If what they had is lost for ever, send with"
        f" --accept-loss '{event.accept_loss}', which goes on without that"
    )


async def _sent(
    source: AsyncSource, core: Sending, file: Path, timeout_s: float
) -> tuple[int, int]:
    """Send what is to follow; return the first number of it, and the one behind the last."""
    async with source:
        await source.wait_registered(timeout_s)
        first = source.next_number
        if str(file) == "-":
            async for line in _lines_of_input():
                await _send(source, line.removesuffix(b"\n"))
        else:
            losses = () if core.begun is None else core.begun.bridge.losses
            with file.open("rb") as lines:
                texts = lines_of(lines, file)
                for text in itertools.islice(texts, lines_before(first, losses), None):
                    await _send(source, text)
        await source.wait_stable()
        return first, source.next_number


def _refuse_long(file: Path) -> None:
    """Reads all of a file before anything of it is sent, unless it cannot be read twice."""
    if str(file) != "-" and file.is_file():
        with file.open("rb") as lines:
            for _ in lines_of(lines, file):
                pass


def lines_of(lines: BinaryIO, file: Path) -> Iterator[bytes]:
    """Yields the lines of a file, without their ends. Raises TooLarge for one over the limit."""
    for number in itertools.count(1):
        line = lines.readline(LINE_BYTES_MAX + 1)
        if not line:
            return
        text = line.removesuffix(b"\n")
        if len(text) > LINE_BYTES_MAX:
            raise TooLarge(
                f"line {number} of {file} has more than {LINE_BYTES_MAX} bytes: it would take"
                " several numbers, and a line of a file is the message of its number. No line from"
                " there on was sent: make it shorter, or send it from a program"
            )
        yield text


def lines_before(number: int, losses: Losses) -> int:
    """Returns how many lines of a file are messages below a number: void ones are no lines."""
    void, behind = 0, 0
    for one in sorted(losses, key=lambda one: one.first):
        void += max(0, one.below - max(one.first, behind))
        behind = max(behind, one.below)
    return number - void


async def _lines_of_input() -> AsyncGenerator[bytes]:
    """Yields the lines of standard input as they come, while the source goes on living."""
    if stat.S_ISREG(os.fstat(sys.stdin.fileno()).st_mode):
        for line in sys.stdin.buffer:
            yield line
        return
    reader = asyncio.StreamReader(limit=INPUT_BYTES_MAX)
    loop = asyncio.get_running_loop()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    async for line in reader:
        yield line


async def _send(source: AsyncSource, text: bytes) -> None:
    while True:
        try:
            source.send(text)
        except FlightFull:
            await source.wait_room(len(text))
        else:
            return
