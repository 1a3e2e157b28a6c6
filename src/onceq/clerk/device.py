"""Testable devices: a client outputs to one, and can ask afterwards whether it did (spec C8).

A protocol, implemented by the client's own printers, dispensers and files.
Source: BHM90 3; CSEP 9.2, testable operations.
"""

from __future__ import annotations

from collections.abc import Awaitable
from typing import Protocol


class Device(Protocol):
    """A device whose state tells whether an output took place, such as its next ticket's number.

    Each output changes the state, completely or not at all, to one that it never had before.
    Nobody else may use the device between the reading of its state and the output.
    """

    def state(self) -> bytes | Awaitable[bytes]:
        """Returns the state as it is now: at most 64 KiB. Only AsyncClerk awaits it."""
        ...
