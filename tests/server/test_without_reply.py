"""Requests without reply: done once or failed for good, and found by lookup (spec C16)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import psycopg

import onceq
from tests.parts import plain, rows, scalar, serving, wait_until

if TYPE_CHECKING:
    from uuid import UUID

LIMIT = 3
LETTERS = onceq.Queue("letters", str, str, abort_limit=LIMIT, backoff_ms=0)


def states(qm: onceq.QueueManager, eid: UUID) -> set[tuple[str, str | None]]:
    return {(one.state, one.outcome) for one in qm.lookup(eid=eid)}


def test_each_is_done_once_or_held_and_nobody_is_told(
    qm: onceq.QueueManager, conninfo: str, repository: str
) -> None:
    """G2, G3, G7, with no client: the outcome is in the lookup and in the error queue."""

    def post(letter: str, context: onceq.Context) -> str:
        """Writes down each letter; one is torn each time, and one is refused."""
        context.connection.execute(
            f"insert into {repository}.posted values (%s)".encode(), (letter,)
        )
        if letter == "torn":
            raise ValueError("it is torn")
        if letter == "unstamped":
            raise onceq.Reject("no stamp")
        return "nobody reads this"

    qm.declare(LETTERS)
    with plain(conninfo) as connection:
        connection.execute(f"create table {repository}.posted (letter text)".encode())
    with psycopg.connect(conninfo) as connection:
        never = onceq.enqueue(connection, LETTERS, "withdrawn", repository=repository)
        connection.rollback()
        good = onceq.enqueue(connection, LETTERS, "good", repository=repository)
        torn = onceq.enqueue(connection, LETTERS, "torn", repository=repository)
        refused = onceq.enqueue(connection, LETTERS, "unstamped", repository=repository)
        connection.commit()
    with serving(conninfo, repository, LETTERS.handled_by(post)):
        wait_until(lambda: not qm.show("letters").depth and len(qm.lookup(state="held")) == 2)
        assert states(qm, never) == set()
        assert states(qm, good) == {("finished", "done")}
        for eid, aborts, code in ((torn, LIMIT, "ValueError"), (refused, 1, "Reject")):
            assert states(qm, eid) == {("finished", "failed"), ("held", None)}
            (held,) = qm.lookup(eid=eid, state="held")
            assert (held.queue, held.aborts, held.code) == ("letters.error", aborts, code)
        assert rows(conninfo, f"select letter from {repository}.posted") == [("good",)]
        assert qm.redrive(torn) == (torn, str(torn)), "it owes no reply: it is itself again"
        assert qm.redrive(torn) is None
        wait_until(lambda: bool(qm.lookup(eid=torn, state="held")))
    kinds = f"select count(*) from {repository}.element where role = 'reply'"
    assert scalar(conninfo, kinds) == 0
