"""Pages for people: one self-contained HTML file made of sections, tables and figures.

    overview = section("Overview", tiles([("ended", 1204)]), paragraph("All that has ended."))
    busiest = table([Column("queue"), Column("ended", bar=True)], [("orders", 1204)])
    text = page("Report", "Repository onceq", [overview, section("Busiest queues", busiest)])

Anything that is not `Html` is text: it is escaped, and invisible characters in it are made visible,
whatever it holds. Only this module and `onceq.spark.pages.figures` make `Html`, never from data.
A page fetches nothing and runs nothing, follows the reader's choice of light or dark, and can be
printed. Pure.
Source: spec P6, P7.
"""

from __future__ import annotations

import datetime as dt
import html
import unicodedata
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final, Self

import jinja2

TEXT_MAX: Final = 200
"""Most characters of a text in a table; longer text is cut, and ends in an ellipsis."""
ROWS_MAX: Final = 1_000
"""Most rows of a table; how many more there are is said below it."""
_UNSEEN: Final = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"})
"""Kinds of characters that are invisible, or that change how their neighbours are read."""


class Html(str):
    """Text that is already markup: it goes into the page as it is."""

    __slots__ = ()

    def __html__(self) -> Self:
        """What templates ask for, so as not to escape it."""
        return self


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a table. unit: below its name. digits: after the point of a fraction.

    bar: a bar shows how large each number is beside the largest; markup has none. right: aligned
    like numbers, which need not ask for it. roomy: its texts should not be broken into many lines.
    """

    name: str
    unit: str = ""
    digits: int = 0
    bar: bool = False
    right: bool = False
    roomy: bool = False


def shown(value: object, digits: int = 0) -> Html:
    """Returns a value as a person reads it: escaped, cut at TEXT_MAX. Html stays as it is."""
    match value:
        case Html():
            return value
        case None:
            return Html("\u2013")
        case bool():
            return Html("yes" if value else "no")
        case int():
            return Html(f"{value:,}")
        case float():
            return Html(f"{value:,.{digits}f}")
        case dt.datetime():
            return Html(f"{value:%Y-%m-%d %H:%M}")
        case _:
            return _text(str(value))


def _text(text: str, most: int = TEXT_MAX) -> Html:
    cut = text if len(text) <= most else f"{text[: most - 1]}…"
    return Html(html.escape("".join(map(_visible, cut)), quote=True))


def _visible(character: str) -> str:
    if unicodedata.category(character) in _UNSEEN:
        return character.encode("unicode_escape", "surrogatepass").decode("ascii")
    return character


def _whole(part: object) -> Html:
    """Returns what is shown, and text without a cut: it is the page's own."""
    return _text(part, len(part)) if type(part) is str else shown(part)


_TEMPLATES: Final = jinja2.Environment(
    loader=jinja2.PackageLoader("onceq.spark.pages"),
    autoescape=True,
    undefined=jinja2.StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
)
_TEMPLATES.filters.update(shown=shown, whole=_whole)


def filled(template: str, **values: object) -> Html:
    """Returns a template of this package, filled in. What is not markup yet is escaped."""
    return Html(_TEMPLATES.get_template(f"{template}.html").render(values))


def paragraph(*parts: object) -> Html:
    """Returns a paragraph of texts, numbers and markup."""
    return filled("paragraph", parts=parts, kind="")


def notice(*parts: object) -> Html:
    """Returns a paragraph that cannot be overlooked."""
    return filled("paragraph", parts=parts, kind="notice")


def tiles(values: Iterable[tuple[str, object]]) -> Html:
    """Returns the most important figures, each with its name below."""
    return filled("tiles", values=list(values))


def table(
    columns: Sequence[Column], rows: Sequence[Sequence[object]], *, caption: str = ""
) -> Html:
    """Returns a table: numbers to the right, at most ROWS_MAX rows."""
    kept = rows[:ROWS_MAX]
    largest = [_largest([row[place] for row in kept]) for place in range(len(columns))]
    kinds = [(one, _kind(one, most)) for one, most in zip(columns, largest, strict=True)]
    cells = [
        [
            (kind, value, _share(kind[0], value, most))
            for kind, value, most in zip(kinds, row, largest, strict=True)
        ]
        for row in kept
    ]
    left = len(rows) - len(kept)
    return filled("table", columns=kinds, rows=cells, caption=caption, left=left)


def _largest(values: Sequence[object]) -> float | None:
    """Returns the largest number of a column; None if it holds texts. Markup does not count."""
    there = [value for value in values if value is not None and not isinstance(value, Html)]
    numbers = [value for value in there if isinstance(value, int | float)]
    return max(numbers, default=0) if len(numbers) == len(there) and there else None


def _kind(column: Column, most: float | None) -> str:
    if column.roomy:
        return "roomy"
    return "" if most is None and not column.right else "number"


def _share(column: Column, value: object, most: float | None) -> float | None:
    """Returns how long a cell's bar is, in percent; None: it has none."""
    if column.bar and most and isinstance(value, int | float):
        return max(0.0, 100 * value / most)
    return None


def section(title: str, *parts: Html) -> Html:
    """Returns a section of a page."""
    return filled("section", title=title, parts=parts)


def page(title: str, lead: str, sections: Sequence[Html]) -> str:
    """Returns a whole file, to be written as UTF-8. lead: a line below the title."""
    return str(filled("page", title=title, lead=lead, sections=sections))
