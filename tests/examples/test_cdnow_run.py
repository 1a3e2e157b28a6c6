"""`make run` in small: its children killed for real, its report, its refusals, its ends."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from examples.cdnow.data import prepare_orders
from examples.running.wheels import ROOT
from tests.parts import wait_until

pytestmark = pytest.mark.timeout(600)
STAND_IN = "tests.examples.shop_stand_in"
NATIVE = [f"--server={STAND_IN}", "--no-pipeline"]
ODD = (
    '"a,""b""","c [red]x[/]",1998-12-31,0,-3.50\n'
    "\u00fc-2,\\N,1999-01-02,999999999,999999999999.99\n"
)
SMALL = 500
LIMIT_S = 560
"""Of one run; with Spark it takes half a minute on two idle cores."""
PATIENT = "--limit-s=500"
ONE_EACH = [PATIENT, "--client-kills=1", "--driver-kills=1", "--postmaster-kills=1"]
NO_KILLS = ["--client-kills=0", "--driver-kills=0", "--postmaster-kills=0"]


@pytest.fixture
def orders(tmp_path: Path) -> Path:
    """The first orders of the data set, and two whose texts and numbers are hard to carry."""
    path = tmp_path / "small.csv"
    lines = prepare_orders().read_text().splitlines(keepends=True)
    path.write_text("".join([*lines[: SMALL - 1], ODD]), encoding="utf-8")
    return path


def command(tmp_path: Path, *arguments: str) -> list[str]:
    runs = f"--runs={tmp_path / 'runs'}"
    return [sys.executable, "examples/cdnow/run.py", "--clients=2", runs, *arguments]


def environment(**given: str) -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(ROOT / "src"), "SEED": "5", "JSON": "1", **given}


def ran(tmp_path: Path, *arguments: str, **given: str) -> tuple[int, dict[str, Any], str]:
    """Runs to its end: exit code, report, what was shown."""
    done = subprocess.run(
        command(tmp_path, *arguments),
        cwd=ROOT,
        env=environment(**given),
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=False,
    )
    return done.returncode, json.loads(done.stdout or "{}"), done.stderr


def test_with_spark_and_a_kill_of_each_kind(tmp_path: Path, orders: Path) -> None:
    code, report, shown = ran(tmp_path, *ONE_EACH, ORDERS=str(orders))
    assert code == 0, shown
    assert (report["orders"], report["executed_once"], report["receipts"]) == (500, 500, 500)
    assert (report["lost"], report["doubled"], report["mismatches"]) == (0, 0, [])
    assert report["crashes_survived"] == {"spark_driver": 1, "client": 1, "postmaster": 1}
    assert "kill -9 postmaster" in shown
    pipeline = report["pipeline"]
    assert (pipeline["archived"], pipeline["violations"]) == (500, 0)
    for page in ("audit", "report"):
        assert "<svg" in Path(pipeline[page]).read_text(encoding="utf-8")


def test_with_a_native_server_and_two_kills_of_each_kind(tmp_path: Path, orders: Path) -> None:
    (tmp_path / "runs").mkdir()
    (tmp_path / "runs" / "behaviour").write_text("6")
    code, report, shown = ran(tmp_path, PATIENT, *NATIVE, ORDERS=str(orders))
    assert code == 0, shown
    assert report["receipts"] == 500
    assert report["crashes_survived"] == {"spark_driver": 2, "client": 2, "postmaster": 2}
    assert all(kill["recovery_s"] is not None for kill in report["kills"])


def test_a_careless_server_is_found_out(tmp_path: Path, orders: Path) -> None:
    (tmp_path / "runs").mkdir()
    (tmp_path / "runs" / "behaviour").write_text("careless")
    code, report, _ = ran(tmp_path, *NATIVE, *NO_KILLS, ORDERS=str(orders))
    assert code == 1
    assert report["ok"] is False
    assert (report["lost"], report["doubled"], report["receipts"]) == (1, 1, 500)
    found = {one["what"]: one["rids"] for one in report["mismatches"]}
    assert found["doubled: booked more than once"] == ["7"]
    assert found["lost: sent, and not booked"] == ["8"]
    assert found["booked otherwise than ordered"] == ["9"]
    assert report["dollars"]["booked"] != report["dollars"]["file"]


def test_a_run_without_a_server_ends_at_its_limit(tmp_path: Path, orders: Path) -> None:
    arguments = ["--server=tests.examples.no_such_server", "--limit-s=3", *NO_KILLS]
    code, report, _ = ran(tmp_path, *arguments, ORDERS=str(orders))
    assert code == 1
    assert report["cut_short"]
    assert report["lost"] == 500


def test_orders_without_a_column_are_refused(tmp_path: Path) -> None:
    (tmp_path / "bad.csv").write_text("order_id,customer_id,date,quantity\n1,c,1997-01-01,1\n")
    code, report, shown = ran(tmp_path, ORDERS=str(tmp_path / "bad.csv"))
    assert (code, report) == (2, {})
    assert "the header lacks amount" in shown


def test_a_file_without_orders_is_refused(tmp_path: Path) -> None:
    (tmp_path / "none.csv").write_text("order_id,customer_id,date,quantity,amount\n")
    code, _, shown = ran(tmp_path, ORDERS=str(tmp_path / "none.csv"))
    assert code == 2
    assert "there is no order in it" in shown


def alive(root: str) -> list[str]:
    """The command lines of processes that have this directory in them."""
    listed = subprocess.run(["ps", "-eo", "args"], capture_output=True, text=True, check=True)
    return [line for line in listed.stdout.splitlines() if root in line]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_an_ended_runner_leaves_nothing_running(
    tmp_path: Path, orders: Path, number: signal.Signals
) -> None:
    arguments = [*NATIVE, *NO_KILLS]
    process = subprocess.Popen(
        command(tmp_path, *arguments),
        cwd=ROOT,
        env=environment(ORDERS=str(orders)),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
    )
    receipts = "*/clients/*/receipts.jsonl"
    wait_until(lambda: any(p.stat().st_size for p in (tmp_path / "runs").glob(receipts)), 150)
    process.send_signal(number)
    _, shown = process.communicate(timeout=150)
    assert process.returncode == (130 if number is signal.SIGINT else -number), shown
    wait_until(lambda: not alive(str(tmp_path / "runs")))
    (kept,) = (tmp_path / "runs").glob("*-seed5-*")
    code, _, shown_next = ran(tmp_path, *arguments, ORDERS=str(orders))
    assert code == 0
    assert str(kept) in shown_next
    assert kept.exists()
