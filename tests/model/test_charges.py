"""What an execution that raised costs its element: one table over the whole tree of errors."""

from __future__ import annotations

import inspect

import pytest

from onceq import errors
from onceq.model.element import Charge, Lane
from onceq.server.charges import CHARGES, code_of, text_of
from onceq.server.execution import LIFE_IS_OVER
from proof.oracle.memory import MemoryDriver, memory_repository

ALL = [
    kind
    for _, kind in inspect.getmembers(errors, inspect.isclass)
    if issubclass(kind, errors.OnceqError)
]
UNCHARGED = {"ClaimLost", "EnvironmentFault", "DeadlineExceeded"}
FREE = {errors.Retry: Charge.RETRY, errors.QueueFull: Charge.RELEASE}
REJECTED = {"Reject", "HandlerMisuse", "InvalidValue"}


@pytest.mark.parametrize("kind", ALL, ids=lambda kind: kind.__name__)
def test_every_error_has_its_charge(kind: type[errors.OnceqError]) -> None:
    charge = CHARGES.get(kind, Charge.CHARGE)
    if kind in FREE:
        assert charge is FREE[kind]
    elif kind.__name__ in UNCHARGED:
        assert charge is Charge.ENVIRONMENT
    elif kind.__name__ in REJECTED:
        assert charge is Charge.REJECT
    else:
        assert charge is Charge.CHARGE


@pytest.mark.parametrize("kind", [errors.ConnectionLost, errors.InDoubt, errors.CannotConnect])
def test_a_lost_connection_ends_the_life_and_charges_nobody(kind: type[Exception]) -> None:
    assert kind in LIFE_IS_OVER
    assert kind not in CHARGES


def test_the_abort_code_is_what_the_handler_raised() -> None:
    raised = errors.HandlerFailed("KeyError", "'price'")
    assert (code_of(raised), text_of(raised)) == ("KeyError", "'price'")
    own = errors.Reject("negative amount")
    assert (code_of(own), text_of(own)) == ("Reject", "negative amount")


def test_the_numbers_of_lanes_are_those_in_rows() -> None:
    assert [int(lane) for lane in Lane] == [0, 5, 9, 10, 11, 12, 13]


def test_only_an_unknown_commit_is_unknown() -> None:
    unknown = {kind for kind in ALL if kind.outcome is errors.Outcome.UNKNOWN}
    assert unknown == {errors.InDoubt}


def test_a_memory_repository_is_made_from_its_seed() -> None:
    ids = [memory_repository(7)[0].state.new_eid() for _ in range(2)]
    assert ids[0] == ids[1]
    oracle, clock = memory_repository()
    driver = MemoryDriver(oracle, clock)
    driver.end()
    assert oracle.state.slots == {}
