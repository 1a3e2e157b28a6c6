"""Rubbish for what is checked without a repository: URLs, files, configuration, encodings."""

from __future__ import annotations

import functools
import io
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from onceq.cli import config
from onceq.engine.locate import locate as located
from onceq.engine.locate import resolve_url
from onceq.files import durable, readers, replies, rows
from onceq.model import names
from onceq.model.queue import decode, encode
from onceq.testing.bulk import InputFile
from onceq.testing.memory import MemoryDriver, memory_repository
from proof.fuzz.api import ORDERS, OpenQueueManager

if TYPE_CHECKING:
    from collections.abc import Callable

    from onceq.model.element import Element
    from proof.fuzz.rubbish import Rubbish

TYPES: tuple[Any, ...] = (bytes, int, str, dict[str, Any], list[int], float, bool)
SCHEMES = ("postgresql://", "postgres://", "service=", "host=", "http://", "", "embedded", " ")
BODY_BYTES_MAX = 1000


def check_names(r: Rubbish) -> Any:
    """Names of every kind."""
    checks: list[Callable[[Any], Any]] = [
        names.check_queue,
        names.check_repository,
        functools.partial(names.check_id, "rid"),
        functools.partial(names.check_bytes, "tag"),
    ]
    return r.chance.choice(checks)(r.value())


def check_attributes(r: Rubbish) -> Any:
    """Attributes of an element."""
    likely = {"priority": 3, "rid": "1", "not_before": r.time(), "expires_at": r.time()}
    return names.check_attributes(r.keywords(likely | {"properties": {}, "correlation_id": "1"}))


def check_ranges(r: Rubbish) -> Any:
    """Numbers."""
    return names.check_range("limit", r.value(), 1, 1000)


def code(r: Rubbish) -> Any:
    """Values and bytes of requests."""
    kind = r.chance.choice(TYPES)
    if r.likely(0.5):
        return decode(kind, r.data(), "request", strict=r.likely(0.5))
    return encode(kind, r.value(), "request")


def locate(r: Rubbish) -> Any:
    """URLs of the front door, without going there."""
    url = r.chance.choice(SCHEMES) + r.text()
    if not url.startswith("embedded:"):
        located(resolve_url(url, {}))
    return resolve_url(None, {"ONCEQ_URL": r.text()})


def configure(r: Rubbish) -> Any:
    """An onceq.toml."""
    lines = [f"{r.chance.choice(('url', 'repository', 'x', '[tool]'))} = {r.json_text()}"]
    lines += [f'url = "{r.text()}"'] if r.likely(0.5) else []
    content = "\n".join(lines).encode("utf-8", "surrogatepass") if r.likely(0.8) else r.data()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, r.chance.choice(("onceq.toml", "pyproject.toml")))
        path.write_bytes(content)
        return config.read_file(Path(folder))


@functools.cache
def parquet_bytes() -> bytes:
    """Returns a small Parquet file."""
    import pyarrow as pa  # noqa: PLC0415 # an extra
    from pyarrow import parquet  # noqa: PLC0415 # an extra

    sink = io.BytesIO()
    parquet.write_table(pa.table({"id": [1, 2], "text": ["a", None]}), sink)
    return sink.getvalue()


def _content(r: Rubbish, suffix: str) -> bytes:
    if suffix == ".parquet":
        whole = bytearray(parquet_bytes())
        for _ in range(r.chance.randint(0, 4)):
            whole[r.chance.randrange(len(whole))] = r.chance.randrange(256)
        return bytes(whole[: len(whole) - r.chance.choice((0, 0, 1, 9))])
    if suffix == ".csv":
        head = b"id,text\n" if r.likely(0.7) else r.data()
        return head + b"\n".join(r.chance.choice((b"1,a", b'2,"b', b'"', r.data())) for _ in "123")
    return b"\n".join(r.data() for _ in range(3))


def read(r: Rubbish) -> Any:
    """Files of rows, in every format; each row is a request, or says why it is none."""
    suffix = r.chance.choice((".csv", ".jsonl", ".csv", ".jsonl", ".parquet", ".txt"))
    path: Any = InputFile("/rows" + suffix)
    path.content = _content(r, suffix)
    rid_of = rows.by_column("id") if r.likely(0.5) else rows.by_line("rows:", "0" * 64)
    checker = rows.Checker(rid_of, BODY_BYTES_MAX)
    with readers.open_reader(path) as reader:
        for record in reader.records():
            row = checker.check(record) if isinstance(record, rows.Record) else record
            if isinstance(row, rows.BadRow) and not row.reason:
                raise AssertionError("a row was refused without a reason")


@functools.cache
def _element() -> Element:
    oracle, clock = memory_repository()
    qm = OpenQueueManager(MemoryDriver(oracle, clock))
    qm.declare(ORDERS)
    found = qm.read(qm.enqueue(ORDERS, b"x"))
    if found is None:
        raise LookupError("it was enqueued")
    return found


def write(r: Rubbish) -> Any:
    """Replies of every content, as lines of a file; and checkpoints."""
    reply = replace(_element(), body=r.data(), code=r.text(), error=None)
    fields = tuple(r.text() for _ in range(r.chance.randint(0, 2)))
    layout = r.chance.choice((replies.JsonLines(), replies.Csv(("a",)), replies.Rows(("a", "b"))))
    if all(one < "\ud800" or one > "\udfff" for one in reply.code or ""):
        layout.lines([reply])
    durable.read_checkpoint(r.data())
    return replies.columns(fields)


CHECKS: tuple[Callable[[Rubbish], Any], ...] = (
    check_names,
    check_names,
    check_attributes,
    check_ranges,
    code,
    code,
    locate,
    read,
    write,
)
