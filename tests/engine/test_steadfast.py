"""A driver that outlives its connection: what it asks again, how long, and what it does not."""

from __future__ import annotations

import pickle
from typing import TYPE_CHECKING

import pytest

import onceq
from onceq import errors, telemetry
from onceq.engine.perform.driver import connect
from onceq.engine.perform.spark_driver import Route
from onceq.engine.perform.steadfast import WAITS_S, Steadfast
from onceq.model.spark_ops import SparkBound, SparkPlan
from onceq.spark.serve.aborts import take_over
from tests.events import emits

if TYPE_CHECKING:
    from collections.abc import Iterator

    from onceq.testing.clock import Clock
    from tests.events import Events

ASK = SparkBound()


@pytest.fixture
def pauses() -> list[float]:
    return []


@pytest.fixture
def steadfast(conninfo: str, repository: str, pauses: list[float]) -> Iterator[Steadfast]:
    route = Route(url="", conninfo=conninfo, repository=repository)
    with Steadfast(route, pauses.append) as made:
        yield made


def cut(conninfo: str, steadfast: Steadfast) -> None:
    """End the session of a driver, as an administrator does."""
    pid = steadfast.driver().connection.info.backend_pid
    with connect(conninfo) as other:
        other.execute(b"select pg_terminate_backend(%s, 60000)", (pid,))


@emits(telemetry.SparkConnectionLost)
def test_a_lost_connection_is_made_anew(
    conninfo: str, steadfast: Steadfast, pauses: list[float], events: Events
) -> None:
    assert steadfast.insist(ASK) == 0
    cut(conninfo, steadfast)
    assert steadfast.insist(ASK) == 0
    assert pauses == [WAITS_S[0]]
    assert len(events.of(telemetry.SparkConnectionLost)) == 1


def test_what_is_performed_once_is_not_asked_again(conninfo: str, steadfast: Steadfast) -> None:
    cut(conninfo, steadfast)
    with pytest.raises((errors.ConnectionLost, errors.InDoubt)):
        steadfast.perform(ASK)
    assert steadfast.perform(ASK) == 0


def test_it_gives_up_in_the_end(pauses: list[float]) -> None:
    nowhere = Route(url="", conninfo="host=127.0.0.1 port=1 dbname=d", repository="onceq")
    steadfast = Steadfast(nowhere, pauses.append)
    with pytest.raises(errors.CannotConnect):
        steadfast.insist(ASK)
    with pytest.raises(errors.CannotConnect):
        steadfast.driver()
    assert pauses == [*WAITS_S, *WAITS_S]


def test_a_refusal_is_no_loss(steadfast: Steadfast, pauses: list[float]) -> None:
    with pytest.raises(errors.Fenced):
        steadfast.insist(SparkPlan(server_id=7, epoch=1, group=1))
    assert pauses == []


def test_a_copy_connects_for_itself(steadfast: Steadfast) -> None:
    steadfast.insist(ASK)
    with pickle.loads(pickle.dumps(steadfast)) as copy:
        assert copy.insist(ASK) == 0
        pids = {each.driver().connection.info.backend_pid for each in (copy, steadfast)}
    assert len(pids) == 2


def test_a_spark_servers_driver_ticks_when_it_takes_over(
    qm: onceq.QueueManager, steadfast: Steadfast, onceq_clock: Clock
) -> None:
    """Once a second, as native servers do, on the driver's own connection."""
    raw = onceq.Queue("raw", bytes, bytes)
    qm.declare(raw)
    qm.declare(onceq.Periodic("nightly", raw, b"count", "0 2 * * *"))
    onceq_clock.advance(86_400)
    for _ in range(2):
        take_over(steadfast, None, 1, 60.0)
    assert qm.show("raw").depth == 1
