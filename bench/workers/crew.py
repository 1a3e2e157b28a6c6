"""Servers as processes: made ready first, started together, timed by one clock.

A crew's processes each run `role(post, *arguments)`, a function of a module's top level. It
prepares itself, calls `post.wait_for_go`, works, and returns what it found. The clock is
`time.perf_counter`, which on Linux and macOS is the same for all processes of a machine.
Every wait has a bound. Imports no third party.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import time
import traceback
from multiprocessing import connection
from typing import TYPE_CHECKING, Any, Self

from bench.workers.base import WrongError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from multiprocessing.connection import Connection

READY_S = 60.0
RESULT_S = 600.0
END_S = 5.0


class Post:
    """A process's end of its line to the crew."""

    def __init__(self, line: Connection[Any, Any]) -> None:
        self._line = line

    def wait_for_go(self) -> None:
        """Say that all is prepared, and wait until all others are."""
        self._line.send(("ready", None))
        if not self._line.poll(READY_S):
            raise WrongError("the others did not become ready")
        self._line.recv()

    def wait_for_stop(self) -> None:
        """Wait until the crew is asked to stop, or has gone."""
        if not self._line.poll(RESULT_S):
            raise WrongError(f"was not asked to stop within {RESULT_S:g} s")

    def is_stopped(self) -> bool:
        """Say, without waiting, whether the crew was asked to stop, or has gone."""
        return self._line.poll(0)


class Tally:
    """A count that the processes of a crew share."""

    def __init__(self) -> None:
        self._count = multiprocessing.get_context("spawn").Value("q", 0)

    def add(self, number: int) -> int:
        """Add to it, and return what it is now."""
        with self._count.get_lock():
            self._count.value += number
            return int(self._count.value)

    def total(self) -> int:
        """Return what it is now."""
        return int(self._count.value)


def _run_role(line: Connection[Any, Any], role: Callable[..., object], arguments: Any) -> None:
    try:
        result = role(Post(line), *arguments)
    except Exception as error:  # noqa: BLE001 - the boundary: it is told to the other end
        traceback.print_exc()
        line.send(("failed", repr(error)))
    else:
        line.send(("done", result))


class Crew:
    """Processes of the same role. Use as a context: at its end none is left."""

    def __init__(self, role: Callable[..., object], arguments: Sequence[tuple[Any, ...]]) -> None:
        """Start one process for each tuple of arguments, and wait until all are ready."""
        context = multiprocessing.get_context("spawn")
        self._lines: list[Any] = []  # of connections, whose class is the platform's
        self._processes: list[Any] = []
        with contextlib.ExitStack() as undo:
            undo.callback(self.close)
            for one in arguments:
                ours, theirs = context.Pipe()
                process = context.Process(target=_run_role, args=(theirs, role, one), daemon=True)
                process.start()
                theirs.close()
                self._lines.append(ours)
                self._processes.append(process)
            self._receive("ready", READY_S)
            undo.pop_all()

    def go(self) -> float:
        """Let all of them start; return when, by `time.perf_counter`."""
        started = time.perf_counter()
        for line in self._lines:
            line.send("go")
        return started

    def stop(self) -> None:
        """Ask all of them to stop; `results` then says what they found."""
        for line in self._lines:
            line.send("stop")

    def results(self, timeout_s: float = RESULT_S) -> list[Any]:
        """Wait until all have ended, and return what each returned."""
        return self._receive("done", timeout_s)

    def _receive(self, expected: str, timeout_s: float) -> list[Any]:
        """Hear from each of them; raise WrongError as soon as one says anything else."""
        until = time.monotonic() + timeout_s
        found: dict[Any, Any] = {}
        while len(found) < len(self._lines):
            silent = [line for line in self._lines if line not in found]
            heard = connection.wait(silent, max(0.0, until - time.monotonic()))
            if not heard:
                raise WrongError(f"a server process was not {expected} within {timeout_s:g} s")
            for line in heard:
                found[line] = self._heard(line, expected)
        return [found[line] for line in self._lines]

    def _heard(self, line: Any, expected: str) -> Any:
        try:
            kind, value = line.recv()
        except EOFError:
            raise WrongError(f"a server process died before it was {expected}") from None
        if kind != expected:
            raise WrongError(f"a server process is {kind}, not {expected}: {value}")
        return value

    def close(self) -> None:
        """End what is still running."""
        for line in self._lines:
            line.close()
        for process in self._processes:
            process.join(END_S)
            if process.is_alive():
                process.kill()
                process.join(END_S)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def timed_run(role: Callable[..., float], arguments: Sequence[tuple[Any, ...]]) -> float:
    """Run a crew to its end: the seconds from its start to the latest time that a role returns."""
    with Crew(role, arguments) as crew:
        started = crew.go()
        ended: list[float] = crew.results()
    return max(ended) - started
