"""After a COMMIT that went with a finish: the session is made like new, and the marker stays."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

import pytest

import onceq
from onceq.engine.perform.driver import PostgresDriver, connect
from onceq.engine.perform.gate import Gate, Way
from onceq.engine.sessions import session
from onceq.errors import InDoubt, OnceqError
from onceq.model import ops
from tests.lives import Life
from tests.parts import scalar, serving

if TYPE_CHECKING:
    from collections.abc import Generator

    from onceq.model.element import Element
    from onceq.model.queue import IsolationLevel

RAW = onceq.Queue("raw", bytes, bytes)
LEFT = "set work_mem = '1234kB'; create temp table left_over (n integer)"


class Served:
    """A session of a server whose handler has left something, and two elements."""

    def __init__(self, qm: onceq.QueueManager, conninfo: str, repository: str) -> None:
        qm.declare(RAW)
        qm.enqueue_many(RAW, [b"1", b"2"])
        self.gate = Gate()
        self.driver = PostgresDriver(connect(conninfo), repository, calls={}, gate=self.gate)
        self.driver.clean_text = session.clean_text("")
        self.life = Life(self.driver)
        self.conninfo, self.repository = conninfo, repository
        self.first = self.life.claim_one("raw")

    def finish(self) -> Element:
        """Executes the first element, and returns the one that was claimed next."""
        self.life.begin(self.first)
        self.life.execute(LEFT)
        finished = self.driver.perform(
            ops.Finish(
                seqs=[self.first.seq],
                incarnation=self.life.incarnation,
                replies=[b""],
                content_type=None,
                token="test",
                queue_id=self.first.queue_id,
                n=1,
                turn=1,
                alone=True,
                slot=self.life.slot,
                commit=True,
            )
        )
        (following,) = finished.following
        return following

    def shown(self) -> tuple[Any, ...]:
        """What the session has of what the handler left."""
        look = "select current_setting('work_mem') = '1234kB', to_regclass('left_over') is not null"
        (found,) = self.driver.connection.execute(look).fetchall()
        return tuple(found)

    @property
    def marker(self) -> int:
        name = f"{self.repository}.started_{self.life.slot}"
        return int(scalar(self.conninfo, "select pg_sequence_last_value(%s::regclass)", name))

    @property
    def done(self) -> int:
        return int(scalar(self.conninfo, f"select count(*) from {self.repository}.history"))


@pytest.fixture
def served(qm: onceq.QueueManager, conninfo: str, repository: str) -> Generator[Served]:
    made = Served(qm, conninfo, repository)
    with contextlib.closing(made.driver.connection):
        yield made


def test_a_finish_commits_and_never_moves_the_marker(served: Served) -> None:
    """A poison that kills at its COMMIT is named until that is answered, and not the next."""
    following = served.finish()
    assert served.done == 1
    assert served.marker == served.first.seq != following.seq
    served.life.begin(following)
    assert served.marker == following.seq


def test_begin_makes_the_session_like_new(served: Served) -> None:
    following = served.finish()
    served.driver.perform(ops.Stopping())
    assert served.shown() == (True, True)
    served.life.begin(following)
    assert served.shown() == (False, False)
    assert session.in_transaction(served.driver.connection)


def test_so_does_whatever_else_comes_next(served: Served) -> None:
    served.finish()
    served.driver.perform(ops.ListQueues(queue="raw"))
    assert served.shown() == (False, False)


def test_a_begin_that_is_refused_at_the_gate_does_nothing(served: Served) -> None:
    """A death of a session that waits there charges nobody: the marker names another."""
    following = served.finish()
    other = Way(served.gate)
    assert other.enter(alone=True)
    begin = ops.Begin(
        slot=served.life.slot,
        seq=following.seq,
        token="test",
        isolation="read committed",
        alone=False,
    )
    assert not served.driver.perform(begin)
    assert not session.in_transaction(served.driver.connection)
    assert served.marker == served.first.seq
    other.leave()
    assert served.driver.perform(begin)
    assert served.marker == following.seq


NOT_LIKE_NEW = "committed, but the session cannot be made like new"


def test_a_session_that_cannot_be_made_like_new_ends(served: Served) -> None:
    """Its next life learns what was committed; going on would run a handler in what is left."""
    following = served.finish()
    served.driver.clean_text = b"select 1 / 0; "
    with pytest.raises(InDoubt, match=NOT_LIKE_NEW):
        served.life.begin(following)
    assert served.done == 1


def test_so_it_does_before_anything_else(served: Served) -> None:
    served.finish()
    served.driver.clean_text = b"select 1 / 0; "
    with pytest.raises(InDoubt, match=NOT_LIKE_NEW):
        served.driver.perform(ops.ListQueues(queue="raw"))


def test_an_error_of_the_begin_itself_is_its_own(served: Served) -> None:
    following = served.finish()
    served.life.slot = 999_999  # it has no marker
    with pytest.raises(OnceqError) as wrong:
        served.life.begin(following)
    assert not isinstance(wrong.value, InDoubt)


@pytest.mark.parametrize("isolation", ["read committed", "repeatable read", "serializable"])
def test_the_next_transaction_has_the_level_of_its_handler(
    served: Served, isolation: IsolationLevel
) -> None:
    """BEGIN goes with what makes the session like new only at the session's own level."""
    following = served.finish()
    served.life.begin(following, isolation)
    found = served.driver.connection.execute("show transaction_isolation").fetchone()
    assert found == (isolation,)
    assert served.shown() == (False, False)
    assert served.marker == following.seq


def test_a_handler_that_passes_on_asks_beside_its_server(
    qm: onceq.QueueManager, conninfo: str, repository: str
) -> None:
    """What both prepare on the one connection has one numbering."""
    qm.declare(RAW)
    later = onceq.Queue("later", bytes, bytes)
    qm.declare(later)

    def handle(body: bytes, context: onceq.Context) -> bytes:
        onceq.enqueue(context.connection, later, body, repository=repository)
        if body == b"2":
            context.connection.execute("deallocate all")
        return body

    with serving(conninfo, repository, RAW.handled_by(handle)), qm.clerk("till", RAW) as clerk:
        replies = [clerk.transceive(str(n), b"%d" % n, timeout_s=60) for n in range(5)]
    assert [reply.outcome for reply in replies] == [onceq.RequestOutcome.DONE] * 5
    assert [reply.attempts for reply in replies] == [1] * 5
    assert qm.show("later").depth == 5
