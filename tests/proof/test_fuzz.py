"""Rubbish is refused in words; whatever else comes of it is found."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

import psycopg
import pytest
import typer

import onceq
from onceq.errors import InDoubt, InvalidName, InvalidValue
from onceq.model import names, queue
from proof.fuzz import api, legal, values
from proof.fuzz.database import REPOSITORY, opened
from proof.fuzz.judge import Verdicts
from proof.fuzz.part import SHARE_MIN, Repository, run_seeds
from proof.fuzz.rubbish import Rubbish
from tests.parts import plain, scalar

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Any

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
    assert verdicts.refused.total() + verdicts.accepted.total() == SEEDS
    assert verdicts.refused.total() >= SHARE_MIN * SEEDS
    assert verdicts.illegal > SEEDS / 2
    assert verdicts.legal > SEEDS / 10


CHECKS = sorted(name for name in vars(names) if name.startswith("check_"))
VALUES = 2000


def test_every_check_of_names_has_a_rule() -> None:
    assert sorted(rule.check for rule in values.RULES) == CHECKS


def _judged(call: Callable[[Rubbish], Any], seeds: range) -> Verdicts:
    verdicts = Verdicts()
    for seed in seeds:
        r = Rubbish(seed)
        verdicts.judge("values", "call", r, functools.partial(call, r))
    return verdicts


def _accept(*given: Any, **_: Any) -> Any:
    return given[-1]


@pytest.mark.parametrize("rule", values.RULES, ids=lambda rule: rule.check)
def test_a_check_that_accepts_or_refuses_everything_is_found(
    rule: values.Rule, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(values, "RULES", (rule,))
    sound = _judged(values.check_names, range(VALUES))
    assert sound.broken == []
    assert min(sound.legal, sound.illegal) > 0
    monkeypatch.setattr(names, rule.check, _accept)
    assert any("is not legal" in one for one in _judged(values.check_names, range(VALUES)).broken)
    monkeypatch.setattr(names, rule.check, _raise(InvalidValue("this is not a value")))
    assert any("it is legal" in one for one in _judged(values.check_names, range(VALUES)).broken)


UNJUDGED = {values.read, values.write}
"""Files: each row is judged by itself, and what writes refuses nothing."""


@pytest.mark.parametrize(
    "check", dict.fromkeys(values.CHECKS), ids=lambda check: getattr(check, "__name__", "")
)
def test_what_a_check_of_values_takes_is_known(check: Callable[[Rubbish], Any]) -> None:
    verdicts = _judged(check, range(300))
    assert verdicts.broken == []
    known = min(verdicts.legal, verdicts.illegal)
    assert (known > 0) == (check not in UNJUDGED)


@pytest.mark.parametrize("limit", ["BODY_BYTES_MAX", "TAG_BYTES_MAX"])
def test_a_limit_that_is_one_byte_off_is_found(limit: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A queue declared by a product whose limit is larger: one byte too many is let in."""
    larger = {"BODY_BYTES_MAX": "body_bytes_max", "TAG_BYTES_MAX": "tag_bytes_max"}[limit]
    assert getattr(names, limit) == getattr(legal, limit.removesuffix("_MAX"))
    made = queue.QueueSettings
    off = made(**{larger: getattr(names, limit) + 1})
    monkeypatch.setattr(queue, "QueueSettings", lambda **given: made(**given) if given else off)
    monkeypatch.setattr("proof.fuzz.api.ORDERS", queue.Queue("orders", bytes, bytes))
    place = Repository(0).place
    call = {"BODY_BYTES_MAX": api.enqueue, "TAG_BYTES_MAX": api.tagged}[limit]
    broken = _judged(lambda r: call(place, r), range(VALUES)).broken
    assert any("accepted what is not legal" in one for one in broken)


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
    assert verdicts.refused.total() + verdicts.accepted.total() == verdicts.inputs.total()


@pytest.mark.parametrize("sabotage", ["api", "command", "sql"])
def test_a_refusal_that_changes_postgresql_is_found(
    fuzzed: str, sabotage: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each seed below is refused; the change is made where nobody undoes it."""
    verdicts = Verdicts()
    with opened(fuzzed) as database, plain(fuzzed) as other:

        def change(*_: Any) -> None:
            query = f"update {REPOSITORY}.queue set abort_limit = abort_limit"
            other.execute(query.encode())

        def changing(place: Any, r: Rubbish) -> None:
            del place, r
            change()
            raise InvalidValue("this is not a value")

        def changing_sql(_: str) -> str:
            change()
            return "OQ001"

        monkeypatch.setattr("proof.fuzz.api.CALLS", (changing,))
        if sabotage == "api":
            database.call_api(verdicts, 1)
        elif sabotage == "command":
            monkeypatch.setattr("proof.fuzz.database.make_app", lambda: _failing(change))
            database.call_cli(verdicts, 1)
        else:
            monkeypatch.setattr(database, "_refusal", changing_sql)
            database.call_sql(verdicts, 1)
    assert any("chang" in one for one in verdicts.broken)


def _failing(change: Callable[[], None]) -> typer.Typer:
    app = typer.Typer()

    @app.command(context_settings={"ignore_unknown_options": True, "allow_extra_args": True})
    def fail() -> None:
        change()
        raise typer.Exit(1)

    return app


def _raise(error: Exception) -> Callable[..., None]:
    def call(*_: Any) -> None:
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
    verdicts.judge("here", "call", Rubbish(7), _raise(error), state=lambda: next(states))
    (found,) = verdicts.broken
    assert wrong in found
    assert "seed 7" in found


def test_a_refusal_in_words_is_fine() -> None:
    verdicts = Verdicts()
    verdicts.judge("here", "call", Rubbish(7), _raise(InvalidName("a name is a str, not int")))
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
