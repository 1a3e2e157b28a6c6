"""A feed: sends its bars on a topic, one after the other; killed, its next life goes on.

    python -m examples.exchange.feed RUN NAME LISTEN

It knows nothing of its former lives but its session: the stores tell which number comes next, and
number n is the n-th bar of its file. When all is stable it stays until SIGTERM. Exit code 3: a
later life of this feed has taken over.
"""

from __future__ import annotations

import signal
import sys
import time
from collections import deque
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec

from examples.exchange.data import Bar
from examples.exchange.market import BARS, FEEDS, SESSIONS, RunDirectory
from examples.running.lifeline import end_in_order, hold_lifeline
from examples.running.status import say
from onceq import streams
from onceq.streams.errors import NotRegistered, SourceSucceeded

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import TextIO

SUCCEEDED: Final = 3
FLIGHT: Final = 10_000
SILENT_MS: Final = 3_000
"""A feed that says nothing for so long is gone for its stores: another one may be it."""
SAY_S: Final = 0.1
AGAIN_S: Final = 0.05
SAMPLE: Final = 500
"""Of each so many messages, one is timed until it is stable."""


class Pace:
    """Keeps a feed to a rate. per_s: 0: as fast as it goes."""

    def __init__(self, per_s: float) -> None:
        self._per_s = per_s
        self._began = time.monotonic()
        self._count = 0

    def step(self) -> None:
        """Waits until one more may be sent."""
        self._count += 1
        if self._per_s and self._count % 50 == 0:
            time.sleep(max(0.0, self._began + self._count / self._per_s - time.monotonic()))


class Watch:
    """Times samples until they are stable, and says how far the feed is."""

    def __init__(self, source: streams.Source[Bar], file: TextIO) -> None:
        self._source = source
        self._file = file
        self._waiting: deque[tuple[int, float]] = deque()
        self._said = 0.0

    def sent(self, number: int) -> None:
        """Notes a message, and looks at those before it."""
        now = time.monotonic()
        if number % SAMPLE == 0:
            self._waiting.append((number, now))
        self.look(now)

    def look(self, now: float) -> None:
        """Writes down what has become stable; says so from time to time."""
        while self._waiting and self._waiting[0][0] < self._source.stable_below:
            self._file.write(f"{now - self._waiting.popleft()[1]:.6f}\n")
        if now - self._said > SAY_S:
            self._said = now
            self.say()

    def say(self, *, ready: bool = False) -> None:
        """Says how far the feed is."""
        say(ready=ready, sent=self._source.next_number, stable=self._source.stable_below)


def feed(directory: RunDirectory, name: str, listen: str) -> None:
    """Sends what the stores do not have yet, waits until all is stable, and stays."""
    setup = directory.read_setup()
    lines = directory.bars(name).read_bytes().splitlines()
    pace = Pace(setup.rate * len(lines) / max(1, setup_bars(directory)))
    with (
        directory.latencies(name).open("a", buffering=1) as file,
        streams.open(session_id=SESSIONS[name]) as context,
        context.source(
            BARS,
            stores=setup.list,
            listen=listen,
            flight_size=FLIGHT,
            activity_timeout_ms=SILENT_MS,
            within_s=None,
        ) as source,
    ):
        watch = Watch(source, file)
        watch.say(ready=True)
        send_all(source, lines, pace, watch)
        while source.stable_below < len(lines):
            source.wait_stable()
            watch.look(time.monotonic())
        while True:
            source.wait_registered()
            watch.say()
            time.sleep(SAY_S)


def send_all(source: streams.Source[Bar], lines: Sequence[bytes], pace: Pace, watch: Watch) -> None:
    """Sends the rest. The number of the next message is the place of its bar."""
    decode = msgspec.json.Decoder(Bar).decode
    while (number := source.next_number) < len(lines):
        pace.step()
        try:
            source.send(decode(lines[number]))
        except NotRegistered:  # too few stores are there: nothing was sent
            time.sleep(AGAIN_S)
            continue
        watch.sent(number)


def setup_bars(directory: RunDirectory) -> int:
    """Return how many bars all feeds have."""
    return sum(len(directory.bars(name).read_bytes().splitlines()) for name in FEEDS)


def main(root: Path, name: str, listen: str) -> int:
    """Feeds until SIGTERM, or until a later life has taken over."""
    hold_lifeline()
    signal.signal(signal.SIGTERM, end_in_order)
    try:
        feed(RunDirectory(root), name, listen)
    except SourceSucceeded as error:
        sys.stderr.write(f"{error}\n")
        return SUCCEEDED
    return 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), *sys.argv[2:4]))
