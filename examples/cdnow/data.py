"""The orders of the example: 69,659 real ones, or those of a file of yours.

Called by the runner of `make run`, and by hand: `python examples/cdnow/data.py`
prints where the orders are and what they add up to. Where the data comes from
is told in README.md beside this file.

Invariants: money is Decimal, never float; a file that comes into being is whole
and verified or not there at all; no order is yielded from a file with a bad row.
It never imports the wheel that carries the data.
"""

from __future__ import annotations

import csv
import dataclasses
import datetime as dt
import re
import sys
from collections.abc import Callable, Iterable, Iterator
from decimal import Decimal
from pathlib import Path

from examples.running import wheels
from onceq import errors

MEMBER = "lifetimes/datasets/CDNOW_master.txt"
MASTER_SHA256 = "eff6889ed364c5199d6eacbbeb7a6d559971df4406ac876f322c373f00a072ef"
MASTER_COLUMNS = ["customer_id", "date", "number_of_cds", "dollar_value"]

COMPLAINTS_SHOWN = 20


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """One order; `order_id` is the rid of its request, `amount` dollars and cents."""

    order_id: str
    customer_id: str
    date: dt.date
    quantity: int
    amount: Decimal


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Totals:
    """What orders add up to. `repeated`: rows equal to an earlier one except for their id."""

    orders: int
    customers: int
    amount: Decimal
    repeated: int
    free: int

    def __str__(self) -> str:
        return (
            f"{self.orders:,} orders of {self.customers:,} customers, ${self.amount:,}, "
            f"{self.repeated:,} of them repeated in full, {self.free:,} of $0"
        )


CDNOW = Totals(orders=69_659, customers=23_570, amount=Decimal("2500315.63"), repeated=255, free=80)


def add_up(orders: Iterable[Order]) -> Totals:
    """Return the totals of `orders`, in one pass."""
    count = free = 0
    amount = Decimal("0.00")
    customers: set[str] = set()
    contents: set[tuple[str, dt.date, int, Decimal]] = set()
    for order in orders:
        count += 1
        free += order.amount == 0
        amount += order.amount
        customers.add(order.customer_id)
        contents.add((order.customer_id, order.date, order.quantity, order.amount))
    return Totals(
        orders=count,
        customers=len(customers),
        amount=amount,
        repeated=count - len(contents),
        free=free,
    )


# ------------------------------------------------------------ a file of orders


def _identifier(text: str) -> str:
    if not 1 <= len(text.encode()) <= 200:
        raise ValueError("must have 1 to 200 bytes")
    if not text.isprintable():
        raise ValueError("has a control character")
    return text


def _date(text: str) -> dt.date:
    if not re.fullmatch(r"[0-9]{4}-[0-9]{2}-[0-9]{2}", text):
        raise ValueError("is not a date written YYYY-MM-DD")
    return dt.date.fromisoformat(text)


def _quantity(text: str) -> int:
    if not re.fullmatch(r"[0-9]{1,9}", text):
        raise ValueError("is not a whole number from 0 to 999,999,999")
    return int(text)


def _amount(text: str) -> Decimal:
    if not re.fullmatch(r"-?[0-9]{1,12}(\.[0-9]{1,2})?", text):
        raise ValueError("is not an amount such as 12.50")
    return Decimal(text).quantize(Decimal("0.01"))


PARSERS: dict[str, Callable[[str], object]] = {
    "order_id": _identifier,
    "customer_id": _identifier,
    "date": _date,
    "quantity": _quantity,
    "amount": _amount,
}
COLUMNS = list(PARSERS)


def read_orders(path: Path) -> Iterator[Order]:
    """Check every row of a CSV file of orders, then return its orders one by one.

    The file has a header with the names in COLUMNS, in any order, others are
    ignored; UTF-8; blank lines are skipped. Raises FileMismatch (nothing
    happened) naming the missing columns, or each bad row by its line and reason
    (the first 20 of them), before any order is returned.
    """
    complaints: list[str] = []
    bad = 0
    lines: dict[str, int] = {}
    for line, found in _parsed_rows(path):
        reason = found if isinstance(found, str) else _repeated_id(found, lines, line)
        if reason:
            bad += 1
            if bad <= COMPLAINTS_SHOWN:
                complaints.append(f"line {line}: {reason}")
    if bad > COMPLAINTS_SHOWN:
        complaints.append(f"and {bad - COMPLAINTS_SHOWN} more")
    if bad:
        raise errors.FileMismatch(
            f"{path}: {bad} bad row(s); correct them and start again\n" + "\n".join(complaints)
        )
    return (found for _, found in _parsed_rows(path) if isinstance(found, Order))


def _repeated_id(order: Order, lines: dict[str, int], line: int) -> str | None:
    first = lines.setdefault(order.order_id, line)
    return None if first == line else f"order_id {order.order_id!r} is on line {first} already"


def _parsed_rows(path: Path) -> Iterator[tuple[int, Order | str]]:
    """Yield the line number of each row with its order, or in words what is wrong."""
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            rows = csv.reader(file, strict=True)
            places = _places(path, next(rows, []))
            for row in rows:
                if row:
                    yield rows.line_num, _parse(row, places)
    except OSError as error:
        raise errors.FileMismatch(f"{path}: cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise errors.FileMismatch(f"{path}: is not UTF-8 text ({error.reason})") from error
    except csv.Error as error:
        raise errors.FileMismatch(f"{path}: is not CSV: {error}") from error


@dataclasses.dataclass(frozen=True, slots=True)
class _Places:
    width: int
    of: dict[str, int]


def _places(path: Path, header: list[str]) -> _Places:
    missing = [name for name in COLUMNS if name not in header]
    if missing:
        raise errors.FileMismatch(
            f"{path}: the header lacks {', '.join(missing)}; "
            f"it must name {', '.join(COLUMNS)}, and names {', '.join(header) or 'nothing'}"
        )
    return _Places(len(header), {name: header.index(name) for name in COLUMNS})


def _parse(row: list[str], places: _Places) -> Order | str:
    if len(row) != places.width:
        return f"has {len(row)} fields where the header has {places.width}"
    values: dict[str, object] = {}
    for name, parse in PARSERS.items():
        text = row[places.of[name]].strip()
        try:
            values[name] = parse(text)
        except ValueError as error:
            return f"{name} {text!r} {error}"
    return Order(**values)  # type: ignore[arg-type]  # each parser returns its field's type


# -------------------------------------------------------- the orders of CDNOW


def prepare_orders(data: Path = wheels.DATA) -> Path:
    """Return orders.csv of the CDNOW data set, fetching and converting it if need be.

    Any step that an earlier call finished is kept, so an interrupted one goes
    on where it was. Raises FileMismatch if the data is not what it should be,
    EnvironmentFault if it cannot be fetched; nothing happened.
    """
    orders = data / "orders.csv"
    if not orders.exists() or add_up(read_orders(orders)) != CDNOW:
        _convert(wheels.fetch(MEMBER, MASTER_SHA256, data), orders)
    return orders


def _convert(master: Path, orders: Path) -> None:
    """Write the orders of `master` as CSV, numbered from 1 in the order of its lines."""
    rows = list(parse_master(master.read_text(encoding="ascii")))
    if (totals := add_up(rows)) != CDNOW:
        raise errors.FileMismatch(f"{master}: has {totals}; it should have {CDNOW}")
    lines = [",".join(COLUMNS)]
    lines += [f"{o.order_id},{o.customer_id},{o.date},{o.quantity},{o.amount}" for o in rows]
    wheels.write_whole(orders, "\n".join([*lines, ""]).encode())


def parse_master(text: str) -> Iterator[Order]:
    """Yield the orders of the master file: columns aligned by blanks, no id, CRLF.

    Raises FileMismatch naming the first line that does not fit.
    """
    header, *lines = text.splitlines()
    if header.split() != MASTER_COLUMNS:
        raise errors.FileMismatch(f"line 1: is not {' '.join(MASTER_COLUMNS)}")
    places = _Places(len(COLUMNS), {name: place for place, name in enumerate(COLUMNS)})
    for number, line in enumerate(lines, start=1):
        match line.split():
            case [customer, day, quantity, amount]:
                date = f"{day[:4]}-{day[4:6]}-{day[6:]}"
                found = _parse([str(number), customer, date, quantity, amount], places)
            case fields:
                found = f"has {len(fields)} fields where the header has {len(MASTER_COLUMNS)}"
        if isinstance(found, str):
            raise errors.FileMismatch(f"line {number + 1}: {found}")
        yield found


if __name__ == "__main__":
    where = Path(sys.argv[1]) if len(sys.argv) > 1 else prepare_orders()
    print(f"{where}: {add_up(read_orders(where))}")
