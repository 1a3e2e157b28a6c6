"""A store's process, with the arguments PARENT, SETTINGS and LOG.

Started by `StoreProcess` only. Standard input is a pipe from the parent, on which nothing comes:
its end means that the parent is gone, and the store then stops as if told to. Standard output has
two kinds of lines of JSON: that it serves, and the error that ends it.
"""

from __future__ import annotations

import logging
import os
import select
import sys
import threading
from pathlib import Path
from typing import Any, Final

import msgspec

from onceq.errors import OnceqError
from onceq.streams.store.rolling import LogFile, RollingHandler
from onceq.streams.store.running import RunningStore, StoreSettings, run_store

FINISHED: Final = 0
FAILED: Final = 4
"""Exit code: an error that was reported."""
LOOK_EVERY_S: Final = 1.0
TEXT: Final = "%(asctime)s %(process)d %(levelname)s %(name)s: %(message)s"


class Reported(msgspec.Struct, frozen=True, kw_only=True):
    """What the child says: where it serves, or the error that ends it, and its text."""

    address: str = ""
    metrics: str | None = None
    error: str = ""
    text: str = ""


def packed(one: StoreSettings | LogFile | None) -> str:
    """Return settings as an argument."""
    return msgspec.json.encode(one, enc_hook=str).decode()


def _unpacked(text: str, kind: Any) -> Any:
    return msgspec.json.decode(text, type=kind, dec_hook=lambda _, value: Path(value))


def main(arguments: list[str]) -> int:
    """Run a store until it is told to stop, or the parent is gone; return the exit code."""
    parent, settings, file = arguments
    log_to: LogFile | None = _unpacked(file, LogFile | None)
    handler = logging.StreamHandler(sys.stderr) if log_to is None else RollingHandler(log_to)
    handler.setFormatter(logging.Formatter(TEXT))
    logging.basicConfig(level=logging.INFO, handlers=[handler])

    def ready(running: RunningStore) -> None:
        heeding = threading.Thread(target=_heed, args=(int(parent), running), daemon=True)
        heeding.start()
        _report(Reported(address=running.address, metrics=running.metrics))

    try:
        run_store(_unpacked(settings, StoreSettings), ready=ready)
    except OnceqError as error:
        _report(Reported(error=type(error).__name__, text=str(error)))
        return FAILED
    return FINISHED


def _heed(parent: int, running: RunningStore) -> None:
    """Stop the store when the parent is gone: also if a child of its own has the pipe still."""
    while os.getppid() == parent:
        if select.select([sys.stdin], [], [], LOOK_EVERY_S)[0]:
            break
    running.stop()


def _report(one: Reported) -> None:
    """Tell the parent, unless it is gone."""
    try:
        os.write(sys.stdout.fileno(), msgspec.json.encode(one) + b"\n")
    except BrokenPipeError:
        return
