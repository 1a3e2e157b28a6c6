"""Bad input: each is a clear error, and nothing happens (spec Q1, Q13; reliability 10)."""

from __future__ import annotations

import datetime as dt
from typing import Any

import msgspec
import psycopg
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

import onceq
from onceq.errors import (
    InvalidName,
    InvalidValue,
    QueueNotFound,
    QueueStopped,
    StatementRefused,
    TooLarge,
)
from onceq.model import names, ops
from tests.parts import plain, scalar

RAW = onceq.Queue("raw", bytes, bytes, body_bytes_max=1000, tag_bytes_max=100)

fuzzed = settings(
    max_examples=200,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)

EVIL = [
    "",
    " ",
    "a b",
    "a" * 64,
    "ä",
    "raw\n",
    "raw\0",
    "raw;drop schema public",
    "raw'--",
    'raw"',
    "raw\\",
    "%s",
    "{schema}",
    "$1",
    "raw\u200b",
    "\uff32\uff21\uff37",
    "raw\ud800",
    "../raw",
]


@pytest.mark.parametrize("name", EVIL)
def test_evil_queue_names_are_refused_twice(
    qm: onceq.QueueManager, conninfo: str, name: str
) -> None:
    """By the library, and by the schema for whoever calls the SQL."""
    with pytest.raises(InvalidName, match="queue name"):
        onceq.Queue(name, bytes, bytes)
    for call in (qm.show, qm.destroy, qm.start, qm.stop, qm.dequeue):
        with pytest.raises(InvalidName):
            call(name)
    if "\0" in name or "\ud800" in name:
        return  # the protocol has no such text
    values = "%s, true, 5, 100, 1000, 10, 10, 10, false, null, 10"
    statement = f"select {qm.repository}.create_queue({values})"
    with plain(conninfo) as connection, pytest.raises(psycopg.errors.CheckViolation):
        connection.execute(statement.encode(), (name,))
    assert qm.queues() == []


@fuzzed
@given(name=st.text(max_size=70))
@example("raw.error")
@example("-")
@example("a" * 63)
@example("raw\n")
def test_library_and_schema_agree_on_queue_names(conninfo: str, name: str) -> None:
    try:
        accepted = names.check_queue(name) == name
    except InvalidName:
        accepted = False
    if "\0" in name or any("\ud800" <= one <= "\udfff" for one in name):
        assert not accepted
        return
    with plain(conninfo) as connection:
        row = connection.execute("select %s ~ '^[A-Za-z0-9_.-]{1,63}$'", (name,)).fetchone()
    assert row == (accepted,)


@fuzzed
@given(rid=st.text(max_size=210))
@example("'; drop table element; --")
@example("%s %(x)s {schema} $1 \\ \" '")
@example("é")
@example("\u202e")
@example("x" * 200)
@example("a\x85b")
def test_a_rid_is_refused_or_kept_as_it_is(fuzz_qm: onceq.QueueManager, rid: str) -> None:
    try:
        names.check_id("rid", rid)
    except InvalidName:
        with pytest.raises(InvalidName):
            fuzz_qm.enqueue(RAW, b"", rid=rid)
        return
    eid = fuzz_qm.enqueue(RAW, b"x", rid=rid)
    found = fuzz_qm.lookup(rid)
    assert [one.rid for one in found if one.eid == eid] == [rid]
    element = fuzz_qm.dequeue("raw", eid=eid)
    assert element is not None
    assert element.rid == rid


@fuzzed
@given(body=st.binary(max_size=1100), key=st.text(max_size=20), value=st.text(max_size=20))
@example(b"\x00" * 1000, "k", "v")
@example(b"\xff\xfe", "\0", "\0")
def test_a_body_is_kept_to_the_byte_or_refused(
    fuzz_qm: onceq.QueueManager, body: bytes, key: str, value: str
) -> None:
    with fuzz_qm.clerk("fuzzed", RAW) as clerk:
        rid = f"{clerk._session.who.epoch}"
        try:
            clerk.send(rid, body, properties={key: value})
        except TooLarge:
            assert len(body) > 1000
            return
        except InvalidValue:
            text = key + value
            assert "\0" in text or any("\ud800" <= one <= "\udfff" for one in text)
            return
        (found,) = fuzz_qm.lookup(rid)
        element = fuzz_qm.read(found.eid)
        assert element is not None
        assert (element.body, element.properties) == (body, {key: value})
        clerk.cancel_last_request()
        clerk.receive(b"", timeout_s=60)
        clerk.acknowledge([rid])


@pytest.fixture
def fuzz_qm(qm: onceq.QueueManager) -> onceq.QueueManager:
    qm.declare(RAW)
    return qm


def test_what_is_too_large(fuzz_qm: onceq.QueueManager) -> None:
    with pytest.raises(TooLarge, match="1001 bytes"):
        fuzz_qm.enqueue(RAW, bytes(1001))
    with pytest.raises(TooLarge):
        fuzz_qm.enqueue_many(RAW, [b"fits", bytes(1001)])
    with fuzz_qm.clerk("till", RAW) as clerk:
        with pytest.raises(TooLarge):
            clerk.send("1", bytes(1001))
        clerk.send("1", bytes(1000))
        clerk.cancel_last_request()
        small = onceq.Queue("raw", bytes, bytes)
        assert fuzz_qm.show("raw").depth == 0
        with pytest.raises(TooLarge, match="checkpoint"):
            clerk.receive(bytes(2**24), timeout_s=60)
        assert clerk.receive(b"fits", timeout_s=60).rid == "1"
        assert small.settings.tag_bytes_max == names.TAG_BYTES_MAX


class Order(msgspec.Struct):
    cents: int


@pytest.mark.parametrize("value", ["text", 7, None, bytearray(b"x"), memoryview(b"x"), Order(1)])
def test_a_request_of_another_type_is_refused(fuzz_qm: onceq.QueueManager, value: Any) -> None:
    with pytest.raises(InvalidValue):
        fuzz_qm.enqueue(RAW, value)
    assert fuzz_qm.show("raw").depth == 0


@pytest.mark.parametrize(
    "value",
    ["text", None, Order("x"), {"cents": "1"}, object(), {1, 2}],  # type: ignore[arg-type] # on purpose
)
def test_a_value_that_does_not_fit_its_struct_is_refused(value: Any) -> None:
    with pytest.raises(InvalidValue, match="request for queue"):
        onceq.Queue("orders", Order, bytes).encode_request(value)


WRONG_SETTINGS: list[dict[str, Any]] = [
    {"abort_limit": 0},
    {"abort_limit": 1001},
    {"abort_limit": True},
    {"abort_limit": "5"},
    {"backoff_ms": -1},
    {"backoff_ms": 100, "backoff_max_ms": 50},
    {"execution_limit_s": 0},
    {"body_bytes_max": 0},
    {"body_bytes_max": 2**30},
    {"tag_bytes_max": 1.5},
    {"error_queue": "not a name"},
    {"no_such_setting": 1},
]


@pytest.mark.parametrize("wrong", WRONG_SETTINGS, ids=str)
def test_wrong_settings_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises((InvalidValue, InvalidName)):
        onceq.Queue("raw", bytes, bytes, **wrong)


@pytest.mark.parametrize(
    "wrong",
    [
        {"abort_limit": 0},
        {"abort_limit": 1_000_000},
        {"backoff_ms": -1},
        {"backoff_ms": 70_000},
        {"execution_limit_s": 0},
        {"body_bytes_max": 0},
    ],
    ids=str,
)
def test_a_wrong_alteration_changes_nothing(
    fuzz_qm: onceq.QueueManager, wrong: dict[str, Any]
) -> None:
    before = fuzz_qm.show("raw")
    with pytest.raises(InvalidValue):
        fuzz_qm.alter(ops.AlterQueue(queue="raw", **wrong))
    assert fuzz_qm.show("raw") == before


WRONG_ATTRIBUTES: list[dict[str, Any]] = [
    {"priority": 10},
    {"priority": -1},
    {"priority": True},
    {"priority": "9"},
    {"not_before": dt.datetime(2030, 1, 1)},  # noqa: DTZ001 # what is refused
    {"expires_at": "2030-01-01"},
    {"properties": {"x": object()}},
    {"properties": {"x": "\0"}},
]


@pytest.mark.parametrize("wrong", WRONG_ATTRIBUTES, ids=lambda one: next(iter(one)))
def test_wrong_attributes_send_nothing(fuzz_qm: onceq.QueueManager, wrong: dict[str, Any]) -> None:
    with fuzz_qm.clerk("till", RAW) as clerk:
        with pytest.raises(InvalidValue):
            clerk.send("1", b"x", **wrong)
        assert clerk.send("1", b"x").state == "new"
    assert fuzz_qm.show("raw").depth == 1


def test_an_unknown_and_a_stopped_queue(fuzz_qm: onceq.QueueManager, conninfo: str) -> None:
    nowhere = onceq.Queue("nowhere", bytes, bytes)
    fuzz_qm.stop("raw")
    with fuzz_qm.clerk("till", RAW) as stopped, fuzz_qm.clerk("other", nowhere) as unknown:
        for call, expected in (
            (lambda: stopped.send("1", b"x"), QueueStopped),
            (lambda: fuzz_qm.enqueue(RAW, b"x"), QueueStopped),
            (lambda: unknown.send("1", b"x"), QueueNotFound),
            (lambda: fuzz_qm.enqueue(nowhere, b"x"), QueueNotFound),
            (lambda: fuzz_qm.dequeue("nowhere"), QueueNotFound),
            (lambda: fuzz_qm.start("nowhere"), QueueNotFound),
        ):
            with pytest.raises(expected) as refused:
                call()
            assert refused.value.outcome is onceq.Outcome.NOTHING_HAPPENED
    assert scalar(conninfo, f"select count(*) from {fuzz_qm.repository}.element") == 0


def test_what_postgresql_refuses_is_said_with_its_code(fuzz_qm: onceq.QueueManager) -> None:
    with pytest.raises(StatementRefused) as refused:
        fuzz_qm._link.perform(ops.LookUp(rid="x", limit=-1))
    assert refused.value.sqlstate == "2201W"


@pytest.mark.parametrize("name", ["", "A", "1a", "a-b", "a" * 42, "pg_x", "public", "ä", "a;b", 7])
def test_repository_names_are_checked(conninfo: str, name: Any) -> None:
    with pytest.raises(InvalidName, match="repository"):
        onceq.open(conninfo, repository=name)
    with pytest.raises(InvalidName, match="repository"):
        onceq.enqueue(object(), RAW, b"x", repository=name)
