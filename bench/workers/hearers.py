"""Receivers of a stream, each a process of its own, and the bodies of messages that tell them time.

A body begins with a mark: that it is the last one of a slice, or when it was sent. So a receiver
says by itself when it has all, and its process asks nobody meanwhile. The clock is
`time.perf_counter`, which on Linux and macOS is the same for all processes of a machine. Imports no
third party.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
import struct
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

from bench.workers.base import WrongError, require_count

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from multiprocessing.connection import Connection

READY_S = 120.0
HEARD_S = 300.0
END_S = 60.0
PLAIN, LAST, TIMED = 0, 1, 2
"""Marks; LAST and TIMED may be together."""
HEAD = struct.Struct("<Bd")
SPAWN = multiprocessing.get_context("spawn")


def body_of(size: int, mark: int = PLAIN, sent_s: float = 0.0) -> bytes:
    """Return a body of so many bytes, at least its head."""
    return HEAD.pack(mark, sent_s).ljust(size, b"x")


@dataclass(frozen=True, slots=True)
class Heard:
    """What one receiver was shown until a last one. at_s: when. each_s: of those with a time."""

    count: int
    at_s: float
    each_s: tuple[float, ...]


class Ear:
    """What a receiver's process was shown; it tells the other end of the line after a last one."""

    def __init__(self, line: Connection[Any, Any]) -> None:
        self._line = line
        self._count = 0
        self._each_s: list[float] = []

    def ready(self) -> None:
        """Say that what is sent now will be heard."""
        self._line.send(os.getpid())

    def hear(self, body: bytes) -> None:
        """Take a message."""
        self._count += 1
        if not body[0]:
            return
        mark, sent_s = HEAD.unpack_from(body)
        now = time.perf_counter()
        if mark & TIMED:
            self._each_s.append(now - sent_s)
        if mark & LAST:
            self._line.send(Heard(self._count, now, tuple(self._each_s)))
            self._count, self._each_s = 0, []


class Hearers:
    """Processes that run `role(line, *arguments)` for ever. Use as a context: none is left.

    pids: of them.
    """

    def __init__(self, role: Callable[..., None], arguments: Sequence[tuple[Any, ...]]) -> None:
        """Start one process for each tuple of arguments, and wait until all are ready."""
        self._lines: list[Any] = []  # of connections, whose class is the platform's
        self._processes: list[Any] = []
        with contextlib.ExitStack() as undo:
            undo.callback(self.close)
            for one in arguments:
                ours, theirs = SPAWN.Pipe()
                process = SPAWN.Process(target=role, args=(theirs, *one), daemon=True)
                process.start()
                theirs.close()
                self._lines.append(ours)
                self._processes.append(process)
            self.pids: list[int] = [_received(line, READY_S, "ready") for line in self._lines]
            undo.pop_all()

    def __len__(self) -> int:
        return len(self._lines)

    def heard(self, number: int) -> list[Heard]:
        """Wait until all of them were shown a last one; WrongError unless each had so many."""
        found: list[Heard] = [_received(line, HEARD_S, "shown all") for line in self._lines]
        for one in found:
            require_count("shown to a receiver", one.count, number)
        return found

    def stop(self) -> None:
        """Have none of them run any more, as it is; only `close` ends that."""
        for pid in self.pids:
            os.kill(pid, signal.SIGSTOP)

    def close(self) -> None:
        """End them at once. Idempotent."""
        for process in self._processes:
            process.kill()
        for process in self._processes:
            process.join(END_S)
        for line in self._lines:
            line.close()
        self._lines, self._processes = [], []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _received(line: Any, timeout_s: float, expected: str) -> Any:
    try:
        if line.poll(timeout_s):
            return line.recv()
    except EOFError:
        raise WrongError(f"a receiver died before it was {expected}") from None
    raise WrongError(f"a receiver was not {expected} within {timeout_s:g} s")
