"""Figures for a page: what was counted or measured over time, as a picture inside the HTML.

Used to make pages with `onceq.spark.pages.html`. Drawn by matplotlib, which is loaded when the
first figure is drawn. The colours are those of the page, so a figure is light or dark with it.
Source: spec P7.
"""

from __future__ import annotations

import datetime as dt
import enum
import importlib
import io
import math
import re
import warnings
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from onceq.errors import MissingExtra
from onceq.spark.pages.html import Html, filled, shown


class Paint(enum.Enum):
    """A colour of the page, and the one that represents it while matplotlib draws."""

    SOFT = "#010202"
    GRID = "#010203"
    BLUE = "#010204"
    GREEN = "#010205"
    ORANGE = "#010206"
    RED = "#010207"
    VIOLET = "#010208"
    GREY = "#010209"

    @property
    def on_page(self) -> str:
        """Its name on the page."""
        return f"var(--{self.name.lower()})"


class Scale(enum.Enum):
    """The kind of numbers: counts, from 0; or milliseconds, each decade equally high."""

    COUNT = enum.auto()
    DURATION_MS = enum.auto()


_ONE: Final = {"days": "a day", "hours": "an hour", "minutes": "a minute", "seconds": "a second"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Buckets:
    """Consecutive spans of time of one width. first: when the first begins."""

    first: dt.datetime
    width: dt.timedelta
    count: int

    @property
    def edges(self) -> list[dt.datetime]:
        """Where they begin, and where the last one ends."""
        return [self.first + number * self.width for number in range(self.count + 1)]

    @property
    def unit(self) -> str:
        """How wide each is, in words."""
        sizes = (("days", 86_400), ("hours", 3_600), ("minutes", 60), ("seconds", 1))
        seconds = round(self.width.total_seconds())
        name, size = next(one for one in sizes if not seconds % one[1])
        count = seconds // size
        return _ONE[name] if count == 1 else f"{count} {name}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Curve:
    """A number for each bucket; None: nothing was measured in it. is_faint: thin and dotted."""

    label: str
    values: Sequence[float | None]
    paint: Paint
    is_faint: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Mark:
    """A point on the axis and, if it lasted, until when. label: one or two characters."""

    label: str
    at: dt.datetime
    until: dt.datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Axis:
    """What a figure is drawn on: time, from left to right, and numbers of a kind."""

    buckets: Buckets
    scale: Scale
    marks: Sequence[Mark] = ()

    def with_lines(self, lines: Sequence[Curve], caption: str) -> Html:
        """Returns a figure with a curve for each line; a bucket without a measurement is a gap."""

        def draw(axes: Any, edges: Any) -> _Range:
            for one in lines:
                values = [math.nan if value is None else value for value in one.values]
                axes.stairs(
                    values,
                    edges,
                    baseline=None,
                    color=one.paint.value,
                    linestyle=_STROKE[one.is_faint],
                    linewidth=1.2 if one.is_faint else 1.7,
                )
            measured = [value for one in lines for value in one.values if value]
            return min(measured, default=0), max(measured, default=0)

        return _figure(self, caption, keys=_keys(lines, "line"), draw=draw)

    def with_areas(self, lines: Sequence[Curve], caption: str) -> Html:
        """Returns a figure of areas, each on top of the one before: together they are the total."""

        def draw(axes: Any, edges: Any) -> _Range:
            height = [0.0] * self.buckets.count
            for one in lines:
                above = [low + (value or 0) for low, value in zip(height, one.values, strict=True)]
                axes.stairs(above, edges, baseline=height, fill=True, color=one.paint.value, lw=0)
                height = above
            return 0, max(height, default=0)

        return _figure(self, caption, keys=_keys(lines, "area"), draw=draw)


_Range: TypeAlias = tuple[float, float]
"""The smallest and the largest value measured."""
_FROM_DECADE_MS: Final = 10.0
_SIZE_INCHES: Final = (10.0, 2.9)
_STROKE: Final = {False: "solid", True: "dotted"}
_DAYS: Final = ["UTC", "%Y, UTC", "%b %Y, UTC", "%d %b %Y, UTC", "%d %b %Y, UTC", "%d %b %Y, UTC"]
"""What the labels of an axis of years, months, ... seconds leave out; it goes below the axis."""
_SETTINGS: Final[dict[str, Any]] = {
    "svg.fonttype": "none",  # texts stay texts, in the page's font
    "svg.hashsalt": "onceq",
    "text.parse_math": False,
    "font.size": 10,
    "timezone": "UTC",
    "axes.edgecolor": Paint.GRID.value,
    "axes.labelcolor": Paint.SOFT.value,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": Paint.GRID.value,
    "grid.linewidth": 0.6,
    "xtick.color": Paint.GRID.value,
    "ytick.color": Paint.GRID.value,
    "xtick.labelcolor": Paint.SOFT.value,
    "ytick.labelcolor": Paint.SOFT.value,
}
_DURATIONS: Final = {
    0: "0",
    1: "1 ms",
    10: "10 ms",
    30: "30 ms",
    100: "100 ms",
    300: "300 ms",
    1_000: "1 s",
    3_000: "3 s",
    10_000: "10 s",
    30_000: "30 s",
    60_000: "1 min",
    600_000: "10 min",
    3_600_000: "1 h",
    36_000_000: "10 h",
    86_400_000 * 4: "4 d",
    86_400_000 * 40: "40 d",
    86_400_000 * 365: "1 y",
    86_400_000 * 3650: "10 y",
}
_NAMED: Final = re.compile(r'( id="|href="#|url\(#)')
_SIZE: Final = re.compile(r' (?:width|height)="[^"]*pt"')
_DRAWN: Final = re.compile(r"<svg.*</svg>", re.DOTALL)
_PATH: Final = re.compile(r'(?<= d=")[^"]*')
_FINE: Final = re.compile(r"(\.\d)\d+")
"""The digits of a position on the page that are less than a tenth of a point."""
_METADATA: Final = re.compile(r"<metadata>.*?</metadata>", re.DOTALL)


def require_figures() -> None:
    """Raises MissingExtra if figures cannot be drawn, before anything is done for them."""
    _load("")


@dataclass(frozen=True, slots=True)
class _Key:
    """What a colour means. kind: line or area."""

    kind: str
    label: str
    paint: str
    stroke: str


def _keys(lines: Sequence[Curve], kind: str) -> list[_Key]:
    return [_Key(kind, one.label, one.paint.on_page, _STROKE[one.is_faint]) for one in lines]


def _mark(axes: Any, axis: Axis) -> None:
    """Draws the marks: a line with its label above, and a pale band for as long as it lasted."""
    dates = _load(".dates")
    ends = dates.date2num([axis.buckets.edges[0], axis.buckets.edges[-1]])
    for one in axis.marks:
        at = dates.date2num(one.at)
        if not ends[0] <= at <= ends[1]:
            continue
        if one.until is not None:
            axes.axvspan(at, dates.date2num(one.until), color=Paint.RED.value, alpha=0.12, lw=0)
        axes.axvline(at, color=Paint.RED.value, linewidth=1.0, linestyle="dashed")
        axes.annotate(
            one.label,
            (at, 1.0),
            xycoords=("data", "axes fraction"),
            xytext=(0, 2),
            textcoords="offset points",
            ha="center",
            color=Paint.RED.value,
            fontsize=9,
        )


def _figure(
    axis: Axis,
    caption: str,
    *,
    keys: Sequence[_Key],
    draw: Callable[[Any, Any], _Range],
) -> Html:
    """Returns a figure. draw: paints into axes between edges, and returns the range it measured."""
    matplotlib, figures, dates = map(_load, ("", ".figure", ".dates"))
    with matplotlib.rc_context(_SETTINGS), warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph")  # the page's fonts have them
        figure = figures.Figure(figsize=_SIZE_INCHES, layout="constrained")
        axes = figure.subplots()
        edges = dates.date2num(axis.buckets.edges)
        measured = draw(axes, edges)
        _mark(axes, axis)
        axes.set_xlim(edges[0], edges[-1])
        locator = dates.AutoDateLocator(minticks=4, maxticks=10)
        axes.xaxis.set_major_locator(locator)
        axes.xaxis.set_major_formatter(dates.ConciseDateFormatter(locator, offset_formats=_DAYS))
        _SCALED[axis.scale](axes, *measured)
        written = io.StringIO()
        figure.savefig(written, format="svg", transparent=True)
    plot = _inline(written.getvalue(), caption)
    return filled("figure", caption=caption, keys=keys, marked=bool(axis.marks), plot=plot)


def _load(part: str) -> Any:
    """Returns a module of matplotlib. Raises MissingExtra."""
    try:
        return importlib.import_module(f"matplotlib{part}")
    except ImportError as error:
        raise MissingExtra(
            f"figures are drawn by matplotlib ({error}): pip install 'onceq[spark]'"
        ) from error


def _count_axis(axes: Any, _: float, largest: float) -> None:
    axes.set_ylim(0, max(1.0, largest) * 1.06)
    axes.yaxis.set_major_locator(_load(".ticker").MaxNLocator(nbins=5, integer=True))
    axes.yaxis.set_major_formatter("{x:,.0f}")


def _duration_axis(axes: Any, smallest: float, largest: float) -> None:
    """Begins at the decade of the smallest value, so that the data fills the figure; or at 0."""
    top = max(10.0, largest * 1.5)
    if smallest >= _FROM_DECADE_MS:
        bottom = 10.0 ** math.floor(math.log10(smallest))
        axes.set_yscale("log")
    else:
        bottom = 0.0
        axes.set_yscale("symlog", linthresh=1)
    axes.set_ylim(bottom, top)
    marks = [mark for mark in _DURATIONS if bottom <= mark <= largest * 1.5]
    axes.set_yticks(marks, [_DURATIONS[mark] for mark in marks])
    axes.yaxis.set_minor_locator(_load(".ticker").NullLocator())


_SCALED: Final = {
    Scale.COUNT: _count_axis,
    Scale.DURATION_MS: _duration_axis,
}


def _inline(text: str, caption: str) -> Html:
    """Returns matplotlib's output as a part of a page: in its colours, with names of its own."""
    drawn = _METADATA.sub("", _DRAWN.findall(text)[0])
    drawn = _PATH.sub(lambda path: _FINE.sub(r"\1", path.group()), drawn)
    for paint in Paint:
        drawn = drawn.replace(paint.value, paint.on_page)
    own = f"f{zlib.crc32((drawn + shown(caption)).encode()):08x}-"
    drawn = _SIZE.sub("", _NAMED.sub(rf"\g<1>{own}", drawn), count=2)
    return Html(drawn.replace("<svg", f'<svg role="img" aria-label="{shown(caption)}"', 1))
