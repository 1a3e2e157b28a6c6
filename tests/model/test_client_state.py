"""Every call in every state: figure 1 of [BHM90], with what onceq adds."""

from __future__ import annotations

import itertools

import pytest

from onceq.clerk import Clerk
from onceq.errors import IllegalState
from onceq.model.client_state import (
    FIRST,
    SHOWN,
    STATES,
    TRANSITIONS,
    Call,
    ClientState,
    after,
    resumed,
)

CONN, SENT, RECVD = (
    ClientState.CONNECTED,
    ClientState.REQ_SENT,
    ClientState.REPLY_RECVD,
)

# From [BHM90 fig. 1] and C5, C6, C18, written down apart from the table that it checks.
# A row a call; a column a state; - is illegal.
FIGURE = """
call                               Disconnected Connected  Req-Sent   Reply-Recvd
connect                            Connected    Connected  Connected  Connected
disconnect                         -            Disconnected -        Disconnected
send                               -            Req-Sent   -          Req-Sent
send_with_others_outstanding       -            -          Req-Sent   -
receive                            -            -          Req-Sent   -
the_last_reply_arrived             -            -          Reply-Recvd -
rereceive                          -            -          -          Reply-Recvd
rereceive_with_others_outstanding  -            -          Req-Sent   -
rereceive_by_rid                   -            Connected  Req-Sent   Reply-Recvd
acknowledge                        -            Connected  Req-Sent   Connected
cancel_last_request                -            -          Req-Sent   Reply-Recvd
watch                              -            Connected  Req-Sent   Reply-Recvd
"""

CALLS = {call.value.replace(" ", "_"): call for call in Call}


def drawn() -> dict[tuple[ClientState, Call], ClientState]:
    """Returns the figure as a table."""
    head, *rows = [line.split() for line in FIGURE.strip().splitlines()]
    return {
        (ClientState(state), CALLS[name]): ClientState(following)
        for name, *cells in rows
        for state, following in zip(head[1:], cells, strict=True)
        if following != "-"
    }


def test_the_table_is_the_figure() -> None:
    assert drawn() == TRANSITIONS


@pytest.mark.parametrize(("state", "call"), list(itertools.product(ClientState, Call)))
def test_every_call_in_every_state(state: ClientState, call: Call) -> None:
    following = drawn().get((state, call))
    if following is not None:
        assert after(state, call) is following
        return
    with pytest.raises(IllegalState, match=f"{call.value} is not legal in state {state.value}"):
        after(state, call)


def test_an_error_says_what_is_outstanding_and_what_to_do_first() -> None:
    with pytest.raises(IllegalState) as refused:
        after(SENT, Call.SEND, ["o-1", "o-2"])
    assert str(refused.value) == (
        "send is not legal in state Req-Sent: 'o-1' is outstanding: call recover() or receive() "
        "first; legal are acknowledge(), cancel_last_request(), connect(), receive(), "
        "rereceive(rid)"
    )


def test_an_error_names_only_calls_that_a_clerk_has() -> None:
    assert all(hasattr(Clerk, text.partition("(")[0]) for text in SHOWN.values())
    assert set(FIRST) == set(ClientState)


def test_every_state_can_be_reached_and_left() -> None:
    assert set(TRANSITIONS.values()) == set(ClientState)
    assert {state for state, _ in TRANSITIONS} == set(ClientState)


@pytest.mark.parametrize(
    ("s_rid", "r_rid", "disconnected", "state"),
    [
        (None, None, False, CONN),
        ("1", None, False, SENT),
        ("2", "1", False, SENT),
        ("2", "2", False, RECVD),
        ("2", "2", True, CONN),
        ("2", "1", True, CONN),
    ],
)
def test_connect_branches_by_the_rids(
    s_rid: str | None, r_rid: str | None, *, disconnected: bool, state: ClientState
) -> None:
    assert resumed(s_rid, r_rid, disconnected=disconnected) is state


def test_the_recovery_states_are_told_apart() -> None:
    assert list(STATES) == ["A", "B", "C", "D", "E", "ABD"]
    assert len({kind for kind, _ in STATES.values()}) == 6
    assert all(next_step for _, next_step in STATES.values())
