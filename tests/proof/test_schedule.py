"""Parts run two abreast, the longest first, and one that must be alone runs beside nobody."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from proof.part import Limits, Size
from proof.running import Terms
from proof.schedule import ABREAST, run_all
from tests.proof.tiny_parts import PARTS

if TYPE_CHECKING:
    from proof.part import Part
    from proof.running import Result, Running

TABLE = "tests.proof.tiny_parts:PARTS"


class Seen:
    """Notes which parts run at the same time."""

    def __init__(self) -> None:
        self.begun: list[str] = []
        self.abreast: dict[str, int] = {}
        self.together: list[set[str]] = []
        self._running: set[str] = set()

    def began(self, part: Part) -> None:
        self.begun.append(part.name)
        self._running.add(part.name)
        self.together.append(set(self._running))
        for name in self._running:
            self.abreast[name] = max(len(self._running), self.abreast.get(name, 0))

    def went_on(self, running: Running) -> None:
        assert running.part.name in self._running

    def ended(self, result: Result) -> None:
        self._running.remove(result.part.name)


def test_of_those_on_spark_one_runs_at_a_time_and_first_and_the_lone_one_last() -> None:
    by_name = {part.name: part for part in PARTS}
    parts = [
        by_name["good"],
        by_name["missed"],
        replace(by_name["violation"], on_spark=True),
        replace(by_name["blind"], on_spark=True),
        replace(by_name["silent"], on_spark=True),
    ]
    seen = Seen()
    results = run_all(parts, Terms(size=Size.PROOF, seed=1, table=TABLE), seen)
    assert [result.part.name for result in results] == [part.name for part in parts]
    assert seen.begun == ["violation", "missed", "blind", "silent", "good"]
    assert all(len(one & {"violation", "blind", "silent"}) <= 1 for one in seen.together)
    assert seen.abreast["good"] == 1


def test_the_longest_begin_first_two_abreast_and_the_lone_one_last() -> None:
    by_name = {part.name: part for part in PARTS}
    longest = replace(by_name["missed"], limits=Limits(proof_s=600.0))
    parts = [by_name["good"], by_name["violation"], by_name["blind"], longest]
    seen = Seen()
    results = run_all(parts, Terms(size=Size.PROOF, seed=1, table=TABLE), seen)
    assert [result.part.name for result in results] == ["good", "violation", "blind", "missed"]
    assert seen.begun == ["missed", "violation", "blind", "good"]
    assert seen.abreast["good"] == 1
    assert seen.abreast["missed"] == ABREAST
