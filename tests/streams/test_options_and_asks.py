"""The table of options, and the values that travel between processes."""

from __future__ import annotations

import importlib

import pytest
from msgspec.structs import replace

from onceq.errors import InvalidValue
from onceq.streams.errors import FrameRefused
from onceq.streams.model import asks, encoding, uses
from onceq.streams.model.choice import Bridge, Firsts, Log, Promised, Stage
from onceq.streams.model.ending import EndStream, Gone
from onceq.streams.model.low import Consensus
from onceq.streams.model.options import OPTIONS, Option, Scope, settled
from onceq.streams.model.quorum import Intergroup, listed

ABC = listed("a b; c", intergroup=Intergroup.ALL)


@pytest.mark.parametrize("option", OPTIONS, ids=lambda one: one.name)
def test_every_option_is_read_by_something(option: Option) -> None:
    module, _, name = option.read_by.rpartition(".")
    room = module if "." in module else f"model.{module}"
    assert hasattr(importlib.import_module(f"onceq.streams.{room}"), name)
    assert option.scopes


def test_defaults_are_those_of_um() -> None:
    of_source = settled({}, Scope.SOURCE)
    assert of_source["consensus_sequence_number_behavior"] is Consensus.MAJORITY
    assert of_source["flight_size"] == 1_000
    of_receiver = settled({}, Scope.RECEIVER)
    assert of_receiver["retransmit_request_maximum"] is None
    assert of_receiver["ack_batching_interval_ms"] == 100
    assert of_receiver["application_outstanding_maximum"] == 0


def test_given_values_replace_defaults() -> None:
    given = {"flight_size": 1, "retention_intergroup_stability_behavior": "all_active"}
    made = settled(given, Scope.SOURCE)
    assert made["flight_size"] == 1
    assert made["retention_intergroup_stability_behavior"] is Intergroup.ALL_ACTIVE


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"flight": 1}, "no option of a source"),
        ({"retransmit_request_maximum": 1}, "no option of a source"),
        ({"flight_size": -1}, "at least 0"),
        ({"flight_size": True}, "whole number"),
        ({"flight_size": None}, "whole number"),
        ({"flight_size": "9"}, "whole number"),
        ({"fragment_size": 1 << 20}, "at most 1048528"),
        ({"create": "any"}, "create is 'any': give one of 'all', 'quorum'"),
        ({"consensus_sequence_number_behavior": "most"}, "'lowest', 'majority', 'highest'"),
    ],
)
def test_options_that_cannot_be_are_refused(given: dict[str, object], says: str) -> None:
    with pytest.raises(InvalidValue, match=says):
        settled(given, Scope.SOURCE)


def test_a_switch_is_true_or_false() -> None:
    made = settled({"allow_confirmed_delivery": False}, Scope.RECEIVER)
    assert made["allow_confirmed_delivery"] is False
    with pytest.raises(InvalidValue, match="True or False"):
        settled({"allow_confirmed_delivery": 0}, Scope.RECEIVER)


BRIDGE = Bridge(epoch=2, stage=Stage.JOINT, lists=(ABC, listed("d")), firsts=((1, 0), (2, 9)))
HAS = Promised(bridge=BRIDGE, hints=(ABC,), end=12, stable=9, whole=False, positions={"7": 3})


@pytest.mark.parametrize(
    "ask",
    [
        asks.Look(topic="bars", session=0x7E1),
        asks.Fence(stream=2**64 - 1, epoch=2, life=9, own=ABC),
        asks.Admit(
            stream=1,
            life=9,
            log=Log(admitted=1, end=9, lists=(ABC,), firsts=((1, 0),), positions={"7": 3}),
            bridge=BRIDGE,
            donors=("a", "b"),
            address="127.0.0.1:7500",
        ),
        asks.Learn(topic="bars", session=0x7E1),
        asks.Fetch(stream=1, begin=3, end=9),
        asks.Read(stream=1, epoch=2, begin=3, end=9),
        asks.Register(stream=1, epoch=2, topic="bars", session=5),
        asks.Acknowledge(stream=1, regid=7, below=3),
        asks.Deregister(stream=1, regid=7),
        uses.Leave(stream=1, key="session 5", life=9),
        EndStream(stream=1, topic="bars", session=9),
    ],
)
def test_an_ask_arrives_as_it_was_sent(ask: asks.Ask) -> None:
    assert encoding.ask_of(encoding.packed(ask)) == ask


@pytest.mark.parametrize(
    "answer",
    [
        asks.Found(stream=1, promised=3, life=9, has=HAS),
        asks.Found(stream=1, promised=3, life=9, used=uses.InUse(life=9, heard=4)),
        uses.InUse(life=9, heard=4),
        asks.Refused(promised=4),
        asks.Forgot(),
        asks.NotAdmitted(),
        asks.Holding(epoch=2, end=12),
        asks.Noted(epoch=2),
        asks.Information(
            stream=1,
            epoch=2,
            stage=Stage.JOINT,
            firsts=((1, 0), (2, 9)),
            lists=(ABC, listed("d")),
            address="",
            stable=9,
        ),
        asks.Conflict(number=5),
        asks.Lacking(begin=3, end=9),
        asks.Full(end=12, blocking=7),
        asks.Registered(epoch=2, regid=7, old=True, below=3),
        asks.Range(begin=3, end=9, frames=2, missing=True),
        asks.Found(gone=(1, 2**64 - 1)),
        Gone(stream=1),
    ],
)
def test_an_answer_arrives_as_it_was_sent(answer: asks.Answer) -> None:
    assert encoding.answer_of(encoding.packed(answer)) == answer


@pytest.mark.parametrize("data", [b"", b"\xc1", b"\x80", b"\x81\xa4type\xa4Nope", b"[1]", bytes(9)])
def test_rubbish_is_no_ask_and_no_answer(data: bytes) -> None:
    for read in (encoding.ask_of, encoding.answer_of):
        with pytest.raises(FrameRefused):
            read(data)


def test_what_a_receiver_says_to_its_source_arrives_and_nothing_else_does() -> None:
    for said in (
        asks.Learn(topic="bars", session=9),
        asks.Confirm(stream=1, epoch=2, receiver=5, below=3),
    ):
        assert encoding.said_of(encoding.packed(said)) == said
    with pytest.raises(FrameRefused):
        encoding.said_of(encoding.packed(asks.Look(topic="bars", session=9)))
    with pytest.raises(FrameRefused):
        encoding.ask_of(encoding.packed(asks.Confirm(stream=1, epoch=2, receiver=5, below=3)))


def test_an_answer_is_no_ask() -> None:
    with pytest.raises(FrameRefused):
        encoding.ask_of(encoding.packed(asks.Forgot()))


def test_no_number_of_an_ask_is_less_than_nothing() -> None:
    with pytest.raises(FrameRefused):
        encoding.ask_of(encoding.packed(asks.Fetch(stream=-1, begin=0, end=3)))
    with pytest.raises(FrameRefused):
        encoding.ask_of(encoding.packed(asks.Read(stream=1, epoch=1, begin=-3, end=3)))


LOG = Log(admitted=1, end=9, lists=(ABC,), firsts=((1, 0),), positions={})


@pytest.mark.parametrize(
    ("log", "bridge"),
    [
        (LOG, replace(BRIDGE, firsts=())),
        (LOG, replace(BRIDGE, firsts=((2, 9), (1, 0)))),
        (LOG, replace(BRIDGE, epoch=3)),
        (LOG, replace(BRIDGE, lists=())),
        (replace(LOG, end=8), BRIDGE),
        (replace(LOG, firsts=()), BRIDGE),
    ],
    ids=["no-epochs", "descending", "other-epoch", "no-list", "other-end", "no-epochs-of-log"],
)
def test_an_admission_that_cannot_be_is_refused(log: Log, bridge: Bridge) -> None:
    ask = asks.Admit(stream=1, life=9, log=log, bridge=bridge)
    with pytest.raises(FrameRefused, match="do not fit"):
        encoding.ask_of(encoding.packed(ask))


@pytest.mark.parametrize("firsts", [(), ((1, 3),), ((2, 0), (1, 9)), ((1, 0), (2, 9), (3, 8))])
def test_what_a_receiver_is_told_has_the_epochs_of_a_log(firsts: Firsts) -> None:
    told = asks.Information(
        stream=1,
        epoch=2,
        stage=Stage.SETTLED,
        firsts=firsts,
        lists=(ABC,),
        address="",
        stable=9,
    )
    with pytest.raises(FrameRefused, match="no log has"):
        encoding.answer_of(encoding.packed(told))


def test_no_epoch_is_later_than_a_frame_can_say_and_ids_are_left_for_others() -> None:
    with pytest.raises(FrameRefused):
        encoding.ask_of(encoding.packed(asks.Fence(stream=1, epoch=1 << 32, life=1, own=ABC)))
    chosen = asks.Register(stream=1, epoch=2, topic="bars", session=0, regid=(1 << 63) - 1)
    assert encoding.ask_of(encoding.packed(chosen)) == chosen
    with pytest.raises(FrameRefused):
        encoding.ask_of(encoding.packed(replace(chosen, regid=1 << 63)))


def test_names_and_lists_are_no_longer_than_they_may_be() -> None:
    longest = asks.Look(topic="t" * asks.NAME_MAX, session=1)
    assert encoding.ask_of(encoding.packed(longest)) == longest
    with pytest.raises(FrameRefused):
        encoding.ask_of(encoding.packed(asks.Look(topic="t" * 256, session=1)))
    many = replace(ABC, groups=(tuple(f"store{n}" for n in range(65)),))
    for own in (many, replace(ABC, groups=(("s" * 256,),))):
        with pytest.raises(FrameRefused, match="longer than"):
            encoding.ask_of(encoding.packed(asks.Fence(stream=1, epoch=1, life=1, own=own)))
        bridge = replace(BRIDGE, lists=(own,))
        with pytest.raises(FrameRefused, match="longer than"):
            encoding.ask_of(encoding.packed(asks.Admit(stream=1, life=1, log=LOG, bridge=bridge)))
