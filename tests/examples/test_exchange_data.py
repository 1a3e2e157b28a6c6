from __future__ import annotations

import zipfile
from pathlib import Path

import pytest

from examples.exchange import data
from examples.exchange.data import EXCHANGE, Bar, add_up, bars_of_the_exchange, is_move, parse
from examples.running import wheels
from onceq import errors

HEADER = (
    "Symbol,A,A,A,A,A,B,B,B,B,B\n"
    ",open,high,low,close,value,open,high,low,close,value\n"
    "dt,,,,,,,,,,\n"
)


def test_the_real_bars() -> None:
    bars = list(bars_of_the_exchange())
    assert add_up(bars) == EXCHANGE
    assert bars[0] == Bar(
        day="2010-01-04",
        symbol="BRN",
        open="3.7",
        high="3.7",
        low="3.7",
        close="3.7",
        value="55500.0",
    )
    assert sum(bar.symbol < "M" for bar in bars) == 294_899
    assert sum(bar.open in {"0", "0.0"} for bar in bars) == 37
    assert sum(bar.value.startswith("-") for bar in bars) == 2


def bar(opened: str, closed: str) -> Bar:
    return Bar(day="d", symbol="s", open=opened, high="9", low="1", close=closed, value="0")


@pytest.mark.parametrize(
    ("opened", "closed", "moved"),
    [("10", "11", True), ("10", "9", True), ("10", "10.9999", False), ("0", "5", False)],
)
def test_a_move_is_a_tenth_of_the_open(opened: str, closed: str, *, moved: bool) -> None:
    assert is_move(bar(opened, closed)) is moved


def test_what_was_not_traded_is_no_bar() -> None:
    (found,) = parse(HEADER + "2010-01-04,,,,,,1,2,0.5,1.0,-7.50\n")
    assert (found.symbol, found.low, found.value) == ("B", "0.5", "-7.50")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "lines 1 to 3"),
        (HEADER.replace("low", "close", 1), "lines 1 to 3"),
        (HEADER.replace("dt", "day"), "lines 1 to 3"),
        (HEADER + "2010-01-04,1,2\n", "line 4: has 3 fields where the header has 11"),
        (HEADER + "2010-01-04,,,,,,1,2,,1,7\n", "line 4: B lacks some"),
    ],
)
def test_another_file_is_refused(text: str, said: str) -> None:
    with pytest.raises(errors.FileMismatch, match=said):
        list(parse(text))


def test_another_archive_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = tmp_path / "merged_stock_data.zip"
    with zipfile.ZipFile(made, "w") as archive:
        archive.writestr("bars.csv", HEADER)
    monkeypatch.setattr(wheels, "fetch", lambda *_: made)
    with pytest.raises(errors.FileMismatch, match="sha256"):
        data.bars_of_the_exchange(tmp_path)
