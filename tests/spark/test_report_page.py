"""The page of a report from rows made here, the axis of time, and how a result is replaced."""

from __future__ import annotations

import datetime as dt
from typing import TYPE_CHECKING, Any

import pytest

from onceq import errors
from onceq.spark.pipelines.facts import BY, Span
from onceq.spark.pipelines.findings import BUCKETS_MAX, WIDTHS, Findings, choose_buckets
from onceq.spark.pipelines.replacing import replacing
from onceq.spark.pipelines.report_page import Subject, duration, report_page
from onceq.spark.pipelines.report_tables import MEASURES

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
    subject = Subject(repository=NASTY, span=Span(since=NOON, until=NOON))
    text = report_page(subject, found)
    assert "<script>" not in text
    assert "\x1b" not in text
    assert text.count("&lt;/td&gt;&lt;script&gt;x&lt;/script&gt;\\x1b") == 14
    assert "7 others" in text
    assert text.count("<svg") == 8
    assert "What ended from 2026-11-01 12:00 on and before 2026-11-01 12:00." in text


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
        (dt.timedelta(0), dt.timedelta(minutes=1), 1),
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
