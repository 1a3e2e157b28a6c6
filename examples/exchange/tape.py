"""The tape: writes down what it is shown live, while workers finish it out of order.

    python -m examples.exchange.tape RUN

Each of its lives has a file of its own. What a worker has finished is acknowledged, in whatever
order; what is not, comes again to the next life.
"""

from __future__ import annotations

import contextlib
import queue
import random
import signal
import sys
import threading
import time
from collections.abc import Callable, Generator, Iterator
from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, wait
from pathlib import Path
from typing import Final, TypeAlias

import msgspec

from examples.exchange.data import Bar
from examples.exchange.market import (
    BARS,
    FEEDS,
    SESSIONS,
    TAPE_SESSION,
    RunDirectory,
    Setup,
    Taped,
)
from examples.running.lifeline import hold_lifeline
from examples.running.status import say
from onceq import streams
from onceq.errors import InvalidValue

AT_ONCE: Final = 4
SAY_S: Final = 0.2
AGAIN_S: Final = 0.5
Work: TypeAlias = "list[streams.Token]"
SHEET: Final = 64
"""Messages that a worker takes at once."""


class Sheet:
    """Gathers what was shown, and hands it over to the workers; they may take it in any order."""

    def __init__(self, work: queue.SimpleQueue[Work | None]) -> None:
        self._work = work
        self._tokens: Work = []
        self._lock = threading.Lock()

    def add(self, token: streams.Token) -> None:
        """Add a message's token."""
        with self._lock:
            self._tokens.append(token)
            is_full = len(self._tokens) >= SHEET
        if is_full:
            self.hand_over()

    def hand_over(self) -> None:
        """Give the workers what there is."""
        with self._lock:
            tokens, self._tokens = self._tokens, []
        if tokens:
            self._work.put(tokens)


class Tape:
    """A life's tape, and who works for it.

    reached: below which number of each feed all is on this tape, or on those before it.
    """

    def __init__(self, path: Path, reached: dict[str, int]) -> None:
        path.parent.mkdir(exist_ok=True)
        self._file = path.open("xb")
        self._lock = threading.Lock()
        self._work: queue.SimpleQueue[Work | None] = queue.SimpleQueue()
        self._threads = [threading.Thread(target=self._finish) for _ in range(AT_ONCE)]
        self.count = 0
        self.reached = reached
        self._sheets: list[Sheet] = []
        for thread in self._threads:
            thread.start()

    def showing(self, feed: str) -> Callable[[streams.Message[Bar]], None]:
        """Return what a receiver of a feed shows messages to."""
        sheet = Sheet(self._work)
        self._sheets.append(sheet)

        def show(one: streams.Message[Bar]) -> None:
            bar = one.value
            line = msgspec.json.encode(Taped(feed, *one.identity, bar.day, bar.symbol)) + b"\n"
            with self._lock:
                self._file.write(line)
                self.count += 1
                self.reached[feed] = max(self.reached[feed], one.number + 1)
            sheet.add(one.retain())

        return show

    @contextlib.contextmanager
    def telling(self) -> Generator[None]:
        """Hands over what was shown, and says how far it is, from time to time."""
        over = threading.Event()

        def tell() -> None:
            while not over.wait(SAY_S):
                for sheet in self._sheets:
                    sheet.hand_over()
                say(self.reached, taped=self.count)

        telling = threading.Thread(target=tell)
        telling.start()
        try:
            yield
        finally:
            over.set()
            telling.join()

    def close(self) -> None:
        """Waits for the workers."""
        for _ in self._threads:
            self._work.put(None)
        for thread in self._threads:
            thread.join()
        self._file.close()

    def _finish(self) -> None:
        chance = random.Random()  # noqa: S311 - for an order, not for a secret
        while (tokens := self._work.get()) is not None:
            time.sleep(chance.random() * 0.005)
            with self._lock:
                self._file.flush()
            chance.shuffle(tokens)
            for token in tokens:
                token.acknowledge()


def taped(content: bytes) -> Iterator[Taped]:
    """Yields the lines of a tape; a kill may have cut off the last."""
    decode = msgspec.json.Decoder(Taped).decode
    for line in content[: content.rfind(b"\n") + 1].splitlines():
        yield decode(line)


class Following:
    """The receivers of a feed, one after the other: stop ends the present one, for good."""

    def __init__(self, make: Callable[[], streams.Receiver[Bar]]) -> None:
        self._make = make
        self._lock = threading.Lock()
        self._over = threading.Event()
        self._receiver = make()

    def run(self) -> None:
        """Receives until it is stopped.

        A store that was wiped knows the one feed before the other, and refuses who asks for the
        latter as it would for a mistaken session: it is asked again.
        """
        while True:
            try:
                return self._receiver.run()
            except InvalidValue as error:
                sys.stderr.write(f"{error}\n")
            self._over.wait(AGAIN_S)
            with self._lock:
                if self._over.is_set():
                    return None
                self._receiver = self._make()

    def stop(self) -> None:
        """Ends it. Any thread may call this."""
        with self._lock:
            self._over.set()
            self._receiver.stop()


def reached_before(directory: RunDirectory) -> dict[str, int]:
    """Return below which number of each feed the tapes of former lives have all.

    What was acknowledged had been written, so a life begins where those before it end, or sooner.
    """
    reached: dict[str, int] = dict.fromkeys(FEEDS, 0)
    for path in directory.tapes():
        for line in taped(path.read_bytes()):
            reached[line.feed] = max(reached[line.feed], line.number + 1)
    return reached


def receive(directory: RunDirectory, setup: Setup) -> None:
    """Receives both feeds until SIGTERM."""
    before = reached_before(directory)
    tape = Tape(directory.next_tape(), before)
    with streams.open(session_id=TAPE_SESSION) as context, contextlib.closing(tape):
        followed = [_following(context, tape, setup, feed) for feed in FEEDS]

        def stop(*_: object) -> None:
            for one in followed:
                one.stop()

        signal.signal(signal.SIGTERM, stop)
        with tape.telling(), ThreadPoolExecutor(len(followed)) as pool:
            running = [pool.submit(one.run) for one in followed]
            say(tape.reached, ready=True, taped=tape.count)
            wait(running, return_when=FIRST_COMPLETED)
            stop()
        for one in running:
            one.result()
    say(tape.reached, taped=tape.count)


def _following(context: streams.StreamContext, tape: Tape, setup: Setup, feed: str) -> Following:
    show = tape.showing(feed)
    return Following(
        lambda: context.receiver(
            BARS,
            show,
            at=setup.stores[FEEDS.index(feed)],
            deliver="live",
            source_session_id=SESSIONS[feed],
        )
    )


if __name__ == "__main__":
    hold_lifeline()
    run = RunDirectory(Path(sys.argv[1]))
    receive(run, run.read_setup())
