"""What a receiver tells of stores that do not register it: each reason once."""

from __future__ import annotations

import pytest

from onceq.streams.model import asks
from onceq.streams.model.choice import Bridge, Promised, Stage
from onceq.streams.model.quorum import listed
from onceq.streams.model.uses import InUse, Leave
from onceq.streams.receiver.lacking import Lacking

LEARN = asks.Learn(topic="bars", session=9)
LOOK = asks.Look(topic="bars", session=9)
REGISTER = asks.Register(stream=7, epoch=2, topic="bars", session=5)
BRIDGE = Bridge(epoch=2, stage=Stage.SETTLED, lists=(listed("a b c"),), firsts=((1, 0), (2, 4)))
HOLDS = asks.Found(stream=7, promised=2, has=Promised(bridge=BRIDGE, end=4))
NOTED = asks.Registered(epoch=2, regid=3, old=False, below=0)


class Told:
    """What is told, one ask after the other."""

    def __init__(self) -> None:
        self.lacking = Lacking()

    def of(self, ask: asks.Ask, answer: asks.Answer | None, store: str = "a") -> list[str]:
        answers = {} if answer is None else {store: answer}
        return [one.why for one in self.lacking.look({store: ask}, answers)]


@pytest.mark.parametrize(
    ("ask", "answer", "says"),
    [
        (LEARN, None, "a: it does not answer, in time: start it"),
        (LEARN, asks.Forgot(), "a: it knows nothing of this stream"),
        (LOOK, None, "a: it does not answer"),
        (LOOK, asks.Found(), "a: it knows nothing of this stream"),
        (
            LOOK,
            asks.Found(stream=7, promised=3, has=HOLDS.has),
            "a: it is between two epochs of the stream",
        ),
        (REGISTER, None, "a: it does not answer"),
        (REGISTER, InUse(life=4), "a: it hears another live user of this registration"),
        (REGISTER, asks.NotAdmitted(), "a: it is between two epochs"),
        (REGISTER, asks.Refused(promised=2), "a: another receiver has this RegID there"),
        (REGISTER, asks.Full(end=4), "a: it has too many receivers of this stream: deregister"),
    ],
)
def test_each_reason_is_told_once(ask: asks.Ask, answer: asks.Answer | None, says: str) -> None:
    told = Told()
    (why,) = told.of(ask, answer)
    assert why.startswith(says)
    assert told.of(ask, answer) == []


def test_what_hinders_nothing_is_not_told() -> None:
    told = Told()
    for ask, answer in ((LEARN, asks.Others(streams=())), (LOOK, HOLDS), (REGISTER, NOTED)):
        assert told.of(ask, answer) == []
    leave = Leave(stream=7, key="session 5", life=1)
    assert list(told.lacking.look({"a": leave}, {})) == []


def test_it_is_told_again_when_it_changes_and_when_the_store_is_back() -> None:
    told = Told()
    assert told.of(LOOK, None) != []
    assert told.of(LOOK, HOLDS, "b") == []
    (why,) = told.of(LOOK, asks.Found())
    assert "knows nothing" in why
    assert told.of(LOOK, HOLDS) == ["a: it answers again, and the registration waits for others"]
    assert told.of(LOOK, HOLDS) == []
    assert told.of(LOOK, None) != []


def test_who_refuses_to_register_and_answers_what_it_has_is_told_once() -> None:
    told = Told()
    assert told.of(REGISTER, InUse(life=4)) != []
    for _ in range(3):
        assert told.of(LOOK, HOLDS) == []
        assert told.of(REGISTER, InUse(life=4)) == []
    assert told.of(REGISTER, NOTED) == [], "StoreRegistered tells it"
    assert told.of(REGISTER, InUse(life=4)) != []


def test_events_have_the_stream_as_soon_as_a_store_has_said_it() -> None:
    lacking = Lacking()
    assert [one.stream for one in lacking.look({"a": LOOK}, {})] == [0]
    both = {"a": HOLDS, "b": asks.Found()}
    found = list(lacking.look({"a": LOOK, "b": LOOK}, both))
    assert [(one.stream, one.store) for one in found] == [(7, "a"), (7, "b")]
