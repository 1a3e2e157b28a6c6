"""Figures for a page: what was counted or measured over time, as a picture inside the HTML.

Used by who makes a page of `onceq.spark.pages`. Drawn by matplotlib, which is loaded when the first
figure is drawn; its colours are those of the page, so that a figure is light or dark with it.
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
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from onceq.errors import MissingExtra
from onceq.spark.pages import Html, shown

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

__all__ = [
    "Buckets",
    "Line",
    "Paint",
    "Scale",
    "lines_over_time",
    "require_figures",
    "stack_over_time",
]


class Paint(enum.Enum):
    """A colour of the page, and what stands for it while matplotlib draws."""

    INK = "#010201"
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
        """How the page calls it."""
        return f"var(--{self.name.lower()})"


class Scale(enum.Enum):
    """What the numbers are: how many, from 0; or milliseconds, each decade as high as the next."""

    COUNT = enum.auto()
    DURATION_MS = enum.auto()


@dataclass(frozen=True, slots=True, kw_only=True)
class Buckets:
    """Spans of time of one width, one after the other. first: when the first begins."""

    first: dt.datetime
    width: dt.timedelta
    count: int

    @property
    def edges(self) -> list[dt.datetime]:
        """Where they begin, and where the last ends."""
        return [self.first + number * self.width for number in range(self.count + 1)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """A number for each bucket; None: nothing was measured in it. is_faint: thin and dotted."""

    label: str
    values: Sequence[float | None]
    paint: Paint
    is_faint: bool = False


_SIZE_INCHES: Final = (10.0, 2.9)
_STROKE: Final = {False: "solid", True: "dotted"}
_DAYS: Final = ["UTC", "%Y, UTC", "%b %Y, UTC", "%d %b %Y, UTC", "%d %b %Y, UTC", "%d %b %Y, UTC"]
"""Below an axis of years, months, days, hours, minutes and seconds: what its marks leave out."""
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
    100: "100 ms",
    1_000: "1 s",
    10_000: "10 s",
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
"""Of a place on the page, what is less than a tenth of a point."""
_METADATA: Final = re.compile(r"<metadata>.*?</metadata>", re.DOTALL)


def require_figures() -> None:
    """Raises MissingExtra when figures cannot be drawn, before anything is done for them."""
    _load("")


def lines_over_time(buckets: Buckets, lines: Sequence[Line], *, scale: Scale, caption: str) -> Html:
    """Returns a figure with a line for each; a bucket in which nothing was measured is a gap."""

    def draw(axes: Any, edges: Any) -> float:
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
        return max((value for one in lines for value in one.values if value), default=0)

    return _figure(buckets, scale, caption, keys=_keys(lines, "line"), draw=draw)


def stack_over_time(buckets: Buckets, lines: Sequence[Line], *, scale: Scale, caption: str) -> Html:
    """Returns a figure of areas, each on top of the one before: together they are the whole."""

    def draw(axes: Any, edges: Any) -> float:
        height = [0.0] * buckets.count
        for one in lines:
            above = [low + (value or 0) for low, value in zip(height, one.values, strict=True)]
            axes.stairs(above, edges, baseline=height, fill=True, color=one.paint.value, lw=0)
            height = above
        return max(height, default=0)

    return _figure(buckets, scale, caption, keys=_keys(lines, "area"), draw=draw)


def _keys(lines: Sequence[Line], kind: str) -> Html:
    """Returns what each colour means. kind: line or area."""
    paints = (f"--paint:{one.paint.on_page};--line:{_STROKE[one.is_faint]}" for one in lines)
    made = (
        f'<li class="{kind}" style="{paint}">{shown(one.label)}</li>'
        for one, paint in zip(lines, paints, strict=True)
    )
    return Html(f'<ul class="keys">{"".join(made)}</ul>')


def _figure(
    buckets: Buckets,
    scale: Scale,
    caption: str,
    *,
    keys: Html,
    draw: Callable[[Any, Any], float],
) -> Html:
    """Returns a figure. draw: paints into axes between edges, and returns the largest value."""
    matplotlib, figures, dates = map(_load, ("", ".figure", ".dates"))
    with matplotlib.rc_context(_SETTINGS), warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph")  # the page's fonts have it
        figure = figures.Figure(figsize=_SIZE_INCHES, layout="constrained")
        axes = figure.subplots()
        edges = dates.date2num(buckets.edges)
        largest = draw(axes, edges)
        axes.set_xlim(edges[0], edges[-1])
        locator = dates.AutoDateLocator(minticks=4, maxticks=10)
        axes.xaxis.set_major_locator(locator)
        axes.xaxis.set_major_formatter(dates.ConciseDateFormatter(locator, offset_formats=_DAYS))
        _SCALED[scale](axes, largest)
        written = io.StringIO()
        figure.savefig(written, format="svg", transparent=True)
    said = f"<figcaption>{shown(caption)}</figcaption>"
    plot = f'<div class="wide">{_inline(written.getvalue(), caption)}</div>'
    return Html(f"<figure>{said}{keys}{plot}</figure>\n")


def _load(part: str) -> Any:
    """Returns a module of matplotlib. Raises MissingExtra."""
    try:
        return importlib.import_module(f"matplotlib{part}")
    except ImportError as error:
        raise MissingExtra(
            f"figures are drawn by matplotlib ({error}): pip install 'onceq[spark]'"
        ) from error


def _count_axis(axes: Any, largest: float) -> None:
    axes.set_ylim(0, max(1.0, largest) * 1.06)
    axes.yaxis.set_major_locator(_load(".ticker").MaxNLocator(nbins=5, integer=True))
    axes.yaxis.set_major_formatter("{x:,.0f}")


def _duration_axis(axes: Any, largest: float) -> None:
    axes.set_yscale("symlog", linthresh=1)
    axes.set_ylim(0, max(10.0, largest * 1.5))
    marks = [mark for mark in _DURATIONS if mark <= largest * 1.5]
    axes.set_yticks(marks, [_DURATIONS[mark] for mark in marks])
    axes.yaxis.set_minor_locator(_load(".ticker").NullLocator())


_SCALED: Final = {
    Scale.COUNT: _count_axis,
    Scale.DURATION_MS: _duration_axis,
}


def _inline(text: str, caption: str) -> Html:
    """Returns what matplotlib wrote as a part of a page: in its colours, with names of its own."""
    drawn = _METADATA.sub("", _DRAWN.findall(text)[0])
    drawn = _PATH.sub(lambda path: _FINE.sub(r"\1", path.group()), drawn)
    for paint in Paint:
        drawn = drawn.replace(paint.value, paint.on_page)
    own = f"f{zlib.crc32((drawn + shown(caption)).encode()):08x}-"
    drawn = _SIZE.sub("", _NAMED.sub(rf"\g<1>{own}", drawn), count=2)
    return Html(drawn.replace("<svg", f'<svg role="img" aria-label="{shown(caption)}"', 1))
