"""What is logged of a takeover: whose claims they were, and each abort that was not free.

Used by whoever takes over: servers, their supervisor, queue managers, Spark's driver.
"""

from __future__ import annotations

import logging
from dataclasses import fields
from typing import Any

from onceq import telemetry
from onceq.model import ops

log = logging.getLogger(__name__)


def tell_taken(taken: ops.TakenOver) -> None:
    """Logs what became of an incarnation's claims, and each abort among them."""
    event = telemetry.TookOver(
        of_incarnation=taken.incarnation,
        of_process=taken.process,
        of_host=taken.host,
        of_pid=taken.pid,
        of_spark_server=taken.spark_server,
        returned=taken.returned,
        suspects=taken.suspects,
        charged=taken.charged,
    )
    telemetry.tell(log, event)
    for one in taken.aborted:
        telemetry.tell(log, aborted_event(one))


def known_of(one: ops.Aborted) -> dict[str, Any]:
    """Returns what the log says of an abort: all but its text, which may be the user's."""
    known = {field.name: getattr(one, field.name) for field in fields(one) if field.name != "error"}
    return known | {"charge": one.charge.value, "fate": one.fate.value}


def aborted_event(one: ops.Aborted, traceback: str | None = None) -> telemetry.Aborted:
    """Returns the event for an abort. traceback: of the handler that raised, if one did."""
    return telemetry.Aborted(**known_of(one), traceback=traceback)
