"""Processes of a run, each forked from a warm one, and what they ask of the one that started them.

A new Python costs half a second of a core; a fork of one that has imported everything costs
milliseconds. Used by the fault points and the crash tests. A process is told everything by its
arguments: it inherits no connection, no thread and no secret of the one that started it.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import multiprocessing.process
import os
import socket
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Generator
    from multiprocessing.process import BaseProcess
    from pathlib import Path

WARM: Final = ["proof.fault_programs", "proof.harness.fleet"]
"""What the process that forks them has imported."""
_CONTEXT: Final = multiprocessing.get_context("forkserver")
_STARTING: Final = threading.Lock()
_ASKED_BYTES: Final = 64


def start(target: Callable[..., object], *arguments: Any) -> BaseProcess:
    """Starts a process that makes this call. Whoever starts it ends it."""
    process = _CONTEXT.Process(target=target, args=arguments, daemon=True)
    with _STARTING:  # each start polls all children there are
        _CONTEXT.set_forkserver_preload(WARM)
        process.start()
        vars(multiprocessing.process)["_children"].discard(process)
    _poll_in_turn(process)
    return process


def _poll_in_turn(process: BaseProcess) -> None:
    """Lets one thread at a time ask how a process ended.

    Its forkserver says it once: of two threads that read it side by side, one would hear 255.
    """
    popen = vars(process)["_popen"]
    turn, poll = threading.Lock(), popen.poll

    def polled(*flag: int) -> int | None:
        with turn:
            code: int | None = poll(*flag)
        return code

    popen.poll = polled


def say_into(path: Path) -> None:
    """Sends what this process writes to its standard output and error into a file, at its end."""
    log = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    os.dup2(log, 1)
    os.dup2(log, 2)
    os.close(log)


@contextlib.contextmanager
def hearing(path: Path, do: Callable[[str], None]) -> Generator[None]:
    """Hears what processes ask for at their fault points, and answers when it is done.

    An error while doing so is raised at the end.
    """
    ear = socket.socket(socket.AF_UNIX)
    ear.bind(str(path))
    ear.listen()

    def hear() -> None:
        with ear:
            while True:  # until it is shut down
                try:
                    asking, _ = ear.accept()
                except OSError:
                    return
                with asking:
                    do(asking.recv(_ASKED_BYTES).decode())
                    with contextlib.suppress(BrokenPipeError):  # it was killed: what it asked for
                        asking.sendall(b"1")

    with ThreadPoolExecutor(1) as listening:
        heard = listening.submit(hear)
        try:
            yield
        finally:
            with contextlib.suppress(OSError):  # closed: it went wrong, which is raised here
                ear.shutdown(socket.SHUT_RDWR)
            heard.result()
