"""What source and sink are told: a value, and the strings in which it travels through Spark.

Spark shows options to anyone who may see the query, so they hold no password: a connection string
with one is refused here.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass

import msgspec

from onceq.engine.perform.spark_driver import Route, has_password
from onceq.errors import InvalidValue
from onceq.spark.given.tables import TableChange

_NUMBERS = ("server_id", "epoch", "batch_rows", "partitions", "idle_ms")


def route_of(options: Mapping[str, str]) -> Route:
    """Returns where a repository is, from options that hold conninfo and repository."""
    return Route(
        url=options.get("url", ""),
        conninfo=options["conninfo"],
        repository=options["repository"],
        executors=options.get("executors", ""),
    )


def check_given(options: Mapping[str, str], needed: Iterable[str], made_by: str) -> None:
    """Raises InvalidValue if an option is missing. made_by: what returns all of them."""
    missing = [name for name in needed if name not in options]
    if missing:
        raise InvalidValue(
            f"option {missing[0]!r} is missing: take them from onceq.spark.{made_by}(...)"
        )


def numbers_of(options: Mapping[str, str], names: Sequence[str]) -> dict[str, int]:
    """Returns options that are whole numbers. Raises InvalidValue."""
    if not all(re.fullmatch(r"[0-9]{1,18}", options[name]) for name in names):
        raise InvalidValue(f"options {', '.join(names)} are numbers")
    return {name: int(options[name]) for name in names}


@dataclass(frozen=True, slots=True, kw_only=True)
class ServingOptions:
    """A life of a Spark server, as its source and its sink know it.

    batch_rows: most requests in a micro-batch. partitions: most tasks that read one. idle_ms: how
    long a source with nothing to read waits before it looks again.
    content_type: of replies. stateful: the query keeps a state. token: under which its processes
    report failures; empty: they do not. tables: from column of the sink to change of a table.
    requests: the type of requests, in the form of `handlers.told`; empty: bodies are left to
    whoever takes them.
    """

    route: Route
    server_id: int
    epoch: int
    batch_rows: int = 50_000
    partitions: int = 2
    idle_ms: int = 100
    content_type: str | None = None
    stateful: bool = False
    requests: str = ""
    token: str = ""
    tables: Mapping[str, TableChange]

    def to_spark(self) -> dict[str, str]:
        """Returns the options for `readStream` and `writeStream`. Raises InvalidValue."""
        route = self.route
        if any(map(has_password, (route.conninfo, route.executors, route.url))):
            raise InvalidValue(
                "the URL holds a password, and Spark shows its options: use a passfile"
            )
        return {
            **asdict(route),
            "content_type": self.content_type or "",
            "stateful": "true" if self.stateful else "",
            "requests": self.requests,
            "token": self.token,
            "tables": msgspec.json.encode(dict(self.tables)).decode(),
            **{name: str(getattr(self, name)) for name in _NUMBERS},
        }

    @classmethod
    def from_spark(cls, options: Mapping[str, str]) -> ServingOptions:
        """Returns the value of Spark's options. Raises InvalidValue if one is missing."""
        check_given(options, ("conninfo", "repository", *_NUMBERS), "register")
        return cls(
            route=route_of(options),
            content_type=options.get("content_type") or None,
            stateful=options.get("stateful") == "true",
            requests=options.get("requests", ""),
            token=options.get("token", ""),
            tables=msgspec.json.decode(options.get("tables", "{}"), type=dict[str, TableChange]),
            **numbers_of(options, _NUMBERS),
        )
