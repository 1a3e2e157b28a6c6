"""A server session whose connection broke while its transaction still runs in the database."""

from __future__ import annotations

import uuid

import pytest

import onceq
from onceq.errors import ClaimLost
from onceq.model import ops
from tests.lives import Life, living
from tests.parts import scalar, wait_until

RAW = onceq.Queue("raw", bytes, bytes)


def begin_to_finish(life: Life) -> None:
    """Claims an element and finishes it, but for the commit."""
    element = life.claim_one("raw")
    life.begin(element)
    life.finish(element)


def end_as(life: Life, end: str) -> None:
    if end == "commit":
        life.commit()
    else:
        life.rollback()
    life.driver.connection.close()


def wait_nothing_claimed(qm: onceq.QueueManager, life: Life) -> None:
    """Takes over as a server does at every look, until the dead session has ended."""

    def nothing_claimed() -> bool:
        life.take_over()
        return qm.show("raw").claimed == 0

    wait_until(nothing_claimed)


@pytest.mark.parametrize("end", ["commit", "rollback"])
def test_what_a_ghost_was_finishing_is_never_stuck(
    qm: onceq.QueueManager, conninfo: str, repository: str, end: str
) -> None:
    qm.declare(RAW)
    qm.enqueue(RAW, b"x")
    process = uuid.uuid4()
    with (
        living(conninfo, repository, process) as sibling,
        living(conninfo, repository, process) as ghost,
    ):
        begin_to_finish(ghost)
        with living(conninfo, repository, process, ghost.incarnation) as following:
            assert qm.show("raw").claimed == 1  # the ghost may yet commit: it is not waited for
            assert following.slot != ghost.slot
            end_as(ghost, end)
            wait_nothing_claimed(qm, sibling)
            assert qm.show("raw").depth == (0 if end == "commit" else 1)
    query = f"select count(*) from {repository}.history"
    assert scalar(conninfo, query) == int(end == "commit")


@pytest.mark.parametrize("end", ["commit", "rollback"])
def test_what_is_finishing_while_its_incarnation_is_closed_is_never_stuck(
    qm: onceq.QueueManager, conninfo: str, repository: str, end: str
) -> None:
    """At the deadline of a stop another session closes the incarnation."""
    qm.declare(RAW)
    qm.enqueue(RAW, b"x")
    with living(conninfo, repository) as server, living(conninfo, repository) as other:
        begin_to_finish(server)
        assert other.driver.perform(ops.CloseIncarnation(incarnation=server.incarnation))
        end_as(server, end)
        wait_nothing_claimed(qm, other)
        assert qm.show("raw").depth == (0 if end == "commit" else 1)
    charged = f"select count(*) from {repository}.attempt"
    assert scalar(conninfo, charged) == 0  # a stop is nobody's fault


def test_a_revoked_claim_never_finishes(
    qm: onceq.QueueManager, conninfo: str, repository: str
) -> None:
    qm.declare(RAW)
    qm.enqueue(RAW, b"x")
    with living(conninfo, repository) as server, living(conninfo, repository) as other:
        element = server.claim_one("raw")
        server.begin(element)
        other.driver.perform(ops.CloseIncarnation(incarnation=server.incarnation))
        with pytest.raises(ClaimLost):
            server.finish(element)
        server.rollback()
    assert qm.show("raw").depth == 1
