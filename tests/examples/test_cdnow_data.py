from __future__ import annotations

import datetime as dt
import subprocess
import zipfile
from decimal import Decimal
from pathlib import Path

import pytest

from examples.cdnow import data
from examples.cdnow.data import CDNOW, Order, add_up, parse_master, read_orders
from examples.running import wheels
from onceq import errors

HEADER = "order_id,customer_id,date,quantity,amount\n"
GOOD = "7,c1,1997-01-02,2,20.5\n"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "orders.csv"


def refusal(file: Path, content: str | bytes) -> str:
    file.write_bytes(content.encode() if isinstance(content, str) else content)
    with pytest.raises(errors.FileMismatch) as caught:
        read_orders(file)
    assert caught.value.outcome is errors.Outcome.NOTHING_HAPPENED
    return str(caught.value)


def test_the_real_orders() -> None:
    orders = data.prepare_orders(wheels.DATA)
    rows = list(read_orders(orders))
    assert add_up(rows) == CDNOW
    assert [row.order_id for row in rows] == [str(n) for n in range(1, 69_660)]
    assert rows[0] == Order(
        order_id="1",
        customer_id="00001",
        date=dt.date(1997, 1, 1),
        quantity=1,
        amount=Decimal("11.77"),
    )
    assert (rows[-1].customer_id, rows[-1].amount) == ("23570", Decimal("42.96"))
    assert wheels.is_whole(wheels.DATA / "CDNOW_master.txt", data.MASTER_SHA256)
    assert not list(wheels.DATA.glob("*.part"))


def test_what_is_there_is_neither_fetched_nor_converted_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    before = data.prepare_orders(wheels.DATA).stat().st_mtime_ns

    def refuse(_: str, into: Path) -> Path:
        raise AssertionError(into)

    monkeypatch.setattr(wheels, "_fetch_wheel", refuse)
    assert data.prepare_orders(wheels.DATA).stat().st_mtime_ns == before


def test_a_damaged_copy_is_made_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = data.prepare_orders(wheels.DATA)
    wheel = tmp_path / "a.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.write(wheels.DATA / "CDNOW_master.txt", data.MEMBER)
    monkeypatch.setattr(wheels, "_fetch_wheel", lambda *_: wheel)
    copy = tmp_path / "data"
    copy.mkdir()
    # As an interruption, or a hand, might leave them.
    (copy / "CDNOW_master.txt").write_bytes((wheels.DATA / "CDNOW_master.txt").read_bytes()[:1000])
    (copy / "orders.csv").write_text(HEADER + GOOD)
    orders = data.prepare_orders(copy)
    assert orders.read_bytes() == source.read_bytes()
    assert sorted(path.name for path in copy.iterdir()) == ["CDNOW_master.txt", "orders.csv"]


def test_another_master_file_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wheel = tmp_path / "a.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr(data.MEMBER, "something else")
    monkeypatch.setattr(wheels, "_fetch_wheel", lambda *_: wheel)
    with pytest.raises(errors.FileMismatch, match="sha256"):
        data.prepare_orders(tmp_path / "data")
    assert not (tmp_path / "data" / "orders.csv").exists()


def test_a_wheel_that_is_not_the_pinned_one_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pinned = tmp_path / "requirements-data.txt"
    pinned.write_text("lifetimes==0.11.3 --hash=sha256:" + "0" * 64 + "\n")
    monkeypatch.setattr(wheels, "PINNED", pinned)
    with pytest.raises(errors.EnvironmentFault, match="could not download"):
        wheels._fetch_wheel("lifetimes", tmp_path / "wheels")


def test_a_wheel_may_spell_its_name_with_capitals(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "fastquant-0.1.8.1-py3-none-any.whl").touch()
    kept = tmp_path / "Lifetimes-0.11.3-py3-none-any.whl"
    kept.touch()
    monkeypatch.setattr(subprocess, "run", lambda *_, **__: subprocess.CompletedProcess([], 0))
    assert wheels._fetch_wheel("lifetimes", tmp_path) == kept


def test_a_download_that_hangs_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wheels, "DOWNLOAD_TIMEOUT_S", 0.001)
    with pytest.raises(errors.EnvironmentFault, match="start again"):
        wheels._fetch_wheel("lifetimes", tmp_path / "wheels")


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("id day", "line 1: is not customer_id date"),
        (
            " customer_id date number_of_cds dollar_value\r\n 1 19970101 1\r\n",
            "line 2: has 3 fields",
        ),
        (
            " customer_id date number_of_cds dollar_value\r\n 1 19971301 1 2.00\r\n",
            "line 2: date '1997-13-01'",
        ),
    ],
)
def test_a_master_file_that_does_not_fit_names_the_line(text: str, reason: str) -> None:
    with pytest.raises(errors.FileMismatch, match=reason):
        list(parse_master(text))


def test_a_file_of_one_s_own(file: Path) -> None:
    file.write_bytes(
        b"\xef\xbb\xbfamount,note,quantity,date,customer_id,order_id\r\n"
        b'-3,"a, b",0,2024-02-29, Zo\xc3\xab ,A-1\r\n'
        b"\r\n"
        b"0.5,,1,2024-03-01,Zo\xc3\xab,A-2\r\n"
    )
    first, second = read_orders(file)
    assert first == Order(
        order_id="A-1",
        customer_id="Zoë",
        date=dt.date(2024, 2, 29),
        quantity=0,
        amount=Decimal("-3.00"),
    )
    assert str(second.amount) == "0.50"


def test_missing_columns_are_named(file: Path) -> None:
    said = refusal(file, "id,customer_id,date,quantity,total\n1,2,3,4,5\n")
    assert "lacks order_id, amount;" in said
    assert "names id, customer_id, date, quantity, total" in said


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        ("", "names nothing"),
        ("order_id;customer_id;date;quantity;amount\n", "the header lacks order_id"),
        (b"\xff\xfe", "is not UTF-8"),
        (HEADER + '"7,c1\n', "is not CSV"),
    ],
)
def test_what_is_no_such_file_at_all(file: Path, content: str | bytes, reason: str) -> None:
    assert reason in refusal(file, content)


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(errors.FileMismatch, match="No such file"):
        read_orders(tmp_path / "gone.csv")


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        (",c,1997-01-01,1,1", "order_id '' must have 1 to 200 bytes"),
        ("é" * 101 + ",c,1997-01-01,1,1", "must have 1 to 200 bytes"),
        ("8,a\tb,1997-01-01,1,1", r"customer_id 'a\tb' has a control character"),
        ("8,c,19970101,1,1", "date '19970101' is not a date written YYYY-MM-DD"),
        ("8,c,1997-02-30,1,1", "date '1997-02-30'"),
        ("8,c,1997-01-01,-1,1", "quantity '-1' is not a whole number"),
        ("8,c,1997-01-01,1.5,1", "quantity '1.5' is not a whole number"),
        ("8,c,1997-01-01,\u0661,1", "quantity '\u0661' is not a whole number"),
        ("8,c,1997-01-01,1,1.005", "amount '1.005' is not an amount"),
        ("8,c,1997-01-01,1,1e3", "amount '1e3' is not an amount"),
        ("8,c,1997-01-01,1,nan", "amount 'nan' is not an amount"),
        ("8,c,1997-01-01,1", "has 4 fields where the header has 5"),
        ("7,c,1997-01-01,1,1", "order_id '7' is on line 2 already"),
    ],
)
def test_a_bad_row_is_named_by_its_line_and_reason(file: Path, row: str, reason: str) -> None:
    said = refusal(file, HEADER + GOOD + row + "\n")
    assert "1 bad row(s)" in said
    assert "\nline 3: " in said
    assert reason in said


def test_every_bad_row_is_counted_and_the_first_are_shown(file: Path) -> None:
    said = refusal(file, HEADER + GOOD + "x\n" * 25)
    assert "25 bad row(s)" in said
    assert [line.split(":")[0] for line in said.splitlines()[1:-1]] == [
        f"line {n}" for n in range(3, 23)
    ]
    assert said.endswith("and 5 more")


def test_totals_read_as_a_person_would_write_them() -> None:
    assert str(CDNOW) == (
        "69,659 orders of 23,570 customers, $2,500,315.63, 255 of them repeated in full, 80 of $0"
    )
