"""Pages and figures: what was read is never markup, nothing is fetched, extremes are drawn."""

from __future__ import annotations

import datetime as dt
import sys
from html.parser import HTMLParser
from typing import Any

import pytest

from onceq import errors
from onceq.spark.pages import html as pages
from onceq.spark.pages.figures import Axis, Buckets, Curve, Paint, Scale
from onceq.spark.pages.html import (
    Column,
    Html,
    notice,
    page,
    paragraph,
    section,
    shown,
    table,
    tiles,
)

NASTY = "</table><script>alert('1 & 2')</script>\"\x00\x1b[31m\N{RIGHT-TO-LEFT OVERRIDE}\ud800"
DAY = Buckets(first=dt.datetime(2026, 11, 1, tzinfo=dt.UTC), width=dt.timedelta(hours=1), count=24)


class Reader(HTMLParser):
    """Reads a page as a browser would. open: the tags that are not closed yet."""

    EMPTY = frozenset({"meta"})

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.values: list[str] = []
        self.ids: list[str] = []
        self.texts: list[str] = []
        self.open: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.values += [value or "" for name, value in attrs if not name.startswith("xmlns")]
        self.ids += [value or "" for name, value in attrs if name == "id"]
        if tag not in self.EMPTY:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        self.handle_endtag(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.texts.append(data)


def drawn(scale: Scale = Scale.COUNT, caption: str = NASTY) -> Html:
    line = Curve(label=NASTY, values=[1.0] * 12 + [None] * 12, paint=Paint.BLUE)
    return Axis(buckets=DAY, scale=scale).with_lines([line], caption)


def test_what_was_read_is_never_markup() -> None:
    parts = (
        tiles([(NASTY, NASTY)]),
        paragraph(NASTY),
        notice(NASTY),
        table([Column(NASTY, NASTY, bar=True)], [(NASTY,)], caption=NASTY),
        drawn(),
    )
    text = page(NASTY, NASTY, [section(NASTY, *parts)])
    read = Reader(text)
    assert read.open == []
    assert "script" not in read.tags
    assert sum("alert('1 & 2')" in one for one in read.texts) == 14
    assert not {"\x00", "\x1b", "\N{RIGHT-TO-LEFT OVERRIDE}"} & set(text)
    assert text.encode()
    assert "\\x00\\x1b[31m\\u202e\\ud800" in text


def test_a_page_fetches_nothing() -> None:
    values = Reader(page("a", "b", [section("c", drawn())])).values
    assert [one for one in values if "//" in one or "url(http" in one] == []
    assert "default-src 'none'; style-src 'unsafe-inline'" in values


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (None, "\u2013"),
        (True, "yes"),
        (12_046, "12,046"),
        (1234.56, "1,234.6"),
        (dt.datetime(2026, 11, 1, 12, 30, tzinfo=dt.UTC), "2026-11-01 12:30"),
        ("a&b", "a&amp;b"),
        (Html("<b>"), "<b>"),
        ("x" * 200, "x" * 200),
        ("x" * 201, "x" * 199 + "\u2026"),
    ],
)
def test_values_are_shown_as_people_read_them(value: object, expected: str) -> None:
    assert shown(value, digits=1) == expected


def test_a_long_table_says_what_it_leaves_out() -> None:
    made = table([Column("n", bar=True)], [(n,) for n in range(pages.ROWS_MAX + 5)])
    assert made.count("<tr>") == pages.ROWS_MAX + 1
    assert "<p>5 more are not shown.</p>" in made


def test_bars_are_shares_of_the_largest() -> None:
    made = table([Column("n", bar=True), Column("none", bar=True)], [(4, 0), (1, None), (None, 0)])
    assert made.count("--share:100.0%") == 1
    assert made.count("--share:25.0%") == 1
    assert made.count("--share") == 2


def test_an_empty_table_has_its_head() -> None:
    assert Reader(table([Column("queue"), Column("ended")], [])).tags.count("th") == 2


def test_figures_on_one_page_keep_their_names_apart() -> None:
    read = Reader(drawn() + drawn(caption="another") + drawn(scale=Scale.DURATION_MS))
    assert len(read.ids) == len(set(read.ids))
    assert read.open == []


def test_figures_are_painted_in_the_colours_of_the_page() -> None:
    made = drawn()
    assert "var(--blue)" in made
    assert "var(--soft)" in made
    assert "#0102" not in made


@pytest.mark.parametrize("scale", list(Scale))
@pytest.mark.parametrize("draw", [Axis.with_lines, Axis.with_areas])
@pytest.mark.parametrize(
    "values",
    [[None] * 24, [0.0] * 24, [1e15] * 24, [0.0, 0.4, *[None] * 22], [None, 3.0, *[None] * 22]],
)
def test_extremes_are_drawn(draw: Any, scale: Scale, values: list[float | None]) -> None:
    lines = [Curve(label=name, values=values, paint=Paint.RED) for name in ("a", "b")]
    assert Reader(draw(Axis(buckets=DAY, scale=scale), lines, "c")).open == []


@pytest.mark.parametrize(("count", "width_s"), [(1, 60), (400, 364 * 86_400), (400, 300)])
def test_any_axis_of_time_is_drawn(count: int, width_s: int) -> None:
    width = dt.timedelta(seconds=width_s)
    axis = Buckets(first=dt.datetime(2020, 2, 29, tzinfo=dt.UTC), width=width, count=count)
    line = Curve(label="a", values=[1.0] * count, paint=Paint.GREY, is_faint=True)
    assert "<svg" in Axis(buckets=axis, scale=Scale.COUNT).with_lines([line], "c")


def test_without_matplotlib_a_figure_says_what_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(errors.MissingExtra, match=r"onceq\[spark\]"):
        drawn()
