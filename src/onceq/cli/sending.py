"""What `onceq stream send` does: lines become messages of a stream, all of them stable."""

from __future__ import annotations

import asyncio
import itertools
import secrets
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Final

from onceq.cli import lines, listing
from onceq.cli.exits import OK
from onceq.cli.output import Output, hint
from onceq.cli.units import session_of
from onceq.errors import DeadlineExceeded, OnceqError, Outcome
from onceq.streams.api.given import accepted
from onceq.streams.errors import FlightFull
from onceq.streams.model import asks, events
from onceq.streams.model.losses import Losses
from onceq.streams.model.options import Creation
from onceq.streams.net.address import address
from onceq.streams.source.async_source import AsyncSource
from onceq.streams.source.epochs import SourceLife
from onceq.streams.source.options import core_of
from onceq.streams.source.sending import Sending

if TYPE_CHECKING:
    from onceq.cli.streams import Sent

FLIGHT: Final = 1_000
ANSWER_S: Final = 2.0
"""So long stores may take to answer whether they do, and to get what is stable without them."""
_LATER: Final = "the next source, or one that goes on, gives it what it lacks"
LIFE_BITS: Final = 63


def send(output: Output, topic: str, file: Path, named: Sent) -> int:
    """Sends lines, and waits until all are stable. Raises as `lines.refuse_unreadable`."""
    lines.refuse_unreadable(file)
    certificates = named.certificates
    life = SourceLife(
        life=secrets.randbits(LIFE_BITS) + 1,
        born_s=int(time.time()),
        own=listing.checked(named),
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
    first, end = asyncio.run(_sent(source, core, file, named, output=output))
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
                hint(f"onceq: store {store}: {why}")
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
    source: AsyncSource, core: Sending, file: Path, named: Sent, *, output: Output
) -> tuple[int, int]:
    """Send what is to follow; return the first number of it, and the one behind the last."""
    async with source:
        await _registered(source, core.life, named)
        first = source.next_number
        try:
            await _send_lines(source, core, first, file)
            await source.wait_stable()
            for store in sorted(await source.wait_everywhere(ANSWER_S)):
                hint(f"onceq: store {store} does not have all of it yet: {_LATER}")
        except OnceqError as error:
            _tell_part(output, source, first, error)
            raise
        return first, source.next_number


async def _registered(source: AsyncSource, life: SourceLife, named: Sent) -> None:
    """Wait until messages can be sent. Raises DeadlineExceeded, which says which stores answer."""
    try:
        await source.wait_registered(named.timeout)
    except DeadlineExceeded as error:
        look = asks.Look(topic=life.topic, session=life.session)
        text = f"{error}; {await listing.who_answers(named, look, ANSWER_S)}"
        if named.create == Creation.ALL:
            text += ". A stream that is new begins when all have noted it, or with --create quorum"
        raise DeadlineExceeded(text) from None


async def _send_lines(source: AsyncSource, core: Sending, first: int, file: Path) -> None:
    """Send lines that come, or those of a file that are not yet sent. first: the next number."""
    if str(file) == lines.INPUT:
        async for batch in lines.lines_of_input():
            await _send_all(source, batch)
    else:
        losses = () if core.begun is None else core.begun.bridge.losses
        before = lines_before(first, losses)
        await _send_all(source, itertools.islice(lines.lines_of(file), before, None))


def _tell_part(output: Output, source: AsyncSource, first: int, error: OnceqError) -> None:
    """Tell what was sent before an error, which then does not say that nothing happened."""
    end, stable = source.next_number, source.stable_below
    if end > first:
        error.outcome = Outcome.UNKNOWN
        text = f"onceq: numbers {first} to {end - 1} were sent; all below {stable} are stable"
        output.event("sent_in_part", text, first=first, next_number=end, stable_below=stable)


def lines_before(number: int, losses: Losses) -> int:
    """Returns how many lines of a file are messages below a number: void ones are no lines."""
    void, behind = 0, 0
    for one in sorted(losses, key=lambda one: one.first):
        void += max(0, one.below - max(one.first, behind))
        behind = max(behind, one.below)
    return number - void


async def _send_all(source: AsyncSource, texts: Iterable[bytes]) -> None:
    for text in texts:
        await _send(source, text)


async def _send(source: AsyncSource, text: bytes) -> None:
    while True:
        try:
            source.send(text)
        except FlightFull:
            await source.wait_room(len(text))
        else:
            return
