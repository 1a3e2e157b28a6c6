"""`make exchange` in little: without kills, and without Spark; and what its checks notice."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import replace
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from msgspec.structs import replace as replaced

from examples.exchange import evidence, faults
from examples.exchange.checks import Evidence, Read, Sums, Told, judge
from examples.exchange.contents import Kept, digest
from examples.exchange.data import Bar
from examples.exchange.database import Booked, Total
from examples.exchange.market import FEEDS, LOW_FEED, SESSIONS, Move, RunDirectory, Taped, move_of
from examples.exchange.options import parse
from examples.running.wheels import ROOT
from onceq.streams.bridge.moving import hexed

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

LIMIT_S = 240


@pytest.mark.timeout(LIMIT_S + 60)
def test_a_few_bars_take_every_way(tmp_path: Path) -> None:
    command = [sys.executable, "examples/exchange/run.py", "--seed", "1", "--json", "--bars", "300"]
    command += ["--rate", "300", "--kills", "0", "--least-kills", "0", "--no-unpaced", "--no-spark"]
    command += ["--limit-s", "150", "--runs", str(tmp_path)]
    ran = subprocess.run(
        command,
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT / "src")},
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=False,
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    told = json.loads(ran.stdout)
    (report,) = told["runs"]
    assert told["ok"]
    found = report["found"]
    assert found["bars booked exactly once"] == {"found": "600", "expected": "600"}
    assert report["mismatches"] == {}
    assert report["ended_unasked"] == []
    for what in ("bars sent", "bars stable"):
        assert found[what] == {"found": "600", "expected": "600"}
    for what in ("lost", "doubled", "gaps", "phantoms"):
        assert found[what] == {"found": "0", "expected": "0"}
    moves = {
        where: found[f"moves in the {where}"]["found"] for where in ("ledger", "topic", "file")
    }
    assert len(set(moves.values())) == 1, moves
    assert (report["kills"], report["failures"]) == (0, [])
    assert report["stable_s"]["p50"] > 0
    assert report["bars_per_s"] > 0
    assert found["stores that have the same"] == {"found": "3", "expected": "3"}
    assert int(found["moves in the file"]["found"]) > 0


def bar(number: int, close: str = "11") -> Bar:
    given: dict[str, Any] = {"open": "10", "high": "12", "low": "9", "value": str(number)}
    return Bar(day=f"2010-01-{number + 1:02}", symbol="A", close=close, **given)


BARS = [bar(0), bar(1, "10"), bar(2)]


BARS_OF_LOW = ("bars", SESSIONS[LOW_FEED])
MOVES_SENT = ("moves", SESSIONS["relay"])
KEPT = Kept(begin=0, end=3, bodies=digest(map(msgspec.json.encode, BARS)), epochs="1 1 1")


def right() -> Evidence:
    """What all witnesses say when all is well."""
    moves: list[tuple[int, Move]] = []
    for one in BARS:
        if (move := move_of(one)) is not None:
            moves.append((len(moves), move))
    close, value = sum(Decimal(one.close) for one in BARS), sum(Decimal(one.value) for one in BARS)
    return Evidence(
        bars={LOW_FEED: BARS},
        told=Told({LOW_FEED: 3}, {LOW_FEED: 3}),
        booked=[
            Booked(LOW_FEED, n, b.day, "A", Decimal(b.close), Decimal(b.value), n != 1)
            for n, b in enumerate(BARS)
        ],
        totals=[Total("A", 3, Decimal(close), Decimal(value))],
        moves={"finished": 2},
        filed=moves,
        tapes=[[Taped(LOW_FEED, 7, 1, n, b.day, "A") for n, b in enumerate(BARS)]],
        kept={store: {BARS_OF_LOW: KEPT} for store in faults.STORES},
        damaged=dict.fromkeys(faults.STORES, 0),
        read=[Read(LOW_FEED, 7, 1, n, b.day, "A") for n, b in enumerate(BARS)],
        topic=moves,
        spark=Sums(3, Decimal(close), Decimal(value)),
    )


def test_what_agrees_agrees() -> None:
    assert judge(right()).agrees


def stores(changed: Mapping[str, Kept]) -> dict[str, Any]:
    """What stores have, with that of some changed."""
    found = {name: {BARS_OF_LOW: kept} for name, kept in changed.items()}
    return {"kept": {**right().kept, **found}}


def unread(**changed: Any) -> Evidence:
    """What witnesses say of a run that Spark does not read, as the unpaced one."""
    moves = Kept(begin=0, end=3, bodies="", epochs="", voids=((1, 2),))
    kept = {store: {BARS_OF_LOW: KEPT, MOVES_SENT: moves} for store in faults.STORES}
    given: dict[str, Any] = {"kept": kept, "read": None, "topic": None, "spark": None, **changed}
    return replace(right(), **given)


def rows(of: Evidence) -> dict[str, tuple[object, object]]:
    return {what: (found, wanted) for what, found, wanted in judge(of).rows}


def test_a_run_that_spark_does_not_read_has_what_was_sent_stable_and_in_the_topic() -> None:
    assert judge(unread()).agrees
    found = rows(unread())
    assert (found["bars sent"], found["bars stable"]) == ((3, 3), (3, 3))
    assert (found["gaps"], found["phantoms"]) == ((0, 0), (0, 0))
    assert found["moves in the topic"] == (2, 2)


def test_a_gap_is_found_without_spark() -> None:
    with_void = replaced(KEPT, voids=((1, 2),))
    in_one, in_all = (
        {
            store: {BARS_OF_LOW: with_void if n < many else KEPT}
            for n, store in enumerate(faults.STORES)
        }
        for many in (1, 3)
    )
    assert rows(unread(kept=in_one))["gaps"] == (0, 0)
    assert rows(unread(kept=in_all))["gaps"] == (1, 0)
    names = {one.what: one.names for one in judge(unread(kept=in_all)).mismatches}
    assert names["gaps: sent, and not in the stream"] == (str((LOW_FEED, 1)),)
    assert rows(unread(kept={}))["moves in the topic"] == (0, 2)


WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "lost": ({"booked": right().booked[:2]}, "lost"),
    "doubled": ({"booked": [*right().booked, right().booked[0]]}, "doubled"),
    "phantom": (
        {"booked": [*right().booked, right().booked[0]._replace(number=9)]},
        "phantoms: booked or in the stream",
    ),
    "altered": (
        {"booked": [right().booked[0]._replace(close=Decimal(5)), *right().booked[1:]]},
        "otherwise than sent",
    ),
    "total": ({"totals": []}, "wrong total"),
    "move lost": ({"filed": right().filed[:1]}, "the file lacks"),
    "move twice": ({"filed": [*right().filed, right().filed[0]]}, "the file has too often"),
    "phantom in the stream": (
        {"read": [*list(right().read or []), Read(LOW_FEED, 7, 1, 9, "2010-01-09", "A")]},
        "phantoms: booked or in the stream",
    ),
    "not sent": ({"told": Told({LOW_FEED: 2}, {LOW_FEED: 3})}, "no feed says are sent"),
    "not stable": ({"told": Told({LOW_FEED: 3}, {LOW_FEED: 2})}, "no feed says are stable"),
    "too much sent": ({"told": Told({LOW_FEED: 4}, {LOW_FEED: 3})}, "more is sent than"),
    "topic": ({"topic": []}, "the topic lacks"),
    "gap": ({"read": list(right().read or [])[1:]}, "gaps"),
    "tape": ({"tapes": [right().tapes[0][1:]]}, "on no tape"),
    "tape falls": ({"tapes": [right().tapes[0], right().tapes[0][::-1]]}, "does not ascend"),
    "taped otherwise": (
        {"tapes": [[replaced(one, symbol="B") for one in right().tapes[0]]]},
        "on a tape otherwise",
    ),
    "a store lacks some": (
        stores({"store-2": replaced(KEPT, end=2)}),
        "something else than store-1",
    ),
    "a store has another epoch": (stores({"store-3": replaced(KEPT, epochs="")}), "something else"),
    "all stores have something else": (
        stores(dict.fromkeys(faults.STORES, replaced(KEPT, bodies=digest([])))),
        "otherwise than sent",
    ),
    "a store is not there": ({"kept": {}}, "something else"),
    "damage": ({"damaged": {**right().damaged, "store-3": 1}}, "damage"),
    "nobody looked": ({"damaged": {**right().damaged, "store-3": -1}}, "damage"),
}


@pytest.mark.parametrize("case", WRONG)
def test_what_is_wrong_is_named(case: str) -> None:
    changed, says = WRONG[case]
    verdict = judge(replace(right(), **changed))
    assert not verdict.agrees
    assert any(says in one.what for one in verdict.mismatches), verdict.mismatches


def test_what_spark_has_read_is_found_on_the_tapes(tmp_path: Path) -> None:
    """Spark writes the id of a stream in hexadecimal, and a tape as a number."""
    directory = RunDirectory(tmp_path)
    taped = Taped(LOW_FEED, 0xFEDCBA9876543210, 2, 5, "2010-01-04", "A")
    row = {**msgspec.structs.asdict(taped), "stream": hexed(taped.stream)}
    directory.read.mkdir()
    pq.write_table(pa.Table.from_pylist([row]), directory.read / "bars")
    pq.write_table(pa.table({"number": [], "body": []}), directory.read / "moves")
    sums = {"bars": "1", "close": "2", "value": "3"}
    (directory.read / "sums.json").write_bytes(msgspec.json.encode(sums))
    read = evidence.read_by_spark(directory)
    assert read is not None
    assert read[0] == [Read(LOW_FEED, taped.stream, 2, 5, "2010-01-04", "A")]
    verdict = judge(replace(right(), read=read[0], tapes=[[taped]]))
    assert "stable, and on no tape" not in {one.what for one in verdict.mismatches}


def test_a_seed_names_a_schedule_with_every_part_in_it() -> None:
    strikes = faults.draw_schedule(7)
    assert strikes == faults.draw_schedule(7) != faults.draw_schedule(8)
    killed = [one.target for one in strikes if one.deed is faults.Deed.KILL]
    assert sorted(killed) == sorted(2 * faults.TARGETS)
    assert {one.deed for one in strikes} == set(faults.Deed)
    assert len(strikes) >= 20
    assert [one.share for one in strikes] == sorted(one.share for one in strikes)


@pytest.mark.parametrize(
    "arguments", [["--seed", "x"], ["--rate", "0"], ["--bars", "0"], ["--least-kills", "-1"]]
)
def test_arguments_that_cannot_be_are_refused(arguments: list[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        parse(arguments, {})
    assert caught.value.code == 2


def test_feeds_are_struck_while_they_have_much_left_to_send() -> None:
    for seed in range(200):
        strikes = faults.draw_schedule(seed)
        of_feeds = [one.share for one in strikes if one.target in FEEDS]
        assert len(of_feeds) > 2 * len(FEEDS)
        assert max(of_feeds) < 0.6
        assert strikes[-1].share > 0.7
