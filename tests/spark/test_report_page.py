"""The page of a report from rows made here, the axis of time, and how a result is replaced."""

from __future__ import annotations

import datetime as dt
from typing import TYPE_CHECKING, Any

import pytest

from onceq import errors
from onceq.spark.audit.audited import GIVEN
from onceq.spark.pipelines import Audited, Incident, audit_page
from onceq.spark.report.facts import BY, Span
from onceq.spark.report.findings import BUCKETS_MAX, WIDTHS, Findings, choose_buckets
from onceq.spark.report.incidents import INCIDENTS_MAX, checked
from onceq.spark.report.replacing import replacing
from onceq.spark.report.report_page import Subject, duration, report_page
from onceq.spark.report.report_tables import MEASURES

if TYPE_CHECKING:
    from pathlib import Path

NASTY = "</td><script>x</script>\x1b"
NOON = dt.datetime(2026, 11, 1, 12, tzinfo=dt.UTC)


def row(**changed: Any) -> dict[str, Any]:
    numbers = {name: 2.5 if name.endswith("_ms") else 4 for name in MEASURES}
    return {
        **numbers,
        "aborts": 1,
        "name": NASTY,
        "host": NASTY,
        "others": 0,
        "starts_at": NOON,
        **changed,
    }


def test_a_time_that_nothing_was_measured_of_has_no_figure() -> None:
    ends = (NOON, NOON)
    none = row(waiting_measured=0, service_measured=0)
    found = Findings(
        made_at=NOON,
        ends=ends,
        buckets=choose_buckets(ends),
        overall=none,
        series={0: none},
        aborted={},
        busiest={by: [none] for by in BY},
        failures=[],
        aborts=[],
        days=[none],
    )
    text = report_page(Subject(repository="shop", span=Span(since=None, until=None)), found)
    assert "Total time: from" in text
    assert "Waiting time: from" not in text
    assert "Service time: from" not in text


def test_no_name_is_markup() -> None:
    code = {"code": NASTY, "error": NASTY, "count": 1, "others": 0}
    found = Findings(
        made_at=NOON,
        ends=(NOON, NOON),
        buckets=choose_buckets((NOON, NOON)),
        overall=row(),
        series={0: row()},
        aborted={(0, "charge"): 3, (0, "other"): 1},
        busiest={by: [row(), row(name=None), row(others=7)] for by in BY},
        failures=[{**code, "outcome": NASTY}],
        aborts=[{**code, "charge": NASTY}],
        days=[row()],
    )
    span = Span(since=NOON, until=NOON + dt.timedelta(minutes=1))
    subject = Subject(repository=NASTY, span=span)
    text = report_page(subject, found)
    assert "<script>" not in text
    assert "\x1b" not in text
    assert text.count("&lt;/td&gt;&lt;script&gt;x&lt;/script&gt;\\x1b") == 14
    assert "7 others" in text
    assert text.count("<svg") == 8
    assert "What ended from 2026-11-01 12:00 on and before 2026-11-01 12:01." in text


@pytest.mark.parametrize(
    ("milliseconds", "said"),
    [
        (None, None),
        (0.0, "0 ms"),
        (0.25, "0.2 ms"),
        (9.96, "10.0 ms"),
        (999.0, "999 ms"),
        (1_000.0, "1.0 s"),
        (90_000.0, "1.5 min"),
        (7_200_000.0, "2.0 h"),
        (86_400_000.0 * 30, "30 d"),
    ],
)
def test_durations_are_said_as_people_do(milliseconds: float | None, said: str | None) -> None:
    assert duration(milliseconds) == said


@pytest.mark.parametrize(
    ("after", "width", "count"),
    [
        (dt.timedelta(0), dt.timedelta(seconds=1), 1),
        (dt.timedelta(seconds=90), dt.timedelta(seconds=1), 91),
        (dt.timedelta(minutes=10), dt.timedelta(seconds=5), 121),
        (dt.timedelta(minutes=399), dt.timedelta(minutes=1), 400),
        (dt.timedelta(minutes=400), dt.timedelta(minutes=5), 81),
        (dt.timedelta(days=14), dt.timedelta(hours=1), 337),
        (dt.timedelta(days=365), dt.timedelta(days=1), 366),
        (dt.timedelta(days=364 * 500), dt.timedelta(days=728), 251),
        (dt.timedelta(days=364 * 5000), dt.timedelta(days=364 * 13), 386),
    ],
)
def test_the_axis_of_time_is_as_fine_as_it_may_be(
    after: dt.timedelta, width: dt.timedelta, count: int
) -> None:
    found = choose_buckets((NOON, NOON + after))
    assert (found.width, found.count) == (width, count)
    assert found.first <= NOON
    assert NOON + after < found.edges[-1]


def test_no_axis_is_longer_than_it_may_be() -> None:
    for width in WIDTHS:
        for factor in (399, 400, 401, 799, 7999):
            try:
                last = NOON + factor * width
            except OverflowError:
                continue
            found = choose_buckets((NOON, last))
            assert 1 < found.count <= BUCKETS_MAX


KILLS = (
    Incident(what=f"kill -9 {NASTY}", at=NOON, over_at=NOON + dt.timedelta(seconds=2)),
    Incident(what="kill -9: client", at=NOON + dt.timedelta(seconds=20)),
)


def test_a_report_shows_what_befell_and_what_it_meant() -> None:
    ends = (NOON, NOON + dt.timedelta(seconds=50))
    found = Findings(
        made_at=NOON,
        ends=ends,
        buckets=choose_buckets(ends),
        overall=row(),
        series={number: row() for number in range(51)},
        busiest={by: [row()] for by in BY},
        incidents=KILLS,
        in_flight={1: row(ended=7, total_max_ms=4_200.0), 0: row(ended=90)},
    )
    text = report_page(Subject(repository="shop", span=Span()), found)
    assert "<h2>Outages</h2>" in text
    assert text.count("kill -9 &lt;/td&gt;") == 1
    assert ">2.0 s<" in text
    assert ">4.2 s<" in text
    assert "under way during none of these" in text
    assert text.count('<li class="mark">') == text.count("<svg") >= 6
    assert "How many ended in a second, by outcome" in text


def audited(**changed: Any) -> Audited:
    second = round(NOON.timestamp())
    made: dict[str, Any] = {
        "violations": 2,
        "by_guarantee": {"G2": 2},
        "found": [],
        "places": 90,
        "archived": 90,
        "events": 0,
        "effects": 0,
        "acknowledged": 0,
        "counts": [("request", "finished", "done", 90)],
        "days": [("2026-11-01", "done", 90)],
        "moments": [(second + number, "done", 9) for number in range(10)],
        "moment_s": 1,
        "given": ["aborts", "tags"],
        "volatile": [],
        "took_s": 1.0,
    }
    return Audited(**made | changed)


def test_an_audit_says_what_was_not_asked_and_what_that_would_take() -> None:
    text = audit_page(audited(), "shop", NOON)
    for words in (GIVEN["events"], GIVEN["effects"], GIVEN["executions"], GIVEN["an end"]):
        assert f"not asked: it takes {words}" in text
    assert f"not asked: it takes {GIVEN['aborts']}" not in text
    assert text.count("<dd>not asked</dd>") == 2
    every = audit_page(audited(given=list(GIVEN), events=5, effects=6), "shop", NOON)
    assert "not asked" not in every


def test_an_audit_shows_what_befell_on_an_axis_of_seconds() -> None:
    text = audit_page(audited(), "shop", NOON, incidents=KILLS)
    assert "<h2>What befell meanwhile</h2>" in text
    assert "Ended in a second" in text
    assert '<li class="mark">' in text
    by_day = audit_page(audited(moments=[], moment_s=0), "shop", NOON)
    assert "Ended in a day" in by_day
    assert '<li class="mark">' not in by_day


@pytest.mark.parametrize(
    ("incidents", "said"),
    [
        ([Incident(what="x", at=dt.datetime(2026, 1, 1))], "time zone"),  # noqa: DTZ001 - the case
        ([Incident(what="x", at=NOON, over_at=NOON - dt.timedelta(1))], "before it began"),
        ([Incident(what="x", at=NOON)] * (INCIDENTS_MAX + 1), "at most"),
    ],
)
def test_an_incident_that_cannot_be_is_refused(incidents: list[Incident], said: str) -> None:
    with pytest.raises(errors.InvalidValue, match=said):
        checked(incidents)


def test_a_result_takes_the_place_of_the_former_one(tmp_path: Path) -> None:
    for text in ("one", "two"):
        with replacing(tmp_path) as folder:
            (folder / "a").write_text(text)
            if text == "two":
                assert (tmp_path / "latest" / "a").read_text() == "one"
        assert (tmp_path / "latest" / "a").read_text() == text
        assert len(list(tmp_path.glob("run-*"))) == 1


def test_what_failed_or_died_changes_nothing_and_is_swept(tmp_path: Path) -> None:
    others = tmp_path / "run-of-mine"
    others.mkdir()
    with replacing(tmp_path) as folder:
        (folder / "a").write_text("one")
    with pytest.raises(ValueError, match="no"), replacing(tmp_path):
        raise ValueError("no")
    dead = tmp_path / ("run-" + "0" * 32)
    dead.mkdir()
    with replacing(tmp_path) as folder:
        assert not dead.exists()
        (folder / "a").write_text("two")
    assert [one.name for one in (tmp_path / "latest").iterdir()] == ["a"]
    assert sorted(one.name for one in tmp_path.iterdir()) == sorted(
        [".lock", "latest", "run-of-mine", folder.name]
    )


def test_two_at_once_are_refused(tmp_path: Path) -> None:
    refused = pytest.raises(errors.IllegalState, match="another run")
    with replacing(tmp_path), refused, replacing(tmp_path):
        pass


def test_what_is_not_ours_is_not_replaced(tmp_path: Path) -> None:
    (tmp_path / "latest").mkdir()
    with pytest.raises(errors.InvalidValue, match="was not made by a run"), replacing(tmp_path):
        pass
