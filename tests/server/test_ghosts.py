"""A server session whose connection broke while its transaction still runs in the database."""

from __future__ import annotations

import uuid

import pytest

import onceq
from onceq.errors import ClaimLost
from onceq.model import ops
from tests.lives import Life, living
from tests.parts import Background, plain, scalar, wait_blocked, wait_until

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


HELD_UP = """
alter function {r}.started_by(uuid) rename to started_by_then;
create function {r}.started_by(p_process uuid) returns jsonb language plpgsql volatile as $$
begin
    perform pg_advisory_xact_lock({key});
    return {r}.started_by_then(p_process);
end $$;
"""
"""Between looking whether a process is missing and taking over from it."""


def test_a_session_that_begins_while_its_process_is_taken_over_keeps_its_claims(
    qm: onceq.QueueManager, conninfo: str, repository: str
) -> None:
    qm.declare(RAW)
    qm.enqueue(RAW, b"x")
    process = uuid.uuid4()
    with plain(conninfo) as holder, living(conninfo, repository) as other:
        with living(conninfo, repository, process) as former:
            backend = former.driver.connection.info.backend_pid
        ended = "select count(*) = 0 from pg_stat_activity where pid = %s"
        wait_until(lambda: scalar(conninfo, ended, backend))
        key = f"'{repository}.history'::regclass::oid::integer, 1"
        holder.execute(HELD_UP.format(r=repository, key=key).encode())
        holder.execute(f"select pg_advisory_lock({key})".encode())
        taking = Background(other.take_over)
        wait_blocked(conninfo, "take_over", taking)
        with living(conninfo, repository, process) as again:
            element = again.claim_one("raw")
            holder.execute(f"select pg_advisory_unlock({key})".encode())
            taking.result()
            assert qm.show("raw").claimed == 1
            again.run(element)
    assert qm.show("raw").depth == 0
