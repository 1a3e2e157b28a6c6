"""Reading a repository as tables: `spark.read.format("onceq").options(**options).load()`.

Public through `onceq.spark`. What is read, and the strings in which that travels through Spark.
Source: spec P3.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Generator, Mapping
from dataclasses import asdict, dataclass
from typing import Final

from onceq.engine.perform.spark_driver import Route
from onceq.errors import InvalidValue
from onceq.spark.given.options import check_given, route_of
from onceq.spark.given.route import reach_route
from onceq.spark.read.relations import relation_of

_NUMBERS: Final = ("since", "until", "partitions")
_NUMBER: Final = re.compile("-?[0-9]{1,18}")


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadingOptions:
    """What is read. since, until: of the relation's key, the first excluded; None: to the last.

    snapshot: the name of one that somebody holds; empty: each task reads what is there then.
    """

    route: Route
    read: str
    since: int | None = None
    until: int | None = None
    partitions: int = 2
    snapshot: str = ""

    def to_spark(self) -> dict[str, str]:
        """Returns the options for `spark.read`."""
        given = {"since": self.since, "until": self.until, "partitions": self.partitions}
        return {
            **asdict(self.route),
            "read": self.read,
            "snapshot": self.snapshot,
            **{name: str(value) for name, value in given.items() if value is not None},
        }

    @classmethod
    def from_spark(cls, options: Mapping[str, str]) -> ReadingOptions:
        """Returns the value of Spark's options. Raises InvalidValue if one is missing."""
        check_given(options, ("conninfo", "repository", "read"), "reading")
        given = {name: options[name] for name in _NUMBERS if name in options}
        if wrong := [name for name, text in given.items() if not _NUMBER.fullmatch(text)]:
            raise InvalidValue(f"option {wrong[0]!r} is a whole number, not {given[wrong[0]]!r}")
        numbers = {name: int(text) for name, text in given.items()}
        snapshot = options.get("snapshot", "")
        route = route_of(options)
        return cls(route=route, read=options["read"], snapshot=snapshot, **numbers)


@contextlib.contextmanager
def reading(
    read: str,
    url: str | None = None,
    *,
    repository: str = "onceq",
    partitions: int = 2,
    local: bool = True,
) -> Generator[dict[str, str]]:
    """Yields the options of `spark.read.format("onceq")`, for as long as the block runs.

    read: "history" (a row for each request that has ended), "attempts" (one for each abort),
    "elements" (what is in the queues now, including error queues and replies), "registrations"
    (what each client sent and received last, and its checkpoint), "servers" (sessions that are
    serving now, and Spark servers, which have a name), "redrives", or "tags" (what each client said
    of its last send and receive when it acknowledged). With `spark.read.schema(...)`, which names
    some of the columns and their types, the others are not fetched. partitions: most tasks that
    read, each with a connection. local: the executors run on this machine. Conditions are only
    pushed down if `onceq.spark.session.REQUIRED_SETTINGS` are set; without the first of them Spark
    refuses the source. Raises InvalidValue, CannotConnect, SchemaMissing.
    """
    relation_of(read)
    with reach_route(url, repository, local=local) as route:
        yield ReadingOptions(route=route, read=read, partitions=partitions).to_spark()
