"""What Spark does with requests that have ended, from the command line, without Spark."""

from __future__ import annotations

import sys
import types
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest

from onceq.cli import pipelines
from onceq.errors import EnvironmentFault

if TYPE_CHECKING:
    from tests.cli.parts import Cli


@dataclass
class Reported:
    page: str
    tables: dict[str, str]
    ended: int
    aborts: int


@dataclass
class Span:
    since: Any
    until: Any


@dataclass
class Added:
    rows: dict[str, int]
    until: int


class Session:
    stopped = 0

    def stop(self) -> None:
        Session.stopped += 1


@pytest.fixture
def called(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """The pipelines without Spark: what they were called with."""
    calls: list[dict[str, Any]] = []

    def report(out: str, url: str | None, **how: Any) -> Reported:
        calls.append({"out": out, "url": url, **how})
        return Reported(f"{out}/latest/report.html", {"ends": f"{out}/latest/ends"}, 1204, 3)

    def add_to_delta(tables: str, url: str | None, **how: Any) -> Added:
        calls.append({"tables": tables, "url": url, **how})
        return Added({"history": 1204, "attempt": 0}, 1210)

    fake: Any = types.ModuleType("onceq.spark.pipelines")
    fake.report, fake.Span = report, Span
    fake.delta = delta = types.ModuleType("onceq.spark.archive.delta")
    vars(delta).update(add_to_delta=add_to_delta, require_delta=lambda: None)
    monkeypatch.setitem(sys.modules, "onceq.spark.pipelines", fake)
    monkeypatch.setitem(sys.modules, "onceq.spark.archive.delta", delta)
    monkeypatch.setattr("onceq.spark.build_session", lambda **_: Session())
    monkeypatch.setattr(Session, "stopped", 0)
    return calls


def test_a_report_tells_the_file_to_open(cli: Cli, called: list[dict[str, Any]]) -> None:
    span = ("--since", "2026-11-01T00:00:00+01:00", "--until", "2026-11-02T00:00:00+00:00")
    answer = cli("spark", "report", "/srv/report", *span)
    assert answer.out.splitlines()[0].split() == ["open", "/srv/report/latest/report.html"]
    assert "1,204" in answer.out
    (call,) = called
    assert (call["out"], call["url"], call["repository"]) == (
        "/srv/report",
        cli.url,
        cli.repository,
    )
    assert call["span"].since.isoformat() == "2026-10-31T23:00:00+00:00"
    assert call["span"].until.isoformat() == "2026-11-02T00:00:00+00:00"
    assert Session.stopped == 1


def test_a_report_in_json(cli: Cli, called: list[dict[str, Any]]) -> None:
    assert cli("spark", "report", "/srv/report", "--json").item == {
        "v": 1,
        "page": "/srv/report/latest/report.html",
        "tables": {"ends": "/srv/report/latest/ends"},
        "ended": 1204,
        "aborts": 3,
    }
    assert called[0]["span"] == Span(None, None)


def test_what_is_added_to_delta_is_told(cli: Cli, called: list[dict[str, Any]]) -> None:
    said = cli("spark", "delta", "/srv/delta").out
    assert "1,204 of history" in said
    assert cli("spark", "delta", "/srv/delta", "--json").item == {
        "v": 1,
        "rows": {"history": 1204, "attempt": 0},
        "until": 1210,
    }
    call = {"tables": "/srv/delta", "url": cli.url, "repository": cli.repository}
    assert called == [call, call]


def test_a_time_that_is_none_is_named(cli: Cli, called: list[dict[str, Any]]) -> None:
    answer = cli("spark", "report", "/srv/report", "--until", "tomorrow", code=2)
    assert "--until is a time like" in answer.err
    assert called == []


def test_without_spark_it_says_what_is_missing(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)
    for words in (("archive", "/srv/archive"), ("report", "/srv/report")):
        assert "onceq[spark]" in cli("spark", *words, code=2).err


def test_what_fails_again_and_again_is_told_and_tried_again(
    capsys: pytest.CaptureFixture[str],
) -> None:
    runs: list[int] = []

    def once() -> None:
        runs.append(len(runs))
        if len(runs) < 3:
            raise EnvironmentFault("Spark failed")
        raise ValueError("a defect")

    with pytest.raises(ValueError, match="a defect"):
        pipelines._again_and_again(once, lambda: True, 0.01)
    assert runs == [0, 1, 2]
    assert capsys.readouterr().err.count("Spark failed; the next run is in 0.01 s") == 2


def test_where_java_has_died_it_ends_with_what_failed() -> None:
    def once() -> None:
        raise EnvironmentFault("Spark failed")

    with pytest.raises(EnvironmentFault, match="Spark failed"):
        pipelines._again_and_again(once, lambda: False, 60)
