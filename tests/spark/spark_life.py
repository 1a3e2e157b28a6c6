"""A Spark server's life played by hand, through its Ops, without Spark."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from onceq.engine.perform.driver import connect
from onceq.engine.perform.spark_driver import NAMED, REPLIES, ROWS, SparkDriver
from onceq.model.spark_ops import (
    SparkAttempt,
    SparkClaim,
    SparkCommit,
    SparkCommitted,
    SparkOpen,
    SparkPlan,
    SparkRead,
    SparkRegistration,
    SparkRequest,
)
from tests.spark.spark_parts import QUEUE, Repository

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

Reply = tuple[str | None, str | None, bool | None]


class Life:
    """A life of a Spark server, played by hand."""

    def __init__(self, repository: Repository, name: str = "spark", **options: Any) -> None:
        self.repository = repository
        self.driver = SparkDriver(connect(repository.conninfo), repository.name)
        repository.opened.append(self.driver.connection)
        self.who: SparkRegistration = self.driver.perform(
            SparkOpen(name=name, queue=QUEUE, **options)
        )
        self.tables: list[dict[str, Any]] = [
            {
                "no": 1,
                "table": f"{repository.name}.booked",
                "mode": "insert",
                "columns": ["rid", "customer", "cents"],
                "keys": [],
                "add": [],
            },
            {
                "no": 2,
                "table": f"{repository.name}.totals",
                "mode": "add",
                "columns": ["customer", "cents"],
                "keys": ["customer"],
                "add": ["cents"],
            },
        ]

    def claim(self, start: int = 0, n: int = 100, bound: int | None = None) -> int:
        return self.driver.perform(
            SparkClaim(
                server_id=self.who.server_id, epoch=self.who.epoch, start=start, n=n, bound=bound
            )
        )

    def plan(self, group: int) -> list[SparkRequest]:
        who = {"server_id": self.who.server_id, "epoch": self.who.epoch}
        size = self.driver.perform(SparkPlan(**who, group=group))
        rows = self.driver.perform(SparkRead(group=group, first=1, last=size))
        names = SparkRequest.__dataclass_fields__
        return [SparkRequest(**dict(zip(names, row, strict=True))) for row in rows]

    def stage(
        self,
        requests: Sequence[SparkRequest],
        batch: int = 0,
        query: str = "q",
        reply: Callable[[SparkRequest], Reply] = lambda _: ("ok", None, None),
        named: Sequence[SparkRequest] = (),
    ) -> tuple[list[int], int]:
        who = {"server_id": self.who.server_id, "epoch": self.who.epoch}
        with self.driver.staging(SparkAttempt(**who, query_id=query, batch_id=batch)) as stage:
            for request in requests:
                body = msgspec.json.decode(request.body)
                head = f"{stage.attempt},{request.eid}"
                text, error, reject = reply(request)
                line = f"{head},{text or ''},{error or ''},{'' if reject is None else reject}\n"
                columns = ["attempt", "eid", "reply", "error", "reject"]
                stage.copy(REPLIES, columns, line.encode())
                line = f"{stage.attempt},1,{request.eid},{request.rid},{body['customer']},"
                columns = ["attempt", "table_no", "eid", "c1", "c2", "c3"]
                stage.copy(ROWS, columns, f"{line}{body['cents']}\n".encode())
                line = f"{stage.attempt},2,{request.eid},{body['customer']},{body['cents']}\n"
                stage.copy(ROWS, columns[:-1], line.encode())
            lines = "".join(f"{stage.attempt},{request.eid}\n" for request in named)
            stage.copy(NAMED, ["attempt", "eid"], lines.encode())
        return [stage.attempt], stage.rows

    def commit(
        self, staged: tuple[list[int], int], batch: int = 0, query: str = "q"
    ) -> SparkCommitted:
        return self.driver.perform(
            SparkCommit(
                server_id=self.who.server_id,
                epoch=self.who.epoch,
                query_id=query,
                batch_id=batch,
                attempts=staged[0],
                rows=staged[1],
                tables=self.tables,
            )
        )

    def end(self) -> None:
        self.driver.connection.close()
