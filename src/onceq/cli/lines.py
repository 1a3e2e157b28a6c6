"""The lines that `onceq stream send` sends: of a regular file, or of standard input as they come.

A line of a file is the message of its number, so a file must be one that can be read again from its
beginning. Standard input may be anything: a pipe, a terminal, a file, or /dev/null.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import select
import stat
import sys
import threading
from collections.abc import AsyncGenerator, Callable, Iterable, Iterator
from concurrent.futures import Future
from pathlib import Path
from typing import Final, TypeVar

from onceq.errors import InvalidValue, TooLarge
from onceq.streams.model.fragments import FRAGMENT_BYTES_MAX

LINE_BYTES_MAX: Final = FRAGMENT_BYTES_MAX
"""Of a line, which is one message with one number: more would take several numbers."""
CHUNK_BYTES: Final = 1 << 16
INPUT: Final = "-"
T = TypeVar("T")


def refuse_unreadable(file: Path) -> None:
    """Reads all of a file before anything of it is sent; of standard input, nothing.

    Raises InvalidValue for what is no regular file, or cannot be read, and for standard input that
    is closed; TooLarge for a line over the limit; FileNotFoundError.
    """
    if str(file) == INPUT:
        _input()
        return
    mode = file.stat().st_mode
    if not stat.S_ISREG(mode):
        raise InvalidValue(
            f"{file} is no regular file, and cannot be read again from its beginning: give one, or"
            f" - and its lines on standard input, as in `... send TOPIC - < {file}`"
        )
    try:
        for _ in lines_of(file):
            pass
    except OSError as error:
        raise InvalidValue(f"{file} cannot be read: {error.strerror}") from error


def lines_of(file: Path) -> Iterator[bytes]:
    """Yields the lines of a file, without their ends. Raises TooLarge for one over the limit."""
    with file.open("rb", buffering=0) as opened:
        chunks = iter(lambda: opened.read(CHUNK_BYTES), b"")
        yield from itertools.chain.from_iterable(split(chunks, str(file)))


async def lines_of_input() -> AsyncGenerator[list[bytes]]:
    """Yields the lines of standard input as they come, while the loop goes on.

    Raises TooLarge for one over the limit, when those before it have been yielded.
    """
    handle = _input()
    batches = split(iter(lambda: _read(handle), b""), "standard input")
    while (batch := await aside(lambda: next(batches, None))) is not None:
        yield batch


def _input() -> int:
    """Returns the handle of standard input. Raises InvalidValue if it cannot be read."""
    if sys.stdin is None:  # as Python has it if it was closed
        raise _no_input("it is closed")
    try:
        handle = sys.stdin.fileno()
        os.read(handle, 0)
    except OSError as error:
        raise _no_input(str(error)) from error
    return handle


def _no_input(why: str) -> InvalidValue:
    return InvalidValue(
        f"standard input cannot be read: {why}; give a FILE, or redirect its lines to this command,"
        " as in `... | onceq stream send TOPIC -`"
    )


def _read(handle: int) -> bytes:
    """Returns what comes next; nothing: the end. It waits, also if that is non-blocking."""
    select.select((handle,), (), ())
    return os.read(handle, CHUNK_BYTES)


def split(chunks: Iterable[bytes], name: str) -> Iterator[list[bytes]]:
    """Yields lines without their ends, some at a time, as soon as they are whole.

    Raises TooLarge for one over the limit, when those before it have been yielded. name: of what
    they are lines.
    """
    number, rest = 1, b""
    for chunk in chunks:
        *whole, rest = (rest + chunk).split(b"\n")
        lines = list(itertools.takewhile(_fits, whole))
        if lines:
            yield lines
        number += len(lines)
        if len(lines) < len(whole) or not _fits(rest):
            raise TooLarge(
                f"line {number} of {name} has more than {LINE_BYTES_MAX} bytes: it would take"
                " several numbers, and a line is one message with one number. No line from there"
                " on was sent: make it shorter, or send it from a program"
            )
    if rest:
        yield [rest]


def _fits(line: bytes) -> bool:
    return len(line) <= LINE_BYTES_MAX


async def aside(work: Callable[[], T]) -> T:
    """Returns what is done in a thread of its own, which may wait for ever: no exit waits for it.

    Raises what that raises.
    """
    done: Future[T] = Future()
    done.set_running_or_notify_cancel()

    def run() -> None:
        try:
            done.set_result(work())
        except Exception as error:  # noqa: BLE001 - whoever waits raises it
            done.set_exception(error)

    threading.Thread(target=run, name="onceq-input", daemon=True).start()
    return await asyncio.wrap_future(done)
