"""The receiver of moves: appends each to a file, once, and acknowledges what the disk has.

    python -m examples.exchange.mover RUN

Its file is all that it remembers. A life cuts off what is no whole line, and begins with the number
behind its last line: stores may know of less, as they are told only of what is synced.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from pathlib import Path
from typing import Final

import msgspec

from examples.exchange.market import (
    FILE_SESSION,
    MOVES,
    SESSIONS,
    Move,
    RunDirectory,
    Setup,
)
from examples.running.lifeline import hold_lifeline
from examples.running.status import say
from onceq import streams

SYNC_S: Final = 0.05


class Line(msgspec.Struct, frozen=True, kw_only=True):
    """A line of the file."""

    number: int
    move: Move


class MovesFile:
    """The file, opened behind its last whole line. next: the number that it lacks first."""

    def __init__(self, path: Path) -> None:
        self._descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
        content = path.read_bytes()
        whole = content.rfind(b"\n") + 1
        os.ftruncate(self._descriptor, whole)
        os.lseek(self._descriptor, whole, os.SEEK_SET)
        lines = content[:whole].splitlines()
        self.lines = len(lines)
        self.next = msgspec.json.decode(lines[-1], type=Line).number + 1 if lines else 0
        self._tokens: list[streams.Token] = []
        self._lock = threading.Lock()

    def append(self, one: streams.Message[Move]) -> None:
        """Writes a move; it is acknowledged when it is synced."""
        line = msgspec.json.encode(Line(number=one.number, move=one.value)) + b"\n"
        with self._lock:
            os.write(self._descriptor, line)
            self._tokens.append(one.retain())
            self.lines += 1

    def sync(self) -> None:
        """Syncs what was written, and acknowledges it."""
        with self._lock:
            tokens, self._tokens = self._tokens, []
        if tokens:
            os.fdatasync(self._descriptor)
            for token in tokens:
                token.acknowledge()


def receive(directory: RunDirectory, setup: Setup) -> None:
    """Receives until SIGTERM."""
    file = MovesFile(directory.moves)
    over = threading.Event()

    def sync() -> None:
        while not over.wait(SYNC_S):
            file.sync()
            say(lines=file.lines)

    with streams.open(session_id=FILE_SESSION) as context:
        receiver = context.receiver(
            MOVES,
            file.append,
            at=setup.stores[0],
            source_session_id=SESSIONS["relay"],
            choose=lambda _: file.next,
        )
        signal.signal(signal.SIGTERM, lambda *_: receiver.stop())
        syncing = threading.Thread(target=sync)
        syncing.start()
        try:
            say(ready=True, lines=file.lines)
            receiver.run()
        finally:
            over.set()
            syncing.join()
        file.sync()
    say(lines=file.lines)


if __name__ == "__main__":
    hold_lifeline()
    run = RunDirectory(Path(sys.argv[1]))
    receive(run, run.read_setup())
