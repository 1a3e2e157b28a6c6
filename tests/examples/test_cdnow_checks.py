"""The comparison of the five witnesses, the report, the schedule and the receipts file."""

from __future__ import annotations

import dataclasses
import datetime as dt
import io
import json
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pytest
from rich.console import Console

from examples.cdnow.checks import Evidence, Mismatch, Place, Total, judge
from examples.cdnow.client import ReceiptsFile
from examples.cdnow.data import Order
from examples.cdnow.faults import CLIENT, DRIVER, KINDS, POSTMASTER, Struck, draw_schedule
from examples.cdnow.options import parse
from examples.cdnow.report import Facts, as_object, as_tables, exit_code, read_receipts
from examples.cdnow.shop import Receipt, Recorded
from onceq import errors

if TYPE_CHECKING:
    from pathlib import Path


def order(n: int, amount: str = "10.10") -> Order:
    return Order(
        order_id=str(n),
        customer_id=f"c{n % 3}",
        date=dt.date(1997, 1, n),
        quantity=n,
        amount=Decimal(amount),
    )


def recorded(one: Order) -> Recorded:
    return Recorded(one.order_id, Receipt(one.order_id, one.customer_id, one.amount))


ORDERS = [order(n) for n in range(1, 13)]
GOOD = Evidence(
    orders=ORDERS,
    booked=ORDERS[::-1],
    totals=[Total(f"c{n}", 4, Decimal("40.40")) for n in range(3)],
    places=[Place(one.order_id, "finished", "done") for one in ORDERS],
    receipts=[recorded(one) for one in ORDERS],
)
FACTS = Facts(
    seed=3,
    source="orders.csv",
    directory="/run",
    phases_s={"work": 2.0},
    sending_s=2.0,
    latencies_s={"p50": 0.5},
    struck=(Struck(kind=CLIENT, target="till-1", at_s=1.0, booked=5, recovery_s=0.25),),
    missed=(),
)


def named(**changes: Any) -> dict[str, tuple[str, ...]]:
    """What is found wrong after these changes, all of which must show in the report."""
    verdict = judge(dataclasses.replace(GOOD, **changes))
    found = {one.what: one.rids for one in verdict.mismatches}
    assert exit_code(FACTS, verdict) == (1 if found else 0)
    report = as_object(FACTS, verdict)
    assert report["ok"] is not bool(found)
    assert {one["what"]: tuple(one["rids"]) for one in report["mismatches"]} == found
    text = printed(verdict)
    for what, rids in found.items():
        assert what in text
        assert ", ".join(rids) in text
    return found


def printed(verdict: Any) -> str:
    console = Console(file=io.StringIO(), width=300)
    for part in as_tables(FACTS, verdict):
        console.print(part)
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def test_nothing_is_wrong_when_all_agree() -> None:
    verdict = judge(GOOD)
    assert named() == {}
    assert (verdict.orders, verdict.customers, verdict.requests_sent) == (12, 3, 12)
    assert (verdict.executed_once, verdict.lost, verdict.doubled, verdict.receipts) == (
        12,
        0,
        0,
        12,
    )
    assert set(verdict.dollars.values()) == {Decimal("121.20")}
    assert "Everything agrees" in printed(verdict)


def test_the_object_for_programs() -> None:
    report = as_object(FACTS, judge(GOOD))
    assert json.loads(json.dumps(report)) == report
    assert next(iter(report)) == "v"
    assert report["v"] == 1
    assert report["dollars"]["booked"] == "121.20"
    assert report["requests_per_second"] == 6.0
    assert report["crashes_survived"] == {"spark_driver": 0, "client": 1, "postmaster": 0}
    assert report["kills"][0]["recovery_s"] == 0.25


def test_a_lost_order_is_named() -> None:
    found = named(booked=ORDERS[:6] + ORDERS[7:])
    assert found["lost: sent, and not booked"] == ("7",)
    assert judge(dataclasses.replace(GOOD, booked=ORDERS[:6] + ORDERS[7:])).lost == 1


def test_a_doubled_order_is_named() -> None:
    booked = [*ORDERS, ORDERS[2], ORDERS[10]]
    found = named(booked=booked)
    assert found["doubled: booked more than once"] == ("3", "11")
    assert judge(dataclasses.replace(GOOD, booked=booked)).doubled == 2
    assert judge(dataclasses.replace(GOOD, booked=booked)).executed_once == 10


def test_wrong_dollars_are_named() -> None:
    booked = [*ORDERS[:-1], order(12, "10.11")]
    found = named(booked=booked)
    assert found == {
        "booked otherwise than ordered": ("12",),
        "the dollars of booked, 121.21, are not the file's": (),
    }


def test_a_wrong_total_names_its_customers_orders() -> None:
    totals = [Total("c0", 4, Decimal("40.40")), Total("c1", 5, Decimal("40.40"))]
    found = named(totals=[*totals, Total("c2", 4, Decimal("40.40"))])
    assert found == {"of a customer whose total is wrong": ("1", "4", "7", "10")}
    found = named(totals=totals[:1])
    assert "2" in found["of a customer whose total is wrong"]


def test_a_total_of_nobody_is_named() -> None:
    verdict = judge(dataclasses.replace(GOOD, totals=[*GOOD.totals, Total("x", 1, Decimal(0))]))
    expected = Mismatch("totals of customers who are not in the file", (), ("x",))
    assert verdict.mismatches == (expected,)
    assert "x" in str(expected)


def test_receipts_are_counted_in_the_files() -> None:
    receipts = list(GOOD.receipts)
    assert named(receipts=receipts[1:])["without a receipt"] == ("1",)
    assert named(receipts=[*receipts, receipts[4]])["with more than one receipt"] == ("5",)
    wrong = Recorded("5", Receipt("5", "c2", Decimal("10.00")))
    found = named(receipts=[*receipts[:4], wrong, *receipts[5:]])
    assert found["with a wrong receipt"] == ("5",)
    found = named(receipts=[*receipts[:4], Recorded("5", failed="handler: no"), *receipts[5:]])
    assert found["with a wrong receipt"] == ("5",)


def test_what_the_history_says_is_compared_too() -> None:
    places = list(GOOD.places)
    assert named(places=places[1:])["not finished, says the history"] == ("1",)
    twice = "finished more than once, says the history"
    assert named(places=[*places, places[3]])[twice] == ("4",)
    failed = "finished, but failed, says the history"
    assert named(places=[*places[:-1], Place("12", "finished", "failed")])[failed] == ("12",)
    foreign = [*places, Place("99", "finished", "done")]
    assert named(places=foreign)["finished, and not in the file, says the history"] == ("99",)
    waiting = [*places, Place("1", "replied", "done")]
    assert named(places=waiting)["still in a queue"] == ("1",)


def test_ids_that_look_like_markup_are_printed() -> None:
    booked = [*ORDERS, dataclasses.replace(order(1), order_id="[red]a[/]")]
    assert named(booked=booked)["booked, and not in the file"] == ("[red]a[/]",)


def test_a_run_cut_short_is_not_all_right() -> None:
    facts = dataclasses.replace(FACTS, cut_short="not all was done after 3 s")
    assert exit_code(facts, judge(GOOD)) == 1
    assert as_object(facts, judge(GOOD))["cut_short"] == "not all was done after 3 s"


@pytest.mark.parametrize("seed", range(20))
def test_a_schedule_is_its_seeds(seed: int) -> None:
    kills = {DRIVER: 2, CLIENT: 3, POSTMASTER: 1}
    schedule = draw_schedule(seed, kills, 0.5)
    assert schedule == draw_schedule(seed, kills, 0.5)
    assert schedule != draw_schedule(seed + 1, kills, 0.5)
    assert {kind: sum(s.kind == kind for s in schedule) for kind in KINDS} == kills
    assert {strike.kind for strike in schedule[:3]} == set(KINDS)
    shares = [strike.share for strike in schedule]
    assert shares == sorted(shares)
    assert 0.04 <= shares[0] <= shares[-1] <= 0.80
    assert all(0 <= strike.delay_s <= 0.5 for strike in schedule)


def test_a_receipts_file_goes_on_at_its_checkpoint(tmp_path: Path) -> None:
    path = tmp_path / "receipts.jsonl"
    first, second, third = (recorded(one) for one in ORDERS[:3])
    with ReceiptsFile(path, None) as file:
        checkpoint = file.append([first])
        file.append([second])  # written, and its acknowledgement never came
    with ReceiptsFile(path, checkpoint) as file:
        assert file.lines == 1
        file.append([second, third])
        assert file.lines == 3
    assert list(read_receipts([path, tmp_path / "none"])) == [first, second, third]
    with ReceiptsFile(path, None) as file:
        assert file.lines == 0
    assert path.read_bytes() == b""


def test_a_receipts_file_that_lost_its_end_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "receipts.jsonl"
    path.write_bytes(b"{}\n")
    with pytest.raises(errors.FileMismatch, match="3 bytes, and 100 were acknowledged"):
        ReceiptsFile(path, b"100")


def test_options_come_from_arguments_then_the_environment() -> None:
    options = parse([], {"SEED": "7", "ORDERS": "a.csv", "JSON": "1"})
    assert (options.seed, str(options.orders), options.json) == (7, "a.csv", True)
    assert options.kills == {DRIVER: 2, CLIENT: 2, POSTMASTER: 2}
    options = parse(["--seed", "8", "--client-kills", "0"], {"SEED": "7", "ORDERS": "", "JSON": ""})
    assert (options.seed, options.orders, options.json) == (8, None, False)
    assert options.kills[CLIENT] == 0
    assert 0 <= parse([], {}).seed < 65_536


@pytest.mark.parametrize("arguments", [["--seed", "x"], ["--clients", "0"], ["--nothing"]])
def test_a_bad_argument_is_usage(arguments: list[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        parse(arguments, {})
    assert ended.value.code == 2
