"""Three stores of onceq's streams on loopback, each a process."""

from __future__ import annotations

import contextlib
import os
import signal
from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

from onceq.streams.store.rolling import LogFile
from onceq.streams.store.running import StoreKind, StoreSettings
from onceq.streams.store.store_process import StoreProcess

if TYPE_CHECKING:
    from pathlib import Path

ANY = "127.0.0.1:0"
COUNT = 3
START_S = 300.0
END_S = 60.0


@dataclass(slots=True)
class _One:
    """A store. settings: with the address that it was given first."""

    settings: StoreSettings
    process: StoreProcess


class Stores:
    """A group of three. Use as a context: none is left. listed: as a list of stores."""

    def __init__(self, directory: Path, *, in_memory: bool = False) -> None:
        self._directory = directory
        self._all: list[_One] = []
        self._in_memory = in_memory
        with contextlib.ExitStack() as undo:
            undo.callback(self.close)
            for number in range(COUNT):
                self._all.append(self._begun(number))
            undo.pop_all()

    def _begun(self, number: int) -> _One:
        kind = StoreKind.MEMORY if self._in_memory else StoreKind.DISK
        home = None if self._in_memory else self._directory / f"store-{number}"
        settings = StoreSettings(listen=ANY, directory=home, kind=kind, init=home is not None)
        process = self._started(number, settings)
        again = StoreSettings(listen=process.address, directory=home, kind=kind)
        return _One(again, process)

    @property
    def listed(self) -> str:
        """Their addresses, as a list of stores has them."""
        return " ".join(one.settings.listen for one in self._all)

    @property
    def pids(self) -> list[int]:
        """Their processes."""
        return [one.process.pid for one in self._all]

    def kill(self, number: int) -> None:
        """Kill one with -9."""
        one = self._all[number]
        os.kill(one.process.pid, signal.SIGKILL)
        with contextlib.suppress(Exception):  # that it was killed
            one.process.stop(END_S)

    def start(self, number: int) -> None:
        """Start one anew, at its address; return when it serves."""
        one = self._all[number]
        one.process = self._started(number, one.settings)

    def _started(self, number: int, settings: StoreSettings) -> StoreProcess:
        log = LogFile(path=self._directory / f"store-{number}.log")
        process = StoreProcess(settings, log=log)
        process.start(START_S)
        return process

    def close(self) -> None:
        """End them; one that was killed has ended."""
        with contextlib.ExitStack() as stack:
            for one in self._all:
                if one.process.code is None:
                    stack.callback(one.process.stop, END_S)
        self._all = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
