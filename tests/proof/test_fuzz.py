"""Rubbish is refused in words; whatever else comes of it is found."""

from __future__ import annotations

from typing import TYPE_CHECKING

import psycopg
import pytest

import onceq
from onceq.errors import InDoubt, InvalidName, InvalidValue
from proof.fuzz.database import REPOSITORY, opened
from proof.fuzz.judge import Verdicts
from proof.fuzz.part import run_seeds
from tests.parts import plain, scalar

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

SEEDS = 8000
AGAINST_POSTGRESQL = 500


@pytest.fixture
def fuzzed(conninfo: str) -> Iterator[str]:
    yield conninfo
    with plain(conninfo) as connection:
        connection.execute(f"drop schema if exists {REPOSITORY} cascade".encode())


def test_rubbish_is_refused_in_words() -> None:
    verdicts = run_seeds((0, SEEDS))
    assert verdicts.broken == []
    assert verdicts.inputs.total() == SEEDS
    assert {"InvalidName", "InvalidValue", "FileMismatch"} <= verdicts.refused.keys()


def test_rubbish_leaves_postgresql_as_it_is(fuzzed: str) -> None:
    verdicts = Verdicts()
    with opened(fuzzed) as database:
        for seed in range(AGAINST_POSTGRESQL):
            database.call_api(verdicts, seed)
            database.call_sql(verdicts, seed)
            database.call_sql(verdicts, AGAINST_POSTGRESQL + seed)
            if seed % 10 == 0:
                database.call_cli(verdicts, seed)
    assert verdicts.broken == []


def _raise(error: Exception) -> Callable[[], None]:
    def call() -> None:
        raise error

    return call


@pytest.mark.parametrize(
    ("error", "wrong"),
    [
        (TypeError("no"), "raised TypeError"),
        (InDoubt("it may have happened, or not"), "its outcome is unknown"),
        (InvalidValue("bad"), "says only 'bad'"),
        (InvalidValue("this is not a value"), "was changed"),
    ],
)
def test_what_is_no_refusal_is_found(error: Exception, wrong: str) -> None:
    verdicts = Verdicts()
    states = iter(range(10))
    verdicts.judge("here", "call", 7, _raise(error), state=lambda: next(states))
    (found,) = verdicts.broken
    assert wrong in found
    assert "seed 7" in found


def test_a_refusal_in_words_is_fine() -> None:
    verdicts = Verdicts()
    verdicts.judge("here", "call", 7, _raise(InvalidName("a name is a str, not int")))
    assert verdicts.broken == []
    assert verdicts.refused["InvalidName"] == 1


@pytest.mark.parametrize("priority", ["10", "-1", "null"])
@pytest.mark.parametrize("not_before", ["null", "'2026-01-01'"])
def test_sql_refuses_a_priority_that_is_none(
    conninfo: str, repository: str, qm: onceq.QueueManager, priority: str, not_before: str
) -> None:
    qm.declare(onceq.Queue("orders", bytes, bytes))
    call = (
        f"select eid from {repository}.enqueue('orders', '', null, {priority}::smallint,"
        f" {not_before}::timestamptz, null, null, null, null, true)"
    )
    with plain(conninfo) as connection, pytest.raises(psycopg.Error, match="priority"):
        connection.execute(call.encode())
    assert scalar(conninfo, f"select count(*) from {repository}.element") == 0


def test_a_lookup_without_a_limit_is_whole(conninfo: str, repository: str) -> None:
    query = f"select count(*) from {repository}.look_up(null, null, null, null, null, null)"
    assert scalar(conninfo, query) == 0
