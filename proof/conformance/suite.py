"""What every driver must do: behaviours, written once, run on each.

For tests of drivers: give each of `BEHAVIOURS` an empty `Repository` of the driver's. A behaviour
raises NotConformant, or whatever the driver wrongly raised. Behaviours know only Ops and Programs,
no driver, and wait only by moving the repository's time.
"""

from __future__ import annotations

from inspect import isfunction, signature
from typing import TYPE_CHECKING

from proof.conformance import (
    breaker_behaviours,
    charge_behaviours,
    client_behaviours,
    failure_behaviours,
    history_behaviours,
    limit_behaviours,
    order_behaviours,
    periodic_behaviours,
    processing_behaviours,
    report_behaviours,
    retention_behaviours,
    scan_behaviours,
    server_behaviours,
    stream_behaviours,
    trim_behaviours,
    window_behaviours,
)
from proof.conformance.ground import Connection, NotConformant, Repository

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["BEHAVIOURS", "Connection", "NotConformant", "Repository"]

_ROOMS = (
    client_behaviours,
    window_behaviours,
    processing_behaviours,
    server_behaviours,
    charge_behaviours,
    history_behaviours,
    stream_behaviours,
    order_behaviours,
    limit_behaviours,
    report_behaviours,
    failure_behaviours,
    breaker_behaviours,
    periodic_behaviours,
    retention_behaviours,
    scan_behaviours,
    trim_behaviours,
)
BEHAVIOURS: tuple[Callable[[Repository], None], ...] = tuple(
    one
    for room in _ROOMS
    for one in vars(room).values()
    if isfunction(one)
    and one.__module__ == room.__name__
    and not one.__name__.startswith("_")
    and [*signature(one).parameters] == ["place"]
)
"""Every behaviour; each is given an empty repository of its own."""
