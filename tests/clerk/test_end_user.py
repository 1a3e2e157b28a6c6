"""Who stands behind a request, and where they were: there and back (spec C19)."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import psycopg
import pytest

import onceq
from onceq.errors import InvalidName, InvalidValue, TooLarge
from onceq.model import ops
from tests.lives import living
from tests.parts import serving

if TYPE_CHECKING:
    from collections.abc import Generator, Iterable

    from tests.lives import Life

RAW = onceq.Queue("raw", bytes, bytes)
ANN = onceq.EndUser("ann 7", checkpoint="the third form of the pile, \u00e4\u20ac")


@pytest.fixture(autouse=True)
def life(qm: onceq.QueueManager, conninfo: str, repository: str) -> Generator[Life]:
    qm.declare(RAW)
    with living(conninfo, repository) as one:
        yield one


def test_what_the_user_gave_comes_back_with_the_reply(qm: onceq.QueueManager, life: Life) -> None:
    with qm.clerk("till", RAW) as clerk:
        clerk.send("1", b"x", end_user=ANN, properties={"colour": "red"})
        element = life.claim_one("raw")
        assert element.properties is not None
        assert element.properties["colour"] == "red"
        life.run(element, b"reply")
        reply = clerk.receive(timeout_s=60)
        assert reply.end_user == ANN
        assert clerk.rereceive() == reply
        clerk.send("2", b"x")
        life.run(life.claim_one("raw"), b"reply")
        assert clerk.receive(timeout_s=60).end_user is None
        clerk.send("3", b"x", end_user=onceq.EndUser("bob"))
        clerk.cancel_last_request()
        assert clerk.receive(timeout_s=60).end_user == onceq.EndUser("bob")


def test_connect_shows_who_was_there_last_and_how_far(qm: onceq.QueueManager, life: Life) -> None:
    """At every stage, also when the reply was acknowledged and the session ended."""
    with qm.clerk("till", RAW) as clerk:
        assert [clerk.last_user] == [None]
        clerk.send("1", b"x", end_user=ANN)
        assert clerk.last_user == ANN
        clerk.connect()
        assert (clerk.last_sent, clerk.last_user) == ("1", ANN)
        life.run(life.claim_one("raw"), b"reply")
        clerk.connect()
        assert clerk.last_user == ANN
        clerk.process(lambda reply: reply.value, onceq.ReplyPolicy.repeat(), timeout_s=60)
        clerk.connect()
        assert (clerk.last_received, clerk.last_user) == ("1", ANN)
        clerk.disconnect()
    with qm.clerk("till", RAW) as clerk:
        assert (clerk.was_disconnected, clerk.last_user) == (True, ANN)


def test_a_batch_gives_the_users_back_too(qm: onceq.QueueManager, life: Life) -> None:
    with qm.clerk("till", RAW, window=2) as clerk:
        clerk.send("1", b"x", end_user=ANN)
        clerk.send("2", b"x")
        both = life.claim("raw", 2)
        life.begin(both[0])
        life.driver.perform(
            ops.Finish(
                seqs=[one.seq for one in both],
                incarnation=life.incarnation,
                replies=[b"", b""],
                content_type=None,
                token="test",
                queue_id=both[0].queue_id,
                n=0,
                turn=1,
                alone=True,
            )
        )
        life.commit()
        assert [reply.end_user for reply in clerk.receive_many(2, timeout_s=60)] == [ANN, None]


MANY: list[tuple[str, bytes] | tuple[str, bytes, onceq.EndUser | None]] = [
    ("1", b"x", ANN),
    ("2", b"x"),
    ("3", b"x", onceq.EndUser("bob")),
    ("4", b"x", None),
]
USERS = {"1": ANN, "2": None, "3": onceq.EndUser("bob"), "4": None}


def users_of(replies: Iterable[onceq.Reply[bytes]]) -> dict[str, onceq.EndUser | None]:
    return {reply.rid: reply.end_user for reply in replies}


def test_each_of_many_has_a_user_of_its_own(qm: onceq.QueueManager, life: Life) -> None:
    """Also one that comes again with others that are new."""
    with qm.clerk("till", RAW, window=9) as clerk:
        shown = [clerk.last_user]
        for some in (MANY[:1], MANY, [("5", b"x", ANN)], []):
            clerk.send_many(some)
            shown.append(clerk.last_user)
        assert shown == [None, ANN, None, ANN, ANN]
        clerk.connect()
        assert clerk.last_user == ANN
        for element in life.claim("raw", 5):
            life.run(element, b"reply")
        assert users_of(clerk.receive_many(9, timeout_s=60)) == USERS | {"5": ANN}


@pytest.mark.parametrize("window", [1, 3])
def test_each_request_of_a_stream_has_a_user_of_its_own(
    qm: onceq.QueueManager, conninfo: str, repository: str, window: int
) -> None:
    with (
        serving(conninfo, repository, RAW.handled_by(lambda request, _: request)),
        qm.clerk("till", RAW, window=window) as clerk,
    ):
        assert users_of(clerk.stream(iter(MANY), timeout_s=60)) == USERS
        more = [("5", b"x"), ["6", b"x", ANN]]
        assert users_of(clerk.stream(more, timeout_s=60)) == {"5": None, "6": ANN}  # type: ignore[arg-type] # a list is as good
        clerk.connect()
        assert (clerk.last_sent, clerk.last_user) == ("6", ANN)


def test_connect_shows_who_sent_last_in_whatever_order_replies_are_freed(
    qm: onceq.QueueManager, life: Life
) -> None:
    """Even when the last to be freed is another's."""
    with qm.clerk("till", RAW, window=3) as clerk:
        clerk.send_many([("1", b"x", onceq.EndUser("bob")), ("2", b"x", ANN)])
        for element in life.claim("raw", 2):
            life.run(element, b"reply")
        clerk.receive_many(2, timeout_s=60)
        for freed in ("2", "1"):
            clerk.acknowledge([freed], checkpoint=b"c")
            clerk.connect()
            assert (clerk.last_sent, clerk.last_received) == ("2", freed)
            assert clerk.last_user == ANN
            clerk.receive_many(1, timeout_s=60) if freed == "2" else clerk.disconnect()
    with qm.clerk("till", RAW) as clerk:
        assert clerk.last_user == ANN


def test_what_a_former_version_recorded_is_of_what_was_received(
    qm: onceq.QueueManager, life: Life, conninfo: str, repository: str
) -> None:
    """Its record of a receive names no rid: it is shown with that of the reply, and no other."""
    recorded = b'{"id": "bob", "checkpoint": null}'
    with qm.clerk("till", RAW, window=3) as clerk:
        clerk.send("1", b"x")
        life.run(life.claim_one("raw"), b"reply")
        clerk.receive(timeout_s=60)
        clerk.acknowledge(["1"])
        for rid, user in (("1", onceq.EndUser("bob")), ("0", None)):
            with psycopg.connect(conninfo) as connection:
                text = f"update {repository}.registration set body = %s, rid = %s"
                connection.execute(text.encode(), (recorded, rid))
            clerk.connect()
            assert clerk.last_user == user


def test_the_clerks_of_a_desk_send_many_users_too(qm: onceq.QueueManager, life: Life) -> None:
    with qm.clerks(connections=1) as clerks, clerks.clerk("till", RAW, window=9) as clerk:
        clerk.send_many(MANY)
        for element in life.claim("raw", 4):
            life.run(element, b"reply")
        assert users_of(clerk.receive_many(9, timeout_s=60)) == USERS


def test_an_async_clerk_sends_many_users_too(conninfo: str, repository: str) -> None:
    async def client() -> dict[str, onceq.EndUser | None]:
        async with (
            onceq.open_async(conninfo, repository=repository) as qm,
            qm.clerk("till", RAW, window=9) as clerk,
        ):
            await clerk.send_many(MANY[:2])
            return users_of([one async for one in clerk.stream(MANY, timeout_s=60)])

    with serving(conninfo, repository, RAW.handled_by(lambda request, _: request)):
        assert asyncio.run(client()) == USERS


def test_what_is_no_end_user_is_refused(qm: onceq.QueueManager) -> None:
    wrong: Any = "ann"
    refused: list[tuple[Any, type[Exception]]] = [
        (wrong, InvalidValue),
        (onceq.EndUser(""), InvalidName),
        (onceq.EndUser("a\nb"), InvalidName),
        (onceq.EndUser("ann", "\0"), InvalidValue),
        (onceq.EndUser("ann", "\ud800"), InvalidValue),
        (onceq.EndUser("ann", "x" * 65_537), TooLarge),
    ]
    with qm.clerk("till", RAW) as clerk:
        for user, error in refused:
            with pytest.raises(error):
                clerk.send("1", b"x", end_user=user)
            with pytest.raises(error):
                clerk.send_many([("0", b"x"), ("1", b"x", user)])
            with pytest.raises(error):
                next(iter(clerk.stream([("1", b"x", user)])))
        for request in (("1",), ("1", b"x", ANN, ANN)):
            with pytest.raises(InvalidValue, match="end_user"):
                clerk.send_many([request])  # type: ignore[list-item] # wrong on purpose
        with pytest.raises(InvalidValue, match="end_user"):
            clerk.send("1", b"x", properties={"onceq_end_user": {"id": "ann"}})
        assert clerk.outstanding == []
