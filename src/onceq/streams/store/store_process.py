"""A store in a process of its own, which ends with the one that began it.

For an application that has contexts, and wants a store beside them. Source: UM, "Callable Store";
spec M36.
"""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
import time
from types import TracebackType
from typing import Final, Self

import msgspec

from onceq.errors import DeadlineExceeded, IllegalState
from onceq.streams.errors import StoreFailed, StoreRefused
from onceq.streams.store.child import FINISHED, Reported, packed
from onceq.streams.store.rolling import LogFile
from onceq.streams.store.running import StoreSettings

BEGIN: Final = (
    "import sys; from onceq.streams.store.child import main; raise SystemExit(main(sys.argv[1:]))"
)
"""The package imports that module, so `-m` would run it a second time, and warn of that."""


class StoreProcess:
    """A store, from `start` to `stop`; or as long as a `with` block lasts.

    log: where it logs; None: to standard error. It stops in order when this process ends, however
    that ends, and whenever it is told to; with kill -9 it loses nothing that it acknowledged.
    """

    def __init__(self, settings: StoreSettings, *, log: LogFile | None = None) -> None:
        settings.checked()
        self._settings = settings
        self._log = log
        self._running: subprocess.Popen[bytes] | None = None
        self._reported = Reported()

    def start(self, timeout_s: float = 60.0) -> None:
        """Begin the process; return when others can connect.

        Raises StoreRefused with what the store said, StoreFailed if its disk failed or it died, and
        DeadlineExceeded: then it is not there any more.
        """
        if self._running is not None:
            raise IllegalState("a StoreProcess is started once; make another one")
        arguments = (str(os.getpid()), packed(self._settings), packed(self._log))
        self._running = subprocess.Popen(
            [sys.executable, "-c", BEGIN, *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,  # Ctrl-C in the terminal is for the application
        )
        try:
            self._reported = self._first(self._running, time.monotonic() + timeout_s)
        except BaseException:
            self._kill(self._running)
            raise

    def _first(self, running: subprocess.Popen[bytes], until_s: float) -> Reported:
        """Wait for the first line."""
        if running.stdout is None:
            raise TypeError("the process has no pipe")
        left_s = max(0.0, until_s - time.monotonic())
        if not select.select([running.stdout], [], [], left_s)[0]:
            raise DeadlineExceeded("the store did not begin in time; its log may say why")
        line = running.stdout.readline()
        if not line:
            raise StoreFailed(f"the store's process ended with {running.wait()} before it began")
        said = msgspec.json.decode(line, type=Reported)
        if said.error:
            running.wait()
            kind = StoreRefused if said.error == StoreRefused.__name__ else StoreFailed
            raise kind(said.text)
        return said

    @property
    def address(self) -> str:
        """Where it listens: for lists of stores. Raises IllegalState before it began."""
        return self._began().address

    @property
    def metrics(self) -> str | None:
        """Where its metrics are; None: nowhere. Raises IllegalState before it began."""
        return self._began().metrics

    def _began(self) -> Reported:
        if not self._reported.address:
            raise IllegalState("the store has not begun: start it first")
        return self._reported

    @property
    def pid(self) -> int:
        """The number of its process. Raises IllegalState before it began."""
        self._began()
        return 0 if self._running is None else self._running.pid

    @property
    def code(self) -> int | None:
        """Its exit code, or minus a signal; None while it runs, and before."""
        return None if self._running is None else self._running.poll()

    def stop(self, timeout_s: float = 30.0) -> None:
        """Have it commit what it took, and end; return when it has. Again: nothing.

        Raises DeadlineExceeded if it is not over in time: then it was killed, and what it had
        acknowledged is there; StoreFailed if it had ended otherwise.
        """
        running = self._running
        if running is None or running.stdin is None or running.stdin.closed:
            return
        running.send_signal(signal.SIGTERM)
        try:
            code = running.wait(timeout_s)
        except subprocess.TimeoutExpired:
            raise DeadlineExceeded(
                f"the store did not end within {timeout_s} s, and was killed"
            ) from None
        finally:
            text = self._kill(running)
        if code != FINISHED:
            raise StoreFailed(text or f"the store's process had ended with {code}")

    def _kill(self, running: subprocess.Popen[bytes]) -> str:
        """Leave nothing of the process; return the error that it reported last."""
        running.kill()
        with running:
            last = b"" if running.stdout is None else running.stdout.read()
        said = [msgspec.json.decode(line, type=Reported) for line in last.splitlines()]
        return said[-1].text if said else ""

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()
