"""The bars of the example: 538,408 real ones, of 257 stocks on 2,798 days.

`python examples/exchange/data.py` prints what they add up to. Where they come from, and under which
licence, is told in README.md beside this file.

Invariants: numbers are kept as they are written, and added as Decimal, never as float; no bar is
yielded from a file that is not the known one.
"""

from __future__ import annotations

import csv
import hashlib
import io
import sys
import zipfile
from collections.abc import Iterable, Iterator
from decimal import Decimal
from pathlib import Path
from typing import Final

import msgspec

from examples.running import wheels
from onceq import errors

MEMBER: Final = "fastquant/data/merged_stock_data.zip"
MEMBER_SHA256: Final = "97aa1057449ab84a78a0a7c6171c489e9cddf8c36ad0b627698181952abea127"
CSV_SHA256: Final = "2d0f837e971a4ce7e9450097ae06fe055122e9278f6370433f5f5c2ade68888b"
FIELDS: Final = ("open", "high", "low", "close", "value")
MOVE: Final = Decimal("0.1")
"""The least move: the part of its open by which a bar's close differs from it."""


class Bar(msgspec.Struct, frozen=True, kw_only=True):
    """What was traded of a stock on a day (YYYY-MM-DD). Prices and value as written, in pesos."""

    day: str
    symbol: str
    open: str
    high: str
    low: str
    close: str
    value: str


class Totals(msgspec.Struct, frozen=True, kw_only=True):
    """What bars add up to. moves: see `is_move`."""

    bars: int
    symbols: int
    days: int
    moves: int
    close: Decimal
    value: Decimal

    def __str__(self) -> str:
        return (
            f"{self.bars:,} bars of {self.symbols} stocks on {self.days:,} days, "
            f"{self.moves:,} of them moves; closes {self.close:,}, values {self.value:,}"
        )


EXCHANGE: Final = Totals(
    bars=538_408,
    symbols=257,
    days=2_798,
    moves=10_181,
    close=Decimal("35183262.4720"),
    value=Decimal("17649768739141.30000000004334"),
)


def is_move(bar: Bar) -> bool:
    """Return whether its close is a tenth of its open, or more, from it. An open of 0: no move."""
    opened = Decimal(bar.open)
    return opened != 0 and abs(Decimal(bar.close) - opened) >= MOVE * opened


def add_up(bars: Iterable[Bar]) -> Totals:
    """Return the totals of bars, in one pass."""
    count = moves = 0
    close = value = Decimal(0)
    symbols: set[str] = set()
    days: set[str] = set()
    for bar in bars:
        count += 1
        moves += is_move(bar)
        close += Decimal(bar.close)
        value += Decimal(bar.value)
        symbols.add(bar.symbol)
        days.add(bar.day)
    return Totals(
        bars=count, symbols=len(symbols), days=len(days), moves=moves, close=close, value=value
    )


def bars_of_the_exchange(data: Path = wheels.DATA) -> Iterator[Bar]:
    """Return the bars, day by day, fetching them if need be.

    Raises FileMismatch if the data is not what it should be, EnvironmentFault if it cannot be
    fetched.
    """
    with zipfile.ZipFile(wheels.fetch(MEMBER, MEMBER_SHA256, data)) as archive:
        (name,) = archive.namelist()
        content = archive.read(name)
    if hashlib.sha256(content).hexdigest() != CSV_SHA256:
        raise errors.FileMismatch(f"{MEMBER}: sha256 of what is in it is not {CSV_SHA256}")
    return parse(content.decode("ascii"))


def parse(text: str) -> Iterator[Bar]:
    """Yield the bars of the file: three rows of header, then a day a row, five columns a stock.

    A stock that was not traded has five empty ones. Raises FileMismatch naming the first line that
    does not fit.
    """
    rows = csv.reader(io.StringIO(text, newline=""), strict=True)
    symbols, fields, last = next(rows, []), next(rows, []), next(rows, [])
    stocks = symbols[1::5]
    if last[:1] != ["dt"] or fields != ["", *FIELDS * len(stocks)]:
        raise errors.FileMismatch("lines 1 to 3: are not symbols, their five fields, and dt")
    for row in rows:
        if len(row) != len(symbols):
            raise errors.FileMismatch(
                f"line {rows.line_num}: has {len(row)} fields where the header has {len(symbols)}"
            )
        for place, symbol in enumerate(stocks):
            values = row[1 + 5 * place : 6 + 5 * place]
            if all(values):
                yield Bar(day=row[0], symbol=symbol, **dict(zip(FIELDS, values, strict=True)))
            elif any(values):
                raise errors.FileMismatch(
                    f"line {rows.line_num}: {symbol} lacks some of {', '.join(FIELDS)}"
                )


if __name__ == "__main__":
    sys.stdout.write(f"{add_up(bars_of_the_exchange())}\n")
