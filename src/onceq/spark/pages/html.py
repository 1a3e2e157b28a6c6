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
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from onceq.spark.pages.page_style import STYLE

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

__all__ = [
    "Column",
    "Html",
    "joined",
    "notice",
    "page",
    "paragraph",
    "section",
    "shown",
    "table",
    "tiles",
]

TEXT_MAX: Final = 200
"""Most characters of a text in a table; longer text is cut, and ends in an ellipsis."""
ROWS_MAX: Final = 1_000
"""Most rows of a table; how many more there are is said below it."""
_UNSEEN: Final = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"})
"""Kinds of characters that are invisible, or that change how their neighbours are read."""
_POLICY: Final = "default-src 'none'; style-src 'unsafe-inline'"


class Html(str):
    """Text that is already markup: it goes into the page as it is."""

    __slots__ = ()


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


def joined(parts: Iterable[Html]) -> Html:
    """Returns markup, one part after the other."""
    return Html("".join(parts))


def paragraph(*parts: object) -> Html:
    """Returns a paragraph of texts, numbers and markup."""
    return Html(f"<p>{joined(_whole(part) for part in parts)}</p>")


def notice(*parts: object) -> Html:
    """Returns a paragraph that cannot be overlooked."""
    return Html(f'<p class="notice">{joined(_whole(part) for part in parts)}</p>')


def _whole(part: object) -> Html:
    """Returns what is shown, and text without a cut: it is the page's own."""
    return _text(part, len(part)) if type(part) is str else shown(part)


def tiles(values: Iterable[tuple[str, object]]) -> Html:
    """Returns the most important figures, each with its name below."""
    made = (f"<div><dt>{shown(name)}</dt><dd>{shown(value)}</dd></div>" for name, value in values)
    return Html(f'<dl class="tiles">{"".join(made)}</dl>')


def table(
    columns: Sequence[Column], rows: Sequence[Sequence[object]], *, caption: str = ""
) -> Html:
    """Returns a table: numbers to the right, at most ROWS_MAX rows."""
    kept = rows[:ROWS_MAX]
    largest = [_largest([row[place] for row in kept]) for place in range(len(columns))]
    sides = [_side(one, most) for one, most in zip(columns, largest, strict=True)]
    head = "".join(
        f"<th{side}>{shown(one.name)}{_unit(one.unit)}</th>"
        for one, side in zip(columns, sides, strict=True)
    )
    body = "".join(
        f"<tr>{''.join(map(_cell, columns, row, sides, largest))}</tr>\n" for row in kept
    )
    said = f"<caption>{_whole(caption)}</caption>" if caption else ""
    made = f"<table>{said}<thead><tr>{head}</tr></thead>\n<tbody>{body}</tbody></table>"
    left = len(rows) - len(kept)
    more = paragraph(left, " more are not shown.") if left else ""
    return Html(f'<div class="wide">{made}</div>{more}')


def _largest(values: Sequence[object]) -> float | None:
    """Returns the largest number of a column; None if it holds texts. Markup does not count."""
    there = [value for value in values if value is not None and not isinstance(value, Html)]
    numbers = [value for value in there if isinstance(value, int | float)]
    return max(numbers, default=0) if len(numbers) == len(there) and there else None


def _side(column: Column, most: float | None) -> str:
    if column.roomy:
        return ' class="roomy"'
    return "" if most is None and not column.right else ' class="number"'


def _unit(unit: str) -> str:
    return f"<small>{shown(unit)}</small>" if unit else ""


def _cell(column: Column, value: object, side: str, most: float | None) -> str:
    share = ""
    if column.bar and most and isinstance(value, int | float):
        share = f' style="--share:{max(0.0, 100 * value / most):.1f}%"'
    return f"<td{side}{share}>{shown(value, column.digits)}</td>"


def section(title: str, *parts: Html) -> Html:
    """Returns a section of a page."""
    return Html(f"<section><h2>{_whole(title)}</h2>\n{joined(parts)}</section>\n")


def page(title: str, lead: str, sections: Sequence[Html]) -> str:
    """Returns a whole file, to be written as UTF-8. lead: a line below the title."""
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<meta name="color-scheme" content="light dark">\n'
        f"<title>{_whole(title)}</title>\n<style>{STYLE}</style>\n</head>\n<body>\n"
        f'<header><h1>{_whole(title)}</h1><p class="lead">{_whole(lead)}</p></header>\n'
        f"<main>\n{joined(sections)}</main>\n</body>\n</html>\n"
    )
