"""Who stands behind a request, and where they were: there and back (spec C19)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

import onceq
from onceq.errors import InvalidName, InvalidValue, TooLarge
from onceq.model import ops
from tests.lives import living

if TYPE_CHECKING:
    from collections.abc import Generator

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
        with pytest.raises(InvalidValue, match="end_user"):
            clerk.send("1", b"x", properties={"onceq_end_user": {"id": "ann"}})
        assert clerk.outstanding == []
