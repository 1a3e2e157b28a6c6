"""Rubbish for what is checked without a repository: URLs, files, configuration, encodings."""

from __future__ import annotations

import contextlib
import functools
import io
import json
import tempfile
from collections.abc import Callable  # at run time too: a field
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from onceq.cli import config
from onceq.engine.embedded.locate import EMBEDDED, resolve_url
from onceq.engine.embedded.locate import locate as located
from onceq.errors import InvalidValue
from onceq.files import durable, readers, replies, rows
from onceq.model import names
from onceq.model.element import Search
from onceq.model.queue import QueueSettings, decode, encode
from proof.fuzz import legal
from proof.fuzz.api import OPTIONS, ORDERS, SETTINGS, OpenQueueManager
from proof.oracle.memory import MemoryDriver, memory_repository
from proof.simulator.bulk import InputFile

if TYPE_CHECKING:
    from onceq.model.element import Element
    from proof.fuzz.rubbish import Rubbish

TYPES: tuple[Any, ...] = (bytes, int, str, dict[str, Any], list[int], float, bool)
SCHEMES = ("postgresql://", "postgres://", "service=", "host=", "http://", "", "embedded", " ")
BODY_BYTES_MAX = 1000
CHOICES = ("session", "history")


@dataclass(frozen=True, slots=True)
class Rule:
    """A check of `names`: how its value is drawn, what is legal, and its other arguments."""

    check: str
    draw: Callable[[Rubbish], Any]
    legal: Callable[[Any], bool | None]
    before: tuple[Any, ...] = ()
    after: tuple[Any, ...] = ()


def _anything(r: Rubbish) -> Any:
    return r.text() if r.likely(0.5) else r.value()


def _attributes(r: Rubbish) -> dict[str, Any]:
    likely = {"priority": 3, "rid": "1", "not_before": r.time(), "expires_at": r.time()}
    return r.keywords(likely | {"properties": {"a": r.value()}, "correlation_id": "1"}, 0.7)


def _search(r: Rubbish) -> dict[str, Any]:
    likely = {"rid": "1", "registrant": "x", "state": "queued", "queue": "orders"}
    names_of = {name: r.either(right, 0.8) for name, right in likely.items()}
    return names_of | {"eid": r.either(r.eid(), 0.8), "limit": r.either(3, 0.8)}


RULES = (
    Rule("check_queue", _anything, legal.queue_name),
    Rule("check_periodic", _anything, legal.queue_name),
    Rule("check_repository", _anything, legal.repository_name),
    Rule("check_id", _anything, legal.identifier, before=("rid",)),
    Rule("check_rid", _anything, lambda v: legal.optional(v, legal.identifier)),
    Rule("check_bytes", lambda r: r.value(), legal.octets, before=("reply",)),
    Rule("check_tag", lambda r: r.value(), lambda v: legal.optional(v, legal.octets)),
    Rule("check_attributes", _attributes, legal.attributes),
    Rule(
        "check_range",
        lambda r: r.number() if r.likely(0.5) else r.value(),
        lambda v: legal.whole(v, 1, 1000),
        before=("limit",),
        after=(1, 1000),
    ),
    Rule(
        "check_choice",
        lambda r: r.chance.choice(CHOICES) if r.likely(0.3) else r.value(),
        lambda v: type(v) is str and v in CHOICES,
        before=("by",),
        after=(CHOICES,),
    ),
    Rule("check_flag", lambda r: r.value(), legal.flag, before=("durable",)),
    Rule(
        "check_moment",
        lambda r: r.either(r.time(), 0.5),
        lambda v: legal.optional(v, legal.when),
        before=("at",),
    ),
    Rule("check_text", _anything, lambda v: legal.text(v, 10), before=("text",), after=(10,)),
    Rule("check_eid", lambda r: r.value(), legal.eid),
    Rule("check_timeout", lambda r: r.value(), legal.timeout),
    Rule(
        "check_seconds",
        lambda r: r.number() if r.likely(0.5) else r.value(),
        legal.seconds,
        before=("stop_timeout_s",),
    ),
    Rule(
        "check_keywords",
        lambda r: r.keywords(dict.fromkeys(("by", "rdi", "rid"), "1")),
        lambda v: set(v) <= set(Search.__annotations__),
        before=("find",),
        after=(Search,),
    ),
    Rule("check_each", lambda r: r.value(), legal.several, before=("requests",)),
    Rule("check_iterator", lambda r: r.value(), legal.several, before=("requests",)),
    Rule("check_outgoing", lambda r: r.value(), legal.outgoing, before=("request",)),
    Rule("check_search", _search, legal.search),
)


def check_names(r: Rubbish) -> Any:
    """Names, numbers, attributes: each check of `names`."""
    rule = r.chance.choice(RULES)
    value = rule.draw(r)
    r.legal = rule.legal(value)
    return getattr(names, rule.check)(*rule.before, value, *rule.after)


def check_settings(r: Rubbish) -> Any:
    """Settings of a queue."""
    known: dict[str, Any] = {**SETTINGS, "unknown": 1} if r.likely(0.05) else SETTINGS
    given = r.keywords(known, 0.8)
    r.legal = legal.settings(given)
    try:
        return QueueSettings(**given)
    except TypeError as error:  # as a Queue does: a setting that nobody knows
        raise InvalidValue(f"no such setting: {error}") from None


def check_options(r: Rubbish) -> Any:
    """Options of a handler."""
    given = r.keywords(OPTIONS, 0.6)
    r.legal = legal.options(given)
    handler: Any = print  # it takes anything
    return ORDERS.handled_by(handler, **given)


def code(r: Rubbish) -> Any:
    """Values and bytes of requests."""
    kind = r.chance.choice(TYPES)
    if r.likely(0.5):
        data, strict = r.data(), r.likely(0.5)
        r.legal = legal.decodable(kind, data, strict=strict)
        return decode(kind, data, "request", texts=not strict)
    value = r.value()
    r.legal = legal.encodable(kind, value)
    return encode(kind, value, "request")


GOOD_URLS = ("postgresql://u@h/d", "postgres://h:5432/d?sslmode=require", "service=a", "host=h")
BAD_URLS = ("http://h/d", "postgresql:", "host", "host='h", "postgresql://%zz", "nothing=1", "h\0")


def locate(r: Rubbish) -> Any:
    """URLs of the front door, without going there."""
    if r.likely(0.5):
        good = r.likely(0.5)
        r.legal = good
        return located(r.chance.choice(GOOD_URLS if good else BAD_URLS)).conninfo
    url = r.chance.choice(SCHEMES) + r.text()
    if not url.startswith("embedded:"):
        located(resolve_url(url, {}))
    return resolve_url(None, {"ONCEQ_URL": r.text()})


def configure(r: Rubbish) -> Any:
    """An onceq.toml or a pyproject.toml, read as the command line reads it in its directory."""
    name = r.chance.choice(("onceq.toml", "pyproject.toml"))
    content = _configuration(r, name) if r.likely(0.9) else r.data()
    r.legal = legal.configuration(name, content)
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
        Path(name).write_bytes(content)
        target = config.choose(None, None, {})
    if not target.url.startswith(EMBEDDED):
        located(target.url)


HEADS = ("[tool.onceq]", "[tool.onceq]", "[tool.other]", "[[tool.onceq]]", "[tool]", "tool = 1")


def _configuration(r: Rubbish, name: str) -> bytes:
    """Returns settings, right or rubbish, and now and then one that nobody knows."""
    head = r.chance.choice(HEADS) if name == "pyproject.toml" else "# settings"
    lines = [f"{_toml(r, 'url')} = {_toml(r, 'service=here')}"] * r.likely(0.8)
    lines += [f"{_toml(r, 'repository')} = {_toml(r, 'shop')}"] * r.likely(0.8)
    lines += [f"{_toml(r, 'x')} = {_toml(r, '1')}"] * r.likely(0.1)
    return "\n".join([head, *lines]).encode("utf-8", "surrogatepass")


def _toml(r: Rubbish, right: str) -> str:
    """Returns what is right, as a text of TOML, or rubbish that is TOML, almost or not at all."""
    if r.likely(0.8):
        return json.dumps(right)
    text = r.chance.choice(("", "", "embedded:", "embedded:~", "postgresql://")) + r.text()
    return r.chance.choice((json.dumps(text, ensure_ascii=False), f"'{text}'", text, r.json_text()))


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
        long = b"3," + b"x" * r.chance.randint(BODY_BYTES_MAX - 40, BODY_BYTES_MAX + 5)
        some = (b"1,a", b'2,"b', b'"', long, b"a" * r.chance.choice((200, 201)) + b",c", r.data())
        return head + b"\n".join(r.chance.choice(some) for _ in "123")
    return b"\n".join(r.data() for _ in range(3))


def read(r: Rubbish) -> Any:
    """Files of rows, in every format; each row is a request, or says why it is none."""
    suffix = r.chance.choice((".csv", ".jsonl", ".csv", ".jsonl", ".parquet", ".txt"))
    path: Any = InputFile("/rows" + suffix)
    path.content = _content(r, suffix)
    rid_of = rows.by_column("id") if r.likely(0.5) else rows.by_line("rows:", "0" * 64)
    checker = rows.Checker(rid_of, BODY_BYTES_MAX, None)
    with readers.open_reader(path) as reader:
        for record in reader.records():
            row = checker.check(record) if isinstance(record, rows.Record) else record
            if isinstance(row, rows.BadRow) and not row.reason:
                raise AssertionError("a row was refused without a reason")
            if isinstance(row, rows.Row) and not _may_be_row(row):
                raise AssertionError(f"a row was taken that is no request: {row!r:.100}")


def _may_be_row(row: rows.Row) -> bool:
    """Whether a row may be sent: its rid, and its body's size."""
    return legal.identifier(row.rid) and legal.octets(row.body, BODY_BYTES_MAX)


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
    *[check_names] * 12,
    *[check_settings] * 2,
    check_options,
    *[code] * 3,
    locate,
    configure,
    read,
    write,
)
"""By weight: most of what is checked in little time, and some of what takes longer."""
