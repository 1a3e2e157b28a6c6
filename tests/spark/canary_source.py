"""The smallest stream source and sink that log every call Spark makes to them.

The source counts to the number in the file `available` of its directory, which it
raises by itself while the file `growing` is there; every call is one line of JSON
in the file `calls`. Apart from the tests, so that
Spark's Python processes import it by name without importing pytest.
"""

from __future__ import annotations

import dataclasses
import json
import os
import uuid
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import (
    DataSource,
    DataSourceStreamArrowWriter,
    DataSourceStreamReader,
    InputPartition,
    WriterCommitMessage,
)
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

BATCH_KEY = "streaming.sql.batchId"
QUERY_KEY = "sql.streaming.queryId"


def log(directory: str, call: str, **details: Any) -> None:
    """Append one line; O_APPEND keeps lines of several processes whole."""
    line = json.dumps({"call": call, "pid": os.getpid(), **details}) + "\n"
    with (Path(directory) / "calls").open("a") as file:
        file.write(line)


def read_log(directory: Path) -> list[dict[str, Any]]:
    path = directory / "calls"
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def flag(directory: str, name: str) -> bool:
    """Take the file `name` away; return whether it was there (a fault that strikes once)."""
    try:
        (Path(directory) / name).unlink()
    except FileNotFoundError:
        return False
    return True


@dataclasses.dataclass
class Range(InputPartition):
    first: int
    after: int


@dataclasses.dataclass
class Staged(WriterCommitMessage):
    attempt: str
    rows: int
    query: str | None
    batch: str | None


class CanarySource(DataSource):
    """Options: `directory`, and `limit`, the most rows in a micro-batch."""

    @classmethod
    def name(cls) -> str:
        return "canary"

    def schema(self) -> str:
        return "number bigint"

    def streamReader(self, schema: StructType) -> CanaryReader:  # noqa: N802, ARG002 - Spark's
        return CanaryReader(self.options["directory"], int(self.options.get("limit", "1000")))

    def streamWriter(  # noqa: N802 - Spark's name
        self,
        schema: StructType,  # noqa: ARG002 - Spark's signature
        overwrite: bool,  # noqa: ARG002, FBT001 - Spark's signature
    ) -> CanaryWriter:
        return CanaryWriter(self.options["directory"])


class CanaryReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    def __init__(self, directory: str, limit: int) -> None:
        self.directory = directory
        self.limit = limit
        self.target: int | None = None

    def available(self) -> int:
        return int((Path(self.directory) / "available").read_text())

    def initialOffset(self) -> dict[str, int]:  # noqa: N802 - Spark's name
        log(self.directory, "initialOffset", reader=id(self))
        return {"position": 0}

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802 - Spark's name
        return ReadMaxRows(self.limit)

    def latestOffset(  # noqa: N802 - Spark's name
        self, start: dict[str, int], limit: ReadLimit
    ) -> dict[str, int]:
        if (Path(self.directory) / "growing").exists():
            (Path(self.directory) / "available").write_text(str(self.available() + 10))
        end = self.available() if self.target is None else self.target
        if isinstance(limit, ReadMaxRows):
            end = min(end, start["position"] + limit.max_rows)
        else:
            assert isinstance(limit, ReadAllAvailable)
        log(
            self.directory, "latestOffset", start=start, limit=type(limit).__name__, reader=id(self)
        )
        return {"position": end}

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 - Spark's name
        self.target = self.available()
        log(self.directory, "prepareForTriggerAvailableNow", target=self.target)

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> Sequence[InputPartition]:
        log(self.directory, "partitions", start=start, end=end)
        return [Range(start["position"], end["position"])]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, Range)
        log(self.directory, "read", first=partition.first, after=partition.after)
        numbers = pa.array(range(partition.first, partition.after), pa.int64())
        yield pa.record_batch([numbers], names=["number"])

    def commit(self, end: dict[str, int]) -> None:
        log(self.directory, "commit source", end=end)

    def stop(self) -> None:
        log(self.directory, "stop")


class CanaryWriter(DataSourceStreamArrowWriter):
    def __init__(self, directory: str) -> None:
        self.directory = directory

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        context = TaskContext.get()
        assert context is not None
        numbers = [number for batch in iterator for number in batch.column(0).to_pylist()]
        staged = Staged(
            attempt=uuid.uuid4().hex,
            rows=len(numbers),
            query=context.getLocalProperty(QUERY_KEY),
            batch=context.getLocalProperty(BATCH_KEY),
        )
        details = dataclasses.asdict(staged) | {"attempt_number": context.attemptNumber()}
        log(self.directory, "write", numbers=numbers, **details)
        if flag(self.directory, "fail write"):
            raise RuntimeError("planned failure of a write")
        if flag(self.directory, "exit write"):
            os._exit(1)
        return staged

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803 - Spark's name
        details = [dataclasses.asdict(m) if isinstance(m, Staged) else None for m in messages]
        log(self.directory, "commit sink", batch=batchId, messages=details)
        if flag(self.directory, "fail commit"):
            raise RuntimeError("planned failure of a commit")

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803 - Spark's name
        kinds = [type(m).__name__ for m in messages]
        log(self.directory, "abort", batch=batchId, messages=kinds)
