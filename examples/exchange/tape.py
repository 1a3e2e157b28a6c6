"""The tape: writes down what it is shown live, while workers finish it out of order.

    python -m examples.exchange.tape RUN

Each of its lives has a file of its own. What a worker has finished is acknowledged, in whatever
order; what is not, comes again to the next life.
"""

from __future__ import annotations

import queue
import random
import signal
import sys
import threading
import time
from collections.abc import Callable
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

WORKERS: Final = 4
SAY_S: Final = 0.2
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
    """A life's tape, and who works for it."""

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(exist_ok=True)
        self._file = path.open("xb")
        self._lock = threading.Lock()
        self._work: queue.SimpleQueue[Work | None] = queue.SimpleQueue()
        self._threads = [threading.Thread(target=self._finish) for _ in range(WORKERS)]
        self.count = 0
        self.reached = dict.fromkeys(FEEDS, 0)
        for thread in self._threads:
            thread.start()

    def showing(self, feed: str) -> tuple[Callable[[streams.Message[Bar]], None], Sheet]:
        """Return what a receiver of a feed shows messages to, and what is not yet handed over."""
        sheet = Sheet(self._work)

        def show(message: streams.Message[Bar]) -> None:
            bar = message.value
            line = msgspec.json.encode(Taped(feed, *message.identity, bar.day, bar.symbol)) + b"\n"
            with self._lock:
                self._file.write(line)
                self.count += 1
                self.reached[feed] = message.number + 1
            sheet.add(message.retain())

        return show, sheet

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


def receive(directory: RunDirectory, setup: Setup) -> None:
    """Receives both feeds until SIGTERM."""
    tape = Tape(directory.next_tape())
    over = threading.Event()
    sheets: list[Sheet] = []
    try:
        with streams.open(session_id=TAPE_SESSION) as context:
            receivers = []
            for place, feed in enumerate(FEEDS):
                show, sheet = tape.showing(feed)
                sheets.append(sheet)
                receivers.append(
                    context.receiver(
                        BARS,
                        show,
                        at=setup.stores[place],
                        deliver="live",
                        source_session_id=SESSIONS[feed],
                    )
                )

            def stop(*_: object) -> None:
                for receiver in receivers:
                    receiver.stop()

            def tell() -> None:
                while not over.wait(SAY_S):
                    for sheet in sheets:
                        sheet.hand_over()
                    say(tape.reached, taped=tape.count)

            signal.signal(signal.SIGTERM, stop)
            telling = threading.Thread(target=tell)
            telling.start()
            with ThreadPoolExecutor(len(receivers)) as pool:
                running = [pool.submit(receiver.run) for receiver in receivers]
                say(ready=True, taped=tape.count)
                wait(running, return_when=FIRST_COMPLETED)
                stop()
            over.set()
            telling.join()
            for one in running:
                one.result()
    finally:
        over.set()
        tape.close()
    say(tape.reached, taped=tape.count)


if __name__ == "__main__":
    hold_lifeline()
    run = RunDirectory(Path(sys.argv[1]))
    receive(run, run.read_setup())
