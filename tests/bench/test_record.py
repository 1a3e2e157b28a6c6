"""The comparison with the record: what moved is said, and noise is not taken for it."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from bench import report
from bench.__main__ import parsed
from bench.record import Recorded, lost, moved, of_machine, read, recordable, write
from bench.results import Result

if TYPE_CHECKING:
    from pathlib import Path

    from bench.results import Better

QUIET = Recorded(value=1.00, low=0.99, high=1.01)
NOISY = Recorded(value=1.00, low=0.80, high=1.30)


def ratio(*rounds: float, name: str = "a/b", better: Better = "more") -> Result:
    return Result(name=name, question="?", rounds=rounds, better=better)


@pytest.mark.parametrize(
    ("recorded", "now", "expected"),
    [
        (QUIET, 1.04, "unchanged"),
        (QUIET, 0.96, "unchanged"),
        (QUIET, 0.94, "slower"),
        (QUIET, 1.06, "faster"),
        (NOISY, 0.60, "unchanged"),
        (NOISY, 0.49, "slower"),
        (NOISY, 1.51, "faster"),
    ],
)
def test_a_ratio_moves_when_it_leaves_the_recorded_spread(
    recorded: Recorded, now: float, expected: str
) -> None:
    assert moved(ratio(now), {"a/b": recorded}) == expected


def test_the_median_counts_and_not_a_round() -> None:
    assert moved(ratio(0.2, 1.0, 1.01), {"a/b": QUIET}) == "unchanged"


def test_of_what_should_be_small_more_is_slower() -> None:
    flat = Recorded(value=1.0, low=0.98, high=1.02, better="less")
    assert moved(ratio(1.2, better="less"), {"a/b": flat}) == "slower"
    assert moved(ratio(0.8, better="less"), {"a/b": flat}) == "faster"


def test_no_pair_is_trusted_to_less_than_five_percent() -> None:
    still = Recorded(value=4.0, low=4.0, high=4.0)
    assert still.tolerance == pytest.approx(0.2)
    assert moved(ratio(3.81), {"a/b": still}) == "unchanged"


def test_what_was_never_recorded_is_new() -> None:
    assert moved(ratio(1.0), {}) == "new"


def rate(*rounds: float) -> Result:
    return Result(name="spark/rate", question="?", unit="/s", rounds=rounds)


@pytest.mark.parametrize(
    ("now", "expected"), [(17_720.0, "slower"), (22_500.0, "unchanged"), (34_000.0, "faster")]
)
def test_a_rate_that_fell_on_the_machine_it_was_recorded_on_is_seen(
    now: float, expected: str
) -> None:
    recorded = recordable([rate(27_000.0, 27_300.0, 27_900.0)], "this machine")
    assert moved(rate(now), of_machine(recorded, "this machine")) == expected
    assert moved(rate(now), of_machine(recorded, "another")) == "new"


def test_a_rate_is_recorded_for_each_machine_beside_the_ratios(tmp_path: Path) -> None:
    path = tmp_path / "recorded.json"
    write(recordable([rate(1000.0), ratio(1.0)], "one", "abc"), path)
    write(recordable([rate(2000.0)], "other", "abc"), path)
    values = {
        machine: {name: one.value for name, one in of_machine(read(path), machine).items()}
        for machine in ("one", "other")
    }
    assert values == {
        "one": {"a/b": 1.0, "spark/rate": 1000.0},
        "other": {"a/b": 1.0, "spark/rate": 2000.0},
    }
    assert {one.revision for one in read(path).values()} == {"abc"}


def test_what_has_no_value_is_neither_compared_nor_recorded() -> None:
    skipped = Result(name="a/b", question="?", skipped="not here")
    assert moved(skipped, {"a/b": QUIET}) is None
    assert recordable([skipped]) == {}


def test_a_changed_tree_is_not_recorded(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(report, "changes", lambda: [" M bench/record.py"])
    with pytest.raises(SystemExit):
        parsed(["--record"])
    assert "the tree is changed (1 files)" in capsys.readouterr().err


def test_the_machine_is_told_by_what_makes_it_fast() -> None:
    said = report.fingerprint()
    assert f"{os.cpu_count()} x " in said
    assert "PostgreSQL" in said
    assert said == report.fingerprint()


def test_what_was_recorded_and_has_no_value_now_is_lost() -> None:
    results = [ratio(1.0), Result(name="a/c", question="?", error="it ended")]
    recorded = {"a/b": QUIET, "a/c": QUIET, "a/d": QUIET}
    assert lost(["a/b", "a/c"], results, recorded) == ["a/c"]


def test_a_record_is_read_as_it_was_written(tmp_path: Path) -> None:
    path = tmp_path / "recorded.json"
    assert read(path) == {}
    write(recordable([ratio(0.9, 1.0, 1.2)]), path)
    assert read(path) == {"a/b": Recorded(value=1.0, low=0.9, high=1.2)}


def test_recording_some_keeps_the_others(tmp_path: Path) -> None:
    path = tmp_path / "recorded.json"
    write(recordable([ratio(1.0), ratio(2.0, name="a/c")]), path)
    write(recordable([ratio(3.0)]), path)
    assert {name: one.value for name, one in read(path).items()} == {"a/b": 3.0, "a/c": 2.0}
