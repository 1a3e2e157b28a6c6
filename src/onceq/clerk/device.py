"""Testable devices: what a client outputs to, and can ask afterwards whether it did (spec C8).

A protocol, implemented by the client's own printers, dispensers and files.
Source: BHM90 3; CSEP 9.2, testable operations.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Awaitable


class Device(Protocol):
    """A device whose state tells whether an output took place: the number of its next ticket, say.

    Each output changes the state, whole or not at all, to one that it never had before. From the
    moment at which the state is read until the output, nobody else may use the device.
    """

    def state(self) -> bytes | Awaitable[bytes]:
        """Returns the state, as it is now: at most 64 KiB. Awaited by AsyncClerk only."""
        ...
