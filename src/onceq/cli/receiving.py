"""What `onceq stream receive` does: it prints messages, and tells of numbers that are none."""

from __future__ import annotations

import asyncio
import re
import secrets
import signal
import sys
from typing import TYPE_CHECKING, Final

from onceq.cli.exits import OK
from onceq.cli.listing import checked
from onceq.cli.output import Output, hint, is_terminal, plain
from onceq.cli.units import session_of
from onceq.errors import DeadlineExceeded, InvalidValue
from onceq.streams.model.events import (
    Event,
    Loss,
    RegistrationComplete,
    RegistrationError,
    RolledBack,
    StoreUnresponsive,
    WhyLost,
)
from onceq.streams.model.options import ACTIVITY_MS
from onceq.streams.receiver.async_receiver import AsyncReceiver
from onceq.streams.receiver.ops import Message, Shown
from onceq.streams.receiver.placing import Who
from onceq.streams.store.records import key_of

if TYPE_CHECKING:
    from onceq.cli.streams import Received

LIFE_BITS: Final = 63
_CONTROL: Final = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]")
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


class Waiting:
    """What is told while a receiver waits to be registered, and when that has taken too long."""

    def __init__(self, output: Output, timeout_s: float) -> None:
        self._output = output
        self._timeout_s = timeout_s
        self._why: dict[str, str] = {}
        self._is_registered = False

    def tell(self, event: Event) -> None:
        """Tells why a store does not register the receiver, or does not answer it later."""
        match event:
            case RegistrationError(store=store, why=why):
                self._why[store] = why
                self._output.event("registration_error", f"onceq: {why}", store=store, why=why)
            case StoreUnresponsive(store=store, why=why):
                hint(f"onceq: {store} does not answer: {why}")
            case RegistrationComplete():
                self._is_registered = True
            case _:
                pass

    async def run(self, receiver: AsyncReceiver) -> None:
        """Runs a receiver until it is stopped. Raises DeadlineExceeded: it was not registered."""
        loop = asyncio.get_running_loop()
        is_late = False

        def late() -> None:
            nonlocal is_late
            if not self._is_registered:
                is_late = True
                receiver.stop()

        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, receiver.stop)
        loop.call_later(self._timeout_s, late)
        await receiver.run()
        if is_late:
            why = "; ".join(self._why[store] for store in sorted(self._why))
            raise DeadlineExceeded(
                f"after {self._timeout_s} s the receiver is not registered: "
                + (why or "no store has answered")
            )


def receive(output: Output, topic: str, received: Received) -> int:
    """Prints messages until there were enough, or until it is told to stop.

    Raises InvalidValue if nothing can be printed, and DeadlineExceeded: it was not registered.
    """
    if sys.stdout is None:  # as Python has it if it was closed; what nobody saw is not acknowledged
        raise InvalidValue("standard output is closed: give one for the messages, as `> FILE`")
    session = session_of(received.session, "--session")
    who = Who(
        topic=topic,
        source=session_of(received.source, "--source"),
        session=session,
        key=key_of(0, session),
        known=checked(received),
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

    waiting = Waiting(output, received.timeout)
    receiver = AsyncReceiver(who, show_it, certificates=received.certificates, tell=waiting.tell)
    asyncio.run(waiting.run(receiver))
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
    """Prints a message as it is, but what would control a terminal, and bytes that are no text."""
    text = _text(one.body)
    if output.as_json:
        again = {"retransmitted": True} if one.retransmitted else {}
        known = {"base64": one.body} if text is None else {"text": text}
        output.line({"number": one.number, "epoch": one.epoch, **known, **again})
    elif text is None:
        output.text(plain(one.body))
    else:
        output.text(harmless(text) if is_terminal() else text)


def _text(body: bytes) -> str | None:
    """Returns bytes as text; None: they are none."""
    try:
        return body.decode()
    except UnicodeDecodeError:
        return None


def harmless(text: str) -> str:
    """Returns a text whose control characters are escaped, but tabs and ends of lines."""
    return _CONTROL.sub(lambda found: f"\\x{ord(found[0]):02x}", text)
