"""When a schedule ticks: against an oracle that looks at each minute, where clocks change."""

from __future__ import annotations

import contextlib
import itertools
import time
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Any, Final
from zoneinfo import ZoneInfo

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from onceq.errors import InvalidValue, TooLarge
from onceq.model.schedule import ALL_MAX, AT_ONCE_MAX, Schedule

MINUTE: Final = timedelta(minutes=1)
ZONES: Final = {
    "Europe/Berlin": (datetime(2026, 3, 28, tzinfo=UTC), datetime(2026, 10, 24, tzinfo=UTC)),
    "America/New_York": (datetime(2026, 3, 7, tzinfo=UTC), datetime(2026, 10, 31, tzinfo=UTC)),
    # half an hour
    "Australia/Lord_Howe": (datetime(2026, 4, 4, tzinfo=UTC), datetime(2026, 10, 3, tzinfo=UTC)),
    # at midnight: the day begins at one, or is there twice at its end
    "Africa/Cairo": (datetime(2026, 4, 23, tzinfo=UTC), datetime(2026, 10, 29, tzinfo=UTC)),
    # no change, and a quarter of an hour
    "Asia/Kathmandu": (datetime(2026, 3, 28, tzinfo=UTC), datetime(2026, 10, 24, tzinfo=UTC)),
    "UTC": (datetime(2026, 3, 28, tzinfo=UTC), datetime(2026, 10, 24, tzinfo=UTC)),
}
"""Zones, and days around which their clocks change."""


def at(text: str) -> datetime:
    return datetime.fromisoformat(text)


def schedule(text: str, zone: str = "Europe/Berlin", missed: str = "last") -> Schedule:
    return Schedule(text=text, zone=zone, missed=missed)


def times(one: Schedule, since: str, n: int) -> list[str]:
    moment = at(since)
    found: list[str] = []
    for _ in range(n):
        moment = one.after(moment)
        found.append(moment.astimezone(ZoneInfo(one.zone)).isoformat())
    return found


# --- the oracle -----------------------------------------------------------------------------------


@lru_cache(maxsize=64)
def minutes(zone: str, begin: datetime) -> tuple[tuple[datetime, datetime], ...]:
    """Each minute of four days, with its local time."""
    all_of = [begin + n * MINUTE for n in range(4 * 1440)]
    return tuple((one, one.astimezone(ZoneInfo(zone)).replace(tzinfo=None)) for one in all_of)


def ticks(zone: str, begin: datetime, fields: Any, *, fixed: bool) -> list[datetime]:
    """By elapsed time: the minutes that match. Fixed: local times, each at its first instant."""
    minute, hour, days = fields

    def matches(local: datetime) -> bool:
        return local.minute in minute and local.hour in hour and local.isoweekday() % 7 in days

    known = minutes(zone, begin)
    if not fixed:
        return [one for one, local in known if matches(local)]
    first: dict[datetime, datetime] = {}
    for one, local in known:
        first.setdefault(local, one)
    found, local = set(), known[0][1]
    while local <= known[-1][1]:
        if matches(local):
            later = local
            while later not in first:
                later += MINUTE
            found.add(first[later])
        local += MINUTE
    return sorted(found)


def of_field(low: int, high: int) -> st.SearchStrategy[tuple[str, frozenset[int]]]:
    number = st.integers(low, high)
    stars = st.sampled_from([1, 2, 5, 7, 15]).map(
        lambda n: (f"*/{n}", frozenset(range(low, high + 1, n)))
    )
    lists = st.frozensets(number, min_size=1, max_size=4).map(
        lambda some: (",".join(map(str, sorted(some))), some)
    )
    ranges = st.tuples(number, number).map(
        lambda ends: (f"{min(ends)}-{max(ends)}", frozenset(range(min(ends), max(ends) + 1)))
    )
    return st.one_of(st.just(("*", frozenset(range(low, high + 1)))), stars, lists, ranges)


@settings(max_examples=150, deadline=None)
@given(
    zone=st.sampled_from(sorted(ZONES)),
    which=st.integers(0, 1),
    minute=of_field(0, 59),
    hour=of_field(0, 23),
    days=of_field(0, 6),
    offset_s=st.integers(0, 2 * 86_400),
)
@example("Australia/Lord_Howe", 0, ("*/30", frozenset({0, 30})), ("5", frozenset({5})),
         ("*", frozenset(range(7))), 0)  # fmt: skip
@example("Europe/Berlin", 1, ("*/15", frozenset({0, 15, 30, 45})), ("2", frozenset({2})),
         ("0", frozenset({0})), 86_400 + 2700)  # fmt: skip
def test_the_next_tick_is_the_first_of_those_that_the_minutes_show(
    zone: str, which: int, minute: Any, hour: Any, days: Any, offset_s: int
) -> None:
    one = schedule(f"{minute[0]} {hour[0]} * * {days[0]}", zone)
    begin = ZONES[zone][which]
    moment = begin + timedelta(days=1, seconds=offset_s)
    wanted = ticks(zone, begin, (minute[1], hour[1], days[1]), fixed="*" not in minute[0] + hour[0])
    later = [tick for tick in wanted if tick > moment][:20]
    found: list[datetime] = []
    while len(found) < len(later):
        moment = one.after(moment)
        found.append(moment)
    assert found == later


# --- the rule, in examples ------------------------------------------------------------------------


def test_a_tick_in_the_skipped_hour_comes_right_after_it() -> None:
    assert times(schedule("30 2 * * *"), "2026-03-28T12:00Z", 3) == [
        "2026-03-29T03:00:00+02:00",
        "2026-03-30T02:30:00+02:00",
        "2026-03-31T02:30:00+02:00",
    ]
    both = times(schedule("0,30 2,3 * * *"), "2026-03-29T00:00Z", 3)
    assert both == [  # two in the gap, and one at its end: one tick
        "2026-03-29T03:00:00+02:00",
        "2026-03-29T03:30:00+02:00",
        "2026-03-30T02:00:00+02:00",
    ]


def test_a_tick_in_the_repeated_hour_comes_once() -> None:
    assert times(schedule("30 2 * * *"), "2026-10-24T12:00Z", 2) == [
        "2026-10-25T02:30:00+02:00",
        "2026-10-26T02:30:00+01:00",
    ]
    between = times(schedule("50 2 * * *"), "2026-10-25T01:10Z", 1)  # it is 02:10 again
    assert between == ["2026-10-26T02:50:00+01:00"]


def test_what_says_how_often_goes_by_elapsed_time() -> None:
    assert times(schedule("0 * * * *"), "2026-10-24T23:30Z", 4) == [
        "2026-10-25T02:00:00+02:00",
        "2026-10-25T02:00:00+01:00",
        "2026-10-25T03:00:00+01:00",
        "2026-10-25T04:00:00+01:00",
    ]
    assert times(schedule("*/30 2 * * *"), "2026-03-28T12:00Z", 1) == ["2026-03-30T02:00:00+02:00"]


def test_the_ends_of_months_and_days_of_weeks_are_known() -> None:
    assert times(schedule("0 0 L * *", "UTC"), "2026-02-01T00:00Z", 2) == [
        "2026-02-28T00:00:00+00:00",
        "2026-03-31T00:00:00+00:00",
    ]
    assert times(schedule("0 9 * * MON#1", "UTC"), "2026-12-01T00:00Z", 1) == [
        "2026-12-07T09:00:00+00:00"
    ]
    either = times(schedule("0 0 13 * 5", "UTC"), "2026-11-01T00:00Z", 3)
    assert [one[:10] for one in either] == ["2026-11-06", "2026-11-13", "2026-11-20"]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("0 2 * *", "4 fields"),
        ("0 0 2 * * *", "6 fields"),
        ("@daily", "1 fields"),
        ("60 2 * * *", "Bad minute"),
        ("0 2 30 2 *", "Bad day-of-month"),
        ("* * */20 * 1L", "no time in the next 50 years"),
        ("0 2 * * " + "1," * 200, "at most 200 bytes"),
        (None, "is a str"),
        (5, "is a str"),
    ],
)
def test_a_schedule_that_is_none_is_refused(text: Any, says: str) -> None:
    with pytest.raises((InvalidValue, TooLarge), match=says):
        schedule(text)


@pytest.mark.parametrize(
    "zone", ["Europe/Bärlin", "Mars/Olympus", "localtime", "../etc/passwd", "Europe", "", None, 3]
)
def test_a_zone_that_is_none_is_refused(zone: Any) -> None:
    with pytest.raises(InvalidValue, match="IANA time zone database"):
        schedule("0 2 * * *", zone)


def test_what_becomes_of_missed_ticks_is_one_of_three() -> None:
    with pytest.raises(InvalidValue, match="missed is one of"):
        schedule("0 2 * * *", missed="some")


@given(st.text(max_size=40) | st.text(alphabet="0123456789*/-,L#W MONJAN", max_size=30))
def test_any_text_is_a_schedule_or_refused(text: str) -> None:
    try:
        one = schedule(text)
    except InvalidValue:
        return
    now = at("2026-11-28T00:00Z")
    with contextlib.suppress(InvalidValue):
        assert one.after(now) > now


def test_what_no_clock_ever_shows_never_ticks() -> None:
    with pytest.raises(InvalidValue, match="50 years"):
        schedule("* 2 * 3 0L").after(at("2026-01-01T00:00Z"))


# --- missed ticks ---------------------------------------------------------------------------------

DUE: Final = at("2026-11-20T01:00Z")


def plan(missed: str, text: str, now: str) -> list[tuple[str | None, str]]:
    """What is sent, and what is next."""
    one = schedule(text, "UTC", missed)
    found = list(one.plan(DUE, at(now)))
    for before, after in itertools.pairwise(found):
        assert before.to == after.due
    assert not found or found[0].due == DUE
    return [(None if x.at is None else f"{x.at:%dT%H:%M}", f"{x.to:%dT%H:%M}") for x in found]


@pytest.mark.parametrize("missed", ["last", "all", "none"])
def test_what_is_not_due_is_not_sent_and_what_is_on_time_is(missed: str) -> None:
    assert plan(missed, "0 1 * * *", "2026-11-20T00:59:59.9Z") == []
    assert plan(missed, "0 1 * * *", "2026-11-20T01:00:00Z") == [("20T01:00", "21T01:00")]
    assert plan(missed, "0 1 * * *", "2026-11-20T01:01:00Z") == [("20T01:00", "21T01:00")]


def test_missed_last_sends_one_for_all() -> None:
    assert plan("last", "0 1 * * *", "2026-11-23T12:00Z") == [("23T01:00", "24T01:00")]


def test_missed_none_sends_only_what_is_less_than_a_minute_old() -> None:
    assert plan("none", "0 1 * * *", "2026-11-23T12:00Z") == [(None, "24T01:00")]
    assert plan("none", "0 1 * * *", "2026-11-23T01:00:30Z") == [("23T01:00", "24T01:00")]


def test_missed_all_sends_each() -> None:
    assert plan("all", "0 1 * * *", "2026-11-22T12:00Z") == [
        ("20T01:00", "21T01:00"),
        ("21T01:00", "22T01:00"),
        ("22T01:00", "23T01:00"),
    ]


def test_missed_all_is_bounded_and_goes_on_at_the_next_look() -> None:
    now = DUE + 5000 * MINUTE
    one = schedule("* * * * *", "UTC", "all")
    found = list(one.plan(DUE, now))
    assert len(found) == AT_ONCE_MAX
    assert found[0].at == now - (ALL_MAX - 1) * MINUTE
    more = list(one.plan(found[-1].to, now))
    assert more[0].at == found[-1].to


@settings(max_examples=60, deadline=None)
@given(
    st.sampled_from(["0 1 * * *", "*/7 3 * * *", "0 0 29 2 *", "5,17 1-9 * * 1-5", "* * * * *"]),
    st.integers(0, 400_000),
    st.sampled_from(["last", "all"]),
)
def test_the_last_ticks_are_those_that_counting_finds(text: str, late_s: int, missed: str) -> None:
    one = schedule(text, "Europe/Berlin", missed)
    now = DUE + timedelta(seconds=late_s)
    every, moment = [], DUE
    while moment <= now:
        every.append(moment)
        moment = one.after(moment)
    found = [tick.at for tick in one.plan(DUE, now)]
    wanted = every[-1:] if missed == "last" else every[-ALL_MAX:][:AT_ONCE_MAX]
    assert found == wanted


def test_ten_years_of_missed_minutes_are_passed_over_at_once() -> None:
    began = time.monotonic()
    for missed in ("last", "none", "all"):
        one = schedule("* * * * *", "Europe/Berlin", missed)
        assert next(one.plan(DUE, DUE + timedelta(days=3653))).due == DUE
    assert time.monotonic() - began < 60
