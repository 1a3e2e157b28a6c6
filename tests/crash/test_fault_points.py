"""Every fault point, once: a process dies there, all is started again, and nothing is lost.

The small size of the proof's part, which also has the other faults, and every occurrence.
"""

from __future__ import annotations

import dataclasses
import random
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from onceq.engine.faultpoints import POINTS
from proof import faultpoints, goals
from proof.fault_ground import CUTS, FAULTS, REVOKE, Ground, Trial, Verdict
from proof.fault_programs import PROGRAMS
from proof.fault_scenes import SCENES
from proof.faultpoints import ELSEWHERE
from proof.harness.processes import start
from proof.part import Size
from proof.pipelinepoints import part as pipelines
from proof.sparkpoints import part
from tests.small import small
from tests.streams.bridge.test_killed import OF_INTO, OF_RELAY

if TYPE_CHECKING:
    from collections.abc import Iterator
    from multiprocessing.process import BaseProcess

OTHER_LEDGERS = {"ledger_in_sqlite", "ledger_in_the_database", "ledger_in_a_queue"}
"""Their points are those of a ledger in another database, which has more."""


def _said(text: str, done: int, of: int) -> None:
    assert text
    assert 0 < done <= of


@pytest.mark.timeout(400)
def test_a_death_at_every_point_loses_nothing(tmp_path: Path) -> None:
    reached = small(faultpoints.PART, tmp_path, say=_said)
    assert reached[goals.FAULT_POINTS] == len(POINTS) - len(ELSEWHERE)


@pytest.fixture(scope="module")
def ground() -> Iterator[Ground]:
    with Ground() as made:
        yield made


def test_two_threads_that_ask_how_a_process_ended_hear_the_same() -> None:
    def how(process: BaseProcess) -> int | None:
        process.join()
        return process.exitcode

    with ThreadPoolExecutor(8) as asking:
        for _ in range(12):
            process = start(time.sleep, 0.05)
            assert {*asking.map(how, [process] * 8)} == {0}


@pytest.mark.parametrize("what", FAULTS)
@pytest.mark.parametrize(
    ("scene", "point"),
    [
        ("a client", "Send.before"),
        ("a server", "Commit.before"),
        ("an async client", "Receive.before"),
        ("an async client with a window", "SendMany.before"),
        ("an async queue manager", "ReplyTaken.after"),
        ("a ticker", "Tick.after"),
        ("an async ticker", "Tick.before"),
        ("a caretaker", "RetireHistory.after"),
    ],
)
def test_each_fault_strikes_a_later_time_too(
    ground: Ground, scene: str, point: str, what: str
) -> None:
    verdict = ground.run(Trial(scene=scene, point=point, occurrence=2, what=what))
    assert faultpoints.faults_of(verdict) == []
    assert verdict.struck


def test_one_that_was_taken_for_dead_and_goes_on_changes_nothing(ground: Ground) -> None:
    trial = Trial(scene="a server", point="Finish.before", occurrence=1, what=REVOKE)
    assert faultpoints.faults_of(ground.run(trial)) == []


@pytest.mark.parametrize(
    "scene", [one for one, scene in SCENES.items() if f"{scene.program}_async" in PROGRAMS]
)
def test_what_is_struck_in_the_sync_driver_is_struck_in_the_async_one(scene: str) -> None:
    twin = scene.replace("a ", "an async ", 1)
    assert SCENES[twin].points == SCENES[scene].points
    assert SCENES[twin].program == f"{SCENES[scene].program}_async"


def test_one_that_is_not_taken_for_dead_fails_the_part(
    ground: Ground, monkeypatch: pytest.MonkeyPatch
) -> None:
    trial = Trial(scene="a server", point="Finish.before", occurrence=1, what=REVOKE)
    monkeypatch.setattr("proof.fault_ground.Run._revoke", lambda *_: None)
    (text,) = faultpoints.faults_of(ground.run(trial))
    assert text.endswith("it was not struck")


def test_what_cannot_be_done_at_a_point_is_raised(
    ground: Ground, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object) -> None:
        raise LookupError("a planted one")

    trial = Trial(scene="a server", point="Finish.before", occurrence=1, what=REVOKE)
    monkeypatch.setattr("proof.fault_ground.Run._revoke", broken)
    with pytest.raises(LookupError, match="a planted one"):
        ground.run(trial)


def test_a_death_that_the_fault_does_not_explain_fails_the_part(
    ground: Ground, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken = dataclasses.replace(SCENES["a schema"], program="no such program")
    monkeypatch.setitem(SCENES, "a bug", broken)
    texts = faultpoints.faults_of(ground.run(Trial(scene="a bug", occurrence=1)))
    assert "processes ended with [1], and not []" in texts[0]


def test_a_cut_where_nothing_commits_is_in_the_table(ground: Ground) -> None:
    (cut, *_) = CUTS
    last = Trial(scene="files", point="parquet.named", occurrence=3, what=cut)
    verdict = ground.run(last)
    assert (verdict.came, verdict.struck, faultpoints.faults_of(verdict)) == (True, False, [])
    one_before = dataclasses.replace(verdict, trial=dataclasses.replace(last, occurrence=2))
    (text,) = faultpoints.faults_of(one_before)
    assert text.endswith("it was not struck")


def test_a_point_that_is_not_reached_fails_the_part(ground: Ground) -> None:
    verdict = ground.run(Trial(scene="a schema", point="file.cut", occurrence=1))
    (text,) = faultpoints.faults_of(verdict)
    assert text.endswith("it was never reached")


def test_a_name_that_is_not_in_the_table_fails_the_part() -> None:
    trial = Trial(scene="a client", point="Send.after", occurrence=1)
    reached = {"Send.after": 1, "Sned.after": 1}
    seen = Verdict(
        trial=trial, reached=reached, came=True, lost=0, revoked=0, kills=1, events=9, seconds=1.0
    )
    (text,) = faultpoints.faults_of(seen)
    assert "Sned.after was reached, and is not in the table" in text


def test_every_point_has_a_run() -> None:
    assert faultpoints.holes() == []
    assert faultpoints.holes([name for name in SCENES if name != "files"]) == [
        f"no run reaches the fault point {one}"
        for one in sorted(one for one in POINTS if one.startswith(("file.", "parquet.")))
    ]


def test_a_point_without_a_scene_is_met_elsewhere() -> None:
    of_spark = {one.point for one in part.every_trial()}
    of_pipelines = {one.point for one in pipelines.trials(Size.PROOF, random.Random(1))}
    forgets = {"StreamForget.before", "StreamForget.after"}  # a person's, one transaction
    of_bridges = ({*OF_INTO, *OF_RELAY} | forgets) - {"Commit.before", "Commit.after"}
    assert of_spark | of_pipelines | of_bridges == ELSEWHERE
    assert not ELSEWHERE & {point for scene in SCENES.values() for point in scene.points}


def test_the_long_run_has_each_time_in_the_async_driver_too() -> None:
    tried = set(faultpoints.trials(Size.LONG, random.Random(1)))
    assert {dataclasses.replace(one, occurrence=n) for one in tried for n in (1, 2, 3)} == tried
    once = [one for one in faultpoints.trials(Size.PROOF, random.Random(1)) if _is_twin(one)]
    pairs = {(one.scene, one.point, one.what) for one in once}
    assert len(once) == len(pairs)
    assert pairs == {(one.scene, one.point, one.what) for one in tried if _is_twin(one)}


def _is_twin(trial: Trial) -> bool:
    program = SCENES[trial.scene].program
    assert SCENES[trial.scene].is_twin is (program.endswith("_async") or program in OTHER_LEDGERS)
    return SCENES[trial.scene].is_twin


def test_the_proof_has_every_pair() -> None:
    pairs = faultpoints.trials(Size.PROOF, random.Random(1))
    assert {one.point for one in pairs} | ELSEWHERE == set(POINTS)
    wanted = {(one, what) for one in faultpoints.OCCURRENCES for what in ("kill", "raise")}
    for point in set(POINTS) - ELSEWHERE:
        met = {(one.occurrence, one.what) for one in pairs if one.point == point}
        assert wanted <= met
