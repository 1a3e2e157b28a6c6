"""Attributes of elements beyond their columns, and who may give them (spec Q9)."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import pytest

import onceq
from onceq.clerk.program import request_of, requests_of, send_many
from onceq.clerk.session import session_of
from onceq.errors import IllegalState, InvalidName, InvalidValue, TooLarge
from onceq.manager.program import enqueue_op
from onceq.model import code_pages
from onceq.model.attributes import ElementType
from onceq.model.client_state import ClientState
from onceq.model.element import Lane, RequestOutcome, Role
from onceq.model.ledger import LastRequest
from onceq.model.reserved import PREFIX, RESERVED, attributes_of
from proof.oracle.rows import ElementRow
from proof.oracle.state import to_element

RAW = onceq.Queue("raw", bytes, bytes)
TYPED = onceq.Queue("typed", dict[str, str], bytes)
EID = UUID(int=7)
NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


def element(**fields: Any) -> onceq.Element:
    row: dict[str, Any] = {
        "role": Role.DATAGRAM,
        "queue_id": 1,
        "lane": Lane.USUAL,
        "enqueued_at": NOON,
    }
    return to_element(ElementRow(seq=1, eid=EID, rid="1", body=b"", **(row | fields)))


def test_what_has_a_keyword_travels_among_the_properties() -> None:
    given = {"priority": 3, "message_id": "m", "scratch": {"a": 1}, "properties": {"colour": "red"}}
    assert attributes_of(given) == {
        "priority": 3,
        "properties": {"colour": "red", "onceq_message_id": "m", "onceq_scratch": {"a": 1}},
    }
    assert attributes_of({"message_id": None, "properties": None}) == {"properties": None}


@pytest.mark.parametrize("key", [*RESERVED, PREFIX, "onceq_anything"])
def test_nobody_gives_a_key_of_the_queue_managers_own(key: str) -> None:
    keyword = RESERVED[key].keyword if key in RESERVED else None
    said = f"{key!r} is not a property: .*; " + (f"say {keyword}=" if keyword else "choose another")
    for refused in (
        lambda: request_of(RAW, "1", b"", {"properties": {key: 1}}),
        lambda: enqueue_op(RAW, b"", {"properties": {key: 1}}, own_transaction=True),
        lambda: list(requests_of(RAW, [("1", b"", {"properties": {key: 1}})])),
    ):
        with pytest.raises(InvalidValue, match=said):
            refused()


@pytest.mark.parametrize(
    ("given", "error", "said"),
    [
        ({"message_id": ""}, InvalidName, "a message id has 1 to 200 bytes"),
        ({"message_id": 5}, InvalidName, "a message id is a str"),
        ({"reply_to": "or ders"}, InvalidName, "queue name 'or ders' is not valid"),
        ({"reply_to": "reply-7"}, InvalidName, "a client's own reply queue"),
        ({"scratch": [1]}, InvalidValue, "a scratch pad is a mapping"),
        ({"scratch": {1: 2}}, InvalidValue, "the keys of a scratch pad are texts"),
        ({"scratch": {"a": object()}}, InvalidValue, "does not fit into JSON"),
        ({"scratch": {"a": float("nan")}}, InvalidValue, "does not fit into JSON"),
        ({"scratch": {"a": "x" * 65_536}}, TooLarge, "at most 65536 bytes"),
        ({"content_type": "text"}, InvalidValue, "a content type is a str like"),
        ({"content_type": "text/plain; charset=klingon"}, InvalidValue, "code page 'klingon'"),
        ({"content_type": "text/plain; charset=hex"}, InvalidValue, "code page 'hex'"),
        ({"content_type": "text/" + "x" * 200}, InvalidValue, "at most 200 characters"),
    ],
)
def test_what_is_no_such_attribute_is_refused(
    given: Any, error: type[Exception], said: str
) -> None:
    with pytest.raises(error, match=said):
        enqueue_op(RAW, b"", given, own_transaction=True)
    if "reply_to" not in given:
        with pytest.raises(error, match=said):
            request_of(RAW, "1", b"", given)


def test_a_request_has_its_reply_queue_and_a_body_of_json_its_code_page() -> None:
    with pytest.raises(InvalidValue, match="no keyword 'reply_to'"):
        request_of(RAW, "1", b"", {"reply_to": "answers"})
    with pytest.raises(InvalidValue, match="content_type is for requests of type bytes"):
        request_of(TYPED, "1", {}, {"content_type": "text/plain"})
    with pytest.raises(InvalidValue, match="no keyword 'priority'"):
        list(requests_of(RAW, [("1", b"", {"priority": 1})]))  # type: ignore[list-item] # which is refused


def test_an_element_says_what_it_is_wherever_it_is() -> None:
    types = {
        ElementType.DATAGRAM: element(),
        ElementType.REQUEST: element(role=Role.REQUEST, reply_queue_id=2),
        ElementType.REPLY: element(role=Role.REPLY, outcome=RequestOutcome.DONE),
        ElementType.REPORT: element(properties={"onceq_report": "arrival"}),
    }
    assert [one.type for one in types.values()] == list(types)
    held = element(role=Role.FAILED, reply_queue_id=2)
    assert (held.type, element(role=Role.FAILED).type) == ("request", "datagram")


def test_what_was_not_given_is_the_systems() -> None:
    bare = element(content_type=code_pages.JSON)
    assert (bare.message_id, bare.reply_to, bare.scratch) == (str(EID), None, {})
    assert bare.code_page == "utf-8"
    given = {"onceq_message_id": "m", "onceq_reply_to": "answers", "onceq_scratch": {"a": 1}}
    full = element(properties=given, content_type='text/plain; Charset="CP037"')
    assert (full.message_id, full.reply_to, full.scratch) == ("m", "answers", {"a": 1})
    assert (full.code_page, element().code_page) == ("cp037", None)
    full.scratch["a"] = 2
    assert full.scratch == {"a": 1}, "a copy"


def test_json_in_another_code_page_is_read_by_a_typed_queue() -> None:
    body = '{"name": "J\u00fcrgen"}'.encode("cp037")
    assert TYPED.decode_request(body, "application/json; charset=cp037") == {"name": "J\u00fcrgen"}
    assert RAW.decode_request(body, "application/json; charset=cp037") == body
    for wrong in ("ascii", "klingon"):
        with pytest.raises(InvalidValue, match=f"code page '{wrong}'"):
            TYPED.decode_request(b"\xff", f"application/json; charset={wrong}")


def test_a_ledger_keeps_the_attributes_of_a_request() -> None:
    given: Any = {"message_id": "m", "scratch": {"a": 1}, "content_type": "text/plain"}
    sent = request_of(RAW, "1", b"", given)
    assert sent.content_type == "text/plain"
    assert LastRequest.of(sent).request == sent


def test_requests_that_go_together_have_one_content_type() -> None:
    session = session_of("till", RAW, {"window": 10})
    session.state = ClientState.CONNECTED
    each = list(
        requests_of(RAW, [("1", b"", {"content_type": "text/plain"}), ("2", b"", {"scratch": {}})])
    )
    with pytest.raises(InvalidValue, match="have one content type, and not text/plain, appl"):
        next(send_many(session, each))
    op: Any = next(send_many(session, each[:1]))
    assert op.content_type == "text/plain"


def test_a_context_of_no_server_enqueues_nothing() -> None:
    context = onceq.Context(
        connection=None,  # type: ignore[arg-type] # there is none
        queue="raw",
        eid=EID,
        rid="1",
        attempt=1,
        enqueued_at=NOON,
        priority=4,
        properties=None,
        correlation_id=None,
        owes_reply=True,
    )
    assert (context.type, context.scratch, context.message_id) == ("request", {}, str(EID))
    with pytest.raises(IllegalState, match="this context is of no server"):
        context.enqueue(RAW, b"")
