"""The questions about streams: each has all of its results, and what was not tried is not met."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from bench import stream_latency, stream_profile, stream_sizes
from bench.__main__ import GROUPS, chosen, parsed
from bench.pairs import Pace
from bench.results import Side, Slice
from bench.rows import expected
from bench.scene import Scene
from bench.stream_cases import ROUNDS, STREAM_CASES
from bench.systems import UnmeasuredError
from bench.workers import base as workers

if TYPE_CHECKING:
    from pathlib import Path

    from bench.results import Result

NUMBER = 1_000
ABSENT = UnmeasuredError("not tried: not installed", skipped=True)


class Told:
    def __init__(self) -> None:
        self.results: list[Result] = []

    def started(self, what: str) -> None:
        """Something begins."""

    def found(self, result: Result) -> None:
        self.results.append(result)


def test_streams_are_all_that_is_asked_of_them() -> None:
    names = chosen(parsed(["streams"]))[0]
    assert names == [*expected(STREAM_CASES), *stream_latency.NAMES, *stream_sizes.NAMES]
    assert set(GROUPS["streams"]) >= {case.name for case in STREAM_CASES}
    assert "send-1/raw-safe" not in names


def test_streams_are_measured_in_nine_rounds_unless_one_says_otherwise() -> None:
    assert {case.rounds for case in STREAM_CASES} == {ROUNDS} == {9}
    assert Pace().of(ROUNDS).rounds == ROUNDS
    assert Pace().of(None) == Pace()
    assert Pace(rounds=3, is_asked=True).of(ROUNDS).rounds == 3


def side(name: str, p50_us: float, p99_us: float) -> Side:
    one = Slice(number=1, seconds=1.0, p50_us=p50_us, p99_us=p99_us)
    return Side(name=name, slices=(one, one))


def test_latencies_are_those_of_their_sides_round_by_round() -> None:
    sides = {
        "received": side("ours", 200.0, 900.0),
        "stable": side("ours", 1_000.0, 3_000.0),
        "disk": side("file", 100.0, 1_000.0),
        "nats": side("theirs", 4_000.0, 9_000.0),
    }
    reasons = {"nats-safe": ABSENT}
    found = {row.name: stream_latency.found(row, sides, reasons) for row in stream_latency.ROWS}
    values = {name.partition("/")[2]: one.value for name, one in found.items()}
    assert values == {
        "received": pytest.approx(0.2),
        "stable": pytest.approx(1.0),
        "stable-p99": pytest.approx(3.0),
        "tail": pytest.approx(3.0),
        "nats-safe": None,
        "nats": pytest.approx(0.25),
    }
    assert found["stream-paced/received"].met
    assert not found["stream-paced/tail"].met


def test_what_was_not_tried_says_so_and_is_neither_met_nor_missed() -> None:
    reasons = dict.fromkeys(stream_latency.SIDES, ABSENT)
    for row in stream_latency.ROWS:
        result = stream_latency.found(row, {}, reasons)
        assert (result.met, result.skipped, result.error) == (None, "not tried: not installed", "")


def test_memory_and_restarts_have_values(tmp_path: Path) -> None:
    told, pace = Told(), Pace(rounds=1, is_asked=True)
    scale = NUMBER / stream_sizes.FULL
    scene = Scene(directory=tmp_path, logs=tmp_path, pace=pace, scale=scale, told=told)
    stream_sizes.run(scene)
    assert tuple(one.name for one in told.results) == stream_sizes.NAMES
    assert all(one.value is not None and one.value > 0 for one in told.results)
    assert {one.target is None for one in told.results} == {False}


@pytest.mark.parametrize(
    "sent", [workers.Publish(number=NUMBER), workers.Pace(number=NUMBER)], ids=["flight", "paced"]
)
def test_a_profile_says_what_a_message_costs_at_each(
    sent: workers.Publish | workers.Pace,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(stream_profile, "WARM_UP", 100)
    assert stream_profile.report(sent, as_json=True) == 0
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    costs = {one["scenario"]: one for one in lines}
    assert set(costs) == {"stream-source", "stream-store", "stream-receiver"}
    assert all(one["calls"] > 0 for one in costs.values())
