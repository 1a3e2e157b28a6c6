"""What `onceq stream receive` does: it prints messages, and tells of numbers that are none."""

from __future__ import annotations

import asyncio
import secrets
import signal
from typing import TYPE_CHECKING, Final

from onceq.cli.exits import OK
from onceq.cli.output import Output, plain
from onceq.cli.units import session_of
from onceq.streams.model.events import Loss, RolledBack, WhyLost
from onceq.streams.model.options import ACTIVITY_MS
from onceq.streams.model.quorum import listed
from onceq.streams.receiver.async_receiver import AsyncReceiver
from onceq.streams.receiver.ops import Message, Shown
from onceq.streams.receiver.placing import Who

if TYPE_CHECKING:
    from onceq.cli.streams import Received

LIFE_BITS: Final = 63
WORDS: Final[dict[WhyLost, str]] = {
    WhyLost.RECLAIMED: "void: their source gave them up before they were stable",
    WhyLost.TRIMMED: "kept by no store any more: this session had not acknowledged them",
    WhyLost.ACKNOWLEDGED: "kept by no store any more: an earlier life had acknowledged them",
    WhyLost.LOST: "lost: the stores that had them have them no more; `onceq stream show` tells of"
    " losses that were accepted",
    WhyLost.SKIPPED: "left out: this life begins behind them, or within their message",
    WhyLost.UNFINISHED: "parts of a message that its source never sent to its end",
}
"""What is told of numbers that are not shown."""


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
        show_one(output, one)
        shown += isinstance(one, Message)
        if shown == received.count:
            receiver.stop()

    receiver = AsyncReceiver(who, show_it, certificates=received.certificates)
    asyncio.run(_until_stopped(receiver))
    return OK


def show_one(output: Output, one: Shown) -> None:
    """Prints a message, or what became of numbers that are none, in their place."""
    match one:
        case Message():
            _print(output, one)
        case RolledBack(first=first, last=last):
            text = (
                f"onceq: what was shown of numbers {first} to {last} is void: it is lost, and that"
            )
            text += " was accepted"
            output.event("rolled_back", text, first=first, last=last)
        case Loss(first=first, last=last, why=why):
            text = f"onceq: numbers {first} to {last} are {WORDS[why]}"
            output.event("loss", text, first=first, last=last, why=why)


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
