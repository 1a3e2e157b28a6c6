"""A driver of Spark's Ops that outlives its connection.

Used by the Spark server to supervise, plan, read, stage and commit. Beginning a query again takes
Spark seconds; a connection takes milliseconds. An Op is asked again only if that is safe, whatever
became of it the first time; any other fails, and ends the query.
"""

from __future__ import annotations

import contextlib
import logging
import threading
from typing import TYPE_CHECKING, Any, Final, Self, TypeVar

from onceq import errors, telemetry
from onceq.engine.perform.spark_driver import SparkDriver, spark_driver

if TYPE_CHECKING:
    from collections.abc import Callable

    from onceq.engine.perform.spark_driver import Route
    from onceq.model import ops

log = logging.getLogger(__name__)

LOST: Final = (errors.CannotConnect, errors.ConnectionLost, errors.InDoubt)
WAITS_S: Final = (0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 5.0, 5.0)
"""Between attempts: PostgreSQL is back from a crash in a second, from a failover in a few."""

T = TypeVar("T")


class Steadfast:
    """Performs Ops on a connection that is made when it is needed, and anew when it broke.

    pause: waits so many seconds. A context manager: its end closes it. A copy in
    another process has the same route, and connects for itself.
    """

    def __init__(self, route: Route, pause: Callable[[float], Any] | None = None) -> None:
        self._route = route
        self._pause = pause or threading.Event().wait
        self._kept = contextlib.ExitStack()
        self._driver: SparkDriver | None = None

    def perform(self, op: ops.Op[T]) -> T:
        """Performs an Op once. Raises what it does; if one of LOST, the next call connects anew."""
        return self._attempt(lambda driver: driver.perform(op))

    def run(self, program: ops.Program[T]) -> T:
        """Runs a Program once. Raises as `perform` does."""
        return self._attempt(lambda driver: driver.run(program))

    def insist(self, op: ops.Op[T]) -> T:
        """Performs an Op that may be performed twice, until its outcome is known.

        Raises what it does, but one of LOST only after the last of WAITS_S.
        """
        return self._insist(lambda driver: driver.perform(op))

    def driver(self) -> SparkDriver:
        """Returns the driver, connected; waits as `insist` does. Raises CannotConnect."""
        return self._insist(lambda driver: driver)

    def close(self) -> None:
        """Closes the connection; idempotent, and the next call makes another."""
        self._driver = None
        self._kept.close()

    def _insist(self, act: Callable[[SparkDriver], T]) -> T:
        for number, wait_s in enumerate(WAITS_S):
            try:
                return self._attempt(act)
            except LOST as error:
                if number == 0:
                    telemetry.tell(log, telemetry.SparkConnectionLost(error=str(error)))
                self._pause(wait_s)
        return self._attempt(act)

    def _attempt(self, act: Callable[[SparkDriver], T]) -> T:
        try:
            if self._driver is None:
                self._driver = self._kept.enter_context(spark_driver(self._route))
            return act(self._driver)
        except LOST:
            self.close()
            raise

    def __reduce__(self) -> tuple[type[Steadfast], tuple[Route]]:
        return Steadfast, (self._route,)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
