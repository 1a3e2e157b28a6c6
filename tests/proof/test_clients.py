"""Clients killed at every step always know; who is struck in a call learns the truth: small.

Each in a process of its own: it forks the clients, and has no thread when it does.
"""

from __future__ import annotations

import pytest

from proof.clients.part import PART as CLIENTS
from proof.interrupts.part import PART as INTERRUPTS
from tests.small import small_apart


@pytest.mark.timeout(240)  # later than the part's own limit, which says what it was doing
def test_clients_that_are_killed_at_every_step_know_their_state() -> None:
    small_apart(CLIENTS)


@pytest.mark.timeout(300)
def test_who_is_struck_in_the_middle_of_a_call_learns_the_truth() -> None:
    small_apart(INTERRUPTS)
