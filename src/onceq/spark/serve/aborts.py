"""What a Spark server logs: which requests were aborted, and what it took over from others.

Used by its driver. Its tasks and its sink run in processes whose logs nobody sees, so it reads the
attempts; where nothing was aborted that is one short statement a second.
"""

from __future__ import annotations

import logging

from onceq import telemetry
from onceq.engine.perform.spark_driver import SparkDriver
from onceq.engine.perform.steadfast import LOST, Steadfast
from onceq.manager.taken_over import tell_taken
from onceq.manager.ticking import tend_at_times
from onceq.model.element import Fate
from onceq.model.ops import ListTakenOver
from onceq.model.spark_ops import SparkAborted, SparkAborts, SparkLastRecord, SparkTakeOver

log = logging.getLogger(__name__)


class Aborts:
    """The aborts of a server in one run, each told once: those after what there was when it began.

    Each look begins where the one before the last ended: a record may commit after a later one.
    """

    def __init__(self, queue: str, name: str, driver: Steadfast | SparkDriver) -> None:
        self._queue = queue
        self._name = name
        self._since = self._latest = driver.perform(SparkLastRecord())
        self._told: set[int] = set()

    def tell(self, driver: Steadfast | SparkDriver) -> None:
        """Logs what has come since the last time. Raises one of LOST: then it is told later."""
        found = driver.perform(SparkAborts(name=self._name, since=self._since))
        for one in found:
            if one.record not in self._told:
                telemetry.tell(log, self._event(one))
        self._told = {one.record for one in found}
        self._since, self._latest = self._latest, max(self._told, default=self._latest)

    def _event(self, one: SparkAborted) -> telemetry.Aborted:
        return telemetry.Aborted(
            queue=self._queue,
            rid=one.rid or "",
            eid=one.eid,
            attempt=one.attempt,
            code=one.code or "",
            charge=one.charge,
            fate=(Fate.FAILED if one.failed else Fate.RETURNED).value,
            traceback=one.traceback,
        )


def tell_aborts(aborts: Aborts | None, driver: Steadfast | SparkDriver) -> None:
    """Logs what has come, if it can be asked just now."""
    try:
        if aborts is not None:
            aborts.tell(driver)
    except LOST:
        return  # asked again soon; that the connection is lost is told by who needs it


def take_over(driver: Steadfast, aborts: Aborts | None, server_id: int, grace_s: float) -> None:
    """Shows that a server lives; takes over from those that died, unseen for grace_s; ticks.

    Logs that, and its own aborts. Raises one of LOST.
    """
    if driver.perform(SparkTakeOver(server_id=server_id, grace_s=grace_s)):
        for one in driver.perform(ListTakenOver()):
            tell_taken(one)
    driver.run(tend_at_times())
    if aborts is not None:
        aborts.tell(driver)
