"""Enqueuing a DataFrame: `df.write.format("onceq").options(**options).mode("append").save()`.

Public through `onceq.spark`. Where rows go and whose they are, and the strings in which that
travels through Spark. The driver holds the registration: it begins a life of the registrant, and
executors enqueue in that life. Source: spec P3, C6.
"""

from __future__ import annotations

import contextlib
from collections.abc import Generator, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any, Final

from onceq.engine.perform.spark_driver import Route, spark_driver
from onceq.model.names import check_id
from onceq.model.ops import Connect
from onceq.model.queue import Queue, content_type_of
from onceq.spark.given.options import check_given, numbers_of, route_of
from onceq.spark.given.route import reach_route

_NUMBERS: Final = ("registrant_id", "epoch", "send_no")
_NEEDED: Final = ("conninfo", "repository", "queue", "content_type")


@dataclass(frozen=True, slots=True, kw_only=True)
class WritingOptions:
    """Where rows go. registrant_id, epoch, send_no: the life that sends them; None: datagrams."""

    route: Route
    queue: str
    content_type: str
    registrant_id: int | None = None
    epoch: int | None = None
    send_no: int | None = None

    def to_spark(self) -> dict[str, str]:
        """Returns the options for `df.write`."""
        given = {name: getattr(self, name) for name in _NUMBERS}
        return {
            **asdict(self.route),
            "queue": self.queue,
            "content_type": self.content_type,
            **{name: str(value) for name, value in given.items() if value is not None},
        }

    @classmethod
    def from_spark(cls, options: Mapping[str, str]) -> WritingOptions:
        """Returns the value of Spark's options. Raises InvalidValue if one is missing."""
        given = [name for name in _NUMBERS if name in options]
        check_given(options, (*_NEEDED, *(_NUMBERS if given else ())), "writing")
        return cls(
            route=route_of(options),
            queue=options["queue"],
            content_type=options["content_type"],
            **(numbers_of(options, _NUMBERS) if given else {}),
        )


@contextlib.contextmanager
def writing(
    queue: Queue[Any, Any],
    url: str | None = None,
    *,
    registrant: str | None,
    repository: str = "onceq",
    local: bool = True,
) -> Generator[dict[str, str]]:
    """Yields the options of `df.write.format("onceq")`, while the block runs.

    registrant: who sends the rows, as requests, and gets the replies; `onceq collect --client`, or
    a clerk of that name, receives them afterwards. Only one life at a time acts for a registrant:
    this begins one, and fences the former. None: the rows are datagrams, which nobody answers.
    local: the executors run on this machine. What was written when a job fails stays; write the
    same rows again, and each is enqueued once. Raises InvalidName, CannotConnect, SchemaMissing.
    """
    if registrant is not None:
        check_id("registrant", registrant)
    with reach_route(url, repository, local=local) as route, spark_driver(route) as driver:
        options = WritingOptions(
            route=route, queue=queue.name, content_type=content_type_of(queue.request_type)
        )
        if registrant is not None:
            life = driver.perform(Connect(name=registrant))
            options = replace(
                options, registrant_id=life.registrant_id, epoch=life.epoch, send_no=life.s_no
            )
        yield options.to_spark()
