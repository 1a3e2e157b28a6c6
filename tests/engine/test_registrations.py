"""Registrations and tagged operations: spec Q5, Q13 (BHM90 4.3)."""

from __future__ import annotations

import pytest

import onceq
from onceq.errors import Fenced, IllegalState, InvalidName, QueueNotFound, TooLarge
from tests.parts import plain, rows

RAW = onceq.Queue("raw", bytes, bytes, tag_bytes_max=100, body_bytes_max=1000)
OTHER = onceq.Queue("other", bytes, bytes)


@pytest.fixture(autouse=True)
def _declared(qm: onceq.QueueManager) -> None:
    qm.declare(RAW)
    qm.declare(OTHER)


def test_register_tells_the_last_operation_kind_tag_and_eid(qm: onceq.QueueManager) -> None:
    (handle,) = qm.register("raw", "device")
    assert (handle.kind, handle.eid, handle.tag) == (None, None, None)
    eid = qm.enqueue_tagged("raw", handle, b"body", b"tag 1")
    (again,) = qm.register("raw", "device")
    assert (again.kind, again.eid, again.tag) == ("enqueue", eid, b"tag 1")
    assert again.registrant_id == handle.registrant_id
    assert again.epoch > handle.epoch
    element = qm.dequeue_tagged("raw", again, b"tag 2", timeout_s=60)
    assert element is not None
    (third,) = qm.register("raw", "device")
    assert (third.kind, third.eid, third.tag) == ("dequeue", eid, b"tag 2")


def test_the_last_element_is_read_though_another_dequeued_it(qm: onceq.QueueManager) -> None:
    (handle,) = qm.register("raw", "device")
    eid = qm.enqueue_tagged("raw", handle, b"copied", b"t")
    taken = qm.dequeue("raw")
    assert taken is not None
    assert taken.eid == eid
    for _ in range(2):
        last = qm.read_last("raw", handle)
        assert last is not None
        assert (last.kind, last.eid, last.tag, last.body) == ("enqueue", eid, b"t", b"copied")


def test_a_new_life_fences_the_former(qm: onceq.QueueManager) -> None:
    (old,) = qm.register("raw", "device")
    (new,) = qm.register("raw", "device")
    with pytest.raises(Fenced):
        qm.enqueue_tagged("raw", old, b"x")
    with pytest.raises(Fenced):
        qm.dequeue_tagged("raw", old)
    with pytest.raises(Fenced):
        qm.read_last("raw", old)
    with pytest.raises(Fenced):
        qm.deregister("raw", old)
    qm.enqueue_tagged("raw", new, b"x")
    assert qm.show("raw").depth == 1


def test_a_life_may_be_joined_to_a_second_queue(qm: onceq.QueueManager) -> None:
    (first,) = qm.register("raw", "device")
    (second,) = qm.register("other", "device", life=first)
    assert second.epoch == first.epoch
    qm.enqueue_tagged("raw", first, b"x", b"of raw")
    qm.enqueue_tagged("other", second, b"y", b"of other")
    last = qm.read_last("raw", first)
    assert last is not None
    assert last.tag == b"of raw"
    qm.register("raw", "device")
    with pytest.raises(Fenced):
        qm.register("other", "device", life=first)


def test_register_returns_the_registrations_of_all_threads(qm: onceq.QueueManager) -> None:
    tags = {"a": b"1", "b": b"2", "c": b"3"}
    for thread, tag in tags.items():
        handle = qm.register("raw", "device", thread=thread)[0]
        qm.enqueue_tagged("raw", handle, b"x", tag)
    found = qm.register("raw", "device", thread="b")
    assert [one.thread for one in found] == ["b", "a", "c"]
    assert {one.thread: one.tag for one in found} == tags
    qm.enqueue_tagged("raw", found[0], b"x")  # its siblings' lives go on


def test_a_registration_that_is_not_stable_keeps_no_record(qm: onceq.QueueManager) -> None:
    (handle,) = qm.register("raw", "device", stable=False)
    qm.enqueue_tagged("raw", handle, b"x", b"tag")
    (again,) = qm.register("raw", "device", stable=False)
    assert (again.kind, again.tag) == (None, None)


def test_an_operation_needs_a_registration(qm: onceq.QueueManager) -> None:
    (handle,) = qm.register("raw", "device")
    with pytest.raises(IllegalState, match="not registered"):
        qm.enqueue_tagged("other", handle, b"x")
    assert qm.deregister("raw", handle)
    assert not qm.deregister("raw", handle)
    with pytest.raises(IllegalState, match="not registered"):
        qm.enqueue_tagged("raw", handle, b"x")
    assert qm.show("raw").depth == 0
    assert qm.read_last("raw", handle) is None
    (again,) = qm.register("raw", "device")
    assert again.kind is None
    assert again.epoch > handle.epoch  # the registrant is remembered: epochs never repeat


def test_the_record_stays_one_row(qm: onceq.QueueManager, conninfo: str) -> None:
    (handle,) = qm.register("raw", "device")
    for number in range(5):
        qm.enqueue_tagged("raw", handle, b"x", str(number).encode())
    assert rows(conninfo, f"select tag from {qm.repository}.registration") == [(b"4",)]


def test_tags_and_bodies_have_limits(qm: onceq.QueueManager) -> None:
    (handle,) = qm.register("raw", "device")
    qm.enqueue_tagged("raw", handle, bytes(1000), bytes(100))
    with pytest.raises(TooLarge, match="tag has 101 bytes"):
        qm.enqueue_tagged("raw", handle, b"", bytes(101))
    with pytest.raises(TooLarge, match="body has 1001 bytes"):
        qm.enqueue_tagged("raw", handle, bytes(1001))
    with pytest.raises(TooLarge):
        qm.dequeue_tagged("raw", handle, bytes(101))
    assert qm.show("raw").depth == 1  # a refused dequeue takes nothing
    assert qm.register("raw", "device")[0].tag == bytes(100)


def test_a_refused_tagged_dequeue_of_nothing_records_nothing(qm: onceq.QueueManager) -> None:
    (handle,) = qm.register("raw", "device")
    assert qm.dequeue_tagged("raw", handle, b"tag", timeout_s=0.02) is None
    assert qm.register("raw", "device")[0].kind is None


@pytest.mark.parametrize("name", ["", "x" * 201, "a\nb", "\x7f", "ü" * 101, "\ud800"])
def test_names_of_registrants_are_checked(qm: onceq.QueueManager, name: str) -> None:
    with pytest.raises(InvalidName):
        qm.register("raw", name)
    if name:
        with pytest.raises(InvalidName):
            qm.register("raw", "device", thread=name)


def test_names_compare_by_their_bytes(qm: onceq.QueueManager, conninfo: str) -> None:
    spellings = ["Straße", "strasse", "STRASSE", "\u00e9", "e\u0301", "a b", "a'b", 'a"b', "a\\b"]
    for name in spellings:
        qm.register("raw", name)
    with plain(conninfo) as connection:
        query = f"select count(*) from {qm.repository}.registrant"
        assert connection.execute(query.encode()).fetchone() == (len(spellings),)


def test_register_with_no_queue(qm: onceq.QueueManager) -> None:
    with pytest.raises(QueueNotFound):
        qm.register("nowhere", "device")
    with pytest.raises(InvalidName):
        qm.register("no queue", "device")
