"""Steps of a simulation that are no operations of the queue manager: of callers and their disks.

Ops like others, so that each is a point at which a process may die. Performed by the simulator.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

from onceq.model.ops import Op

if TYPE_CHECKING:
    from onceq.model.element import Element

T = TypeVar("T")


class Renew(Op[bool]):
    """Makes the connection anew when it is broken; whether it was."""


class Ask(Op[Any]):
    """Puts an Op of a client into the line of its desk. seat: where the answer arrives."""

    op: Op[Any]
    seat: Any


class Caller(Op[T]):
    """Performs an Op on the caller's own connection, in the transaction that is open there."""

    op: Op[T]


class CallerBegins(Op[None]):
    """Makes the caller's own connection, if it broke, and begins a transaction on it."""


class CallerWrites(Op[None]):
    """Writes into the ledger, in the caller's transaction."""

    key: str
    element: Element


class DiskStep(Op[Any]):
    """One step of a process's disk: a method of `SimulatedDisk`, and what it is given."""

    name: str
    given: tuple[Any, ...]
