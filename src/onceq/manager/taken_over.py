"""What is logged of a takeover: whose claims they were, and each abort that was not free.

Used by whoever takes over: servers, their supervisor, queue managers, Spark's driver.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from onceq import telemetry

if TYPE_CHECKING:
    from onceq.model import ops

log = logging.getLogger(__name__)


def tell_taken(taken: ops.TakenOver) -> None:
    """Logs what became of an incarnation's claims, and each abort among them."""
    telemetry.tell(log, took_over(taken))
    for one in taken.aborted:
        telemetry.tell(log, aborted(one))


def aborted(one: ops.Aborted) -> telemetry.Aborted:
    """Returns the event for an abort that no handler could report."""
    return telemetry.Aborted(
        queue=one.queue,
        rid=one.rid,
        eid=one.eid,
        attempt=one.attempt,
        code=one.code,
        charge=one.charge.value,
        fate=one.fate.value,
        traceback=None,
    )


def took_over(one: ops.TakenOver) -> telemetry.TookOver:
    """Returns the event for what an incarnation held."""
    return telemetry.TookOver(
        of_incarnation=one.incarnation,
        of_process=one.process,
        of_host=one.host,
        of_pid=one.pid,
        of_spark_server=one.spark_server,
        returned=one.returned,
        suspects=one.suspects,
        charged=one.charged,
    )
