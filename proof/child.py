"""The process of one part: `python -m proof.child JSON`, started by proof/running.py.

It writes its progress and, in the end, its outcome to a pipe. If the part raises, this ends with a
traceback and exit code 1; the runner makes a failure of it.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from proof.part import Order, Size
from proof.table import parts_of
from proof.wire import Asked, Ended, Said

if TYPE_CHECKING:
    from proof.part import Outcome

PACE_S = 0.1
"""Reports that follow each other sooner than this are not passed on."""


class Teller:
    """Writes lines to the runner. May be called by several threads of the part."""

    def __init__(self, descriptor: int) -> None:
        os.set_inheritable(descriptor, False)  # noqa: FBT003 - no keyword; for the part alone
        self._file = os.fdopen(descriptor, "wb", buffering=0)
        self._lock = threading.Lock()
        self._last = -PACE_S

    def say(self, text: str, done: int, of: int) -> None:
        """Say what is being done now, unless something was said a moment ago."""
        with self._lock:
            now = time.monotonic()
            if now - self._last >= PACE_S or done == of:
                self._last = now
                self._file.write(msgspec.json.encode(Said(text, done, of)) + b"\n")

    def end(self, outcome: Outcome) -> None:
        """Hand the outcome over."""
        left = msgspec.json.encode(Ended(outcome)) + b"\n"
        with self._lock:
            while left:  # a pipe takes a long line in pieces
                left = left[self._file.write(left) :]


def main() -> None:
    """Run the one requested part."""
    asked = msgspec.json.decode(sys.argv[1], type=Asked)
    (part,) = (one for one in parts_of(asked.table) if one.name == asked.name)
    teller = Teller(asked.answers)
    place = Path(asked.place)
    order = Order(size=Size(asked.size), seed=asked.seed, place=place, say=teller.say)
    teller.end(part.run(order))


if __name__ == "__main__":
    main()
