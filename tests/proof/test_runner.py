"""The proof's runner: whatever is wrong makes its exit code 1, and nothing of a part is left."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from proof import judging, running
from proof.__main__ import ended
from proof.goals import SCHEDULES
from proof.part import Size
from proof.record import Record
from tests.parts import wait_until
from tests.proof.tiny_parts import PARTS

if TYPE_CHECKING:
    import pytest

ROOT = Path(__file__).resolve().parents[2]
TABLE = "tests.proof.tiny_parts:PARTS"


def proof(*arguments: str, size: str = "proof") -> subprocess.CompletedProcess[str]:
    """Runs the proof over the tiny parts, with its record on standard output."""
    command = [sys.executable, "-m", "proof", "--table", TABLE, "--json", "--size", size]
    paths = os.pathsep.join([str(ROOT / "src"), str(ROOT)])
    return subprocess.run(
        [*command, *arguments],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": paths},
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )


def test_what_is_good_ends_well_and_is_recorded() -> None:
    done = proof("--only", "good", "--seed", "7")
    assert done.returncode == 0, done.stderr
    (shown,) = msgspec.json.decode(done.stdout, type=Record).shown
    assert (shown.name, shown.seed, shown.failure) == ("good", 7, None)
    assert shown.page == "Seed 7; its place was empty."
    assert [(m.what, m.reached) for m in shown.measures] == [(SCHEDULES, 20_000)]
    assert "nothing lost, nothing twice" in done.stderr


def test_what_strikes_no_disk_has_its_files_in_memory_where_there_is_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (shown,) = msgspec.json.decode(proof("--only", "placed").stdout, type=Record).shown
    temporary, place = map(Path, shown.page.split())
    assert temporary.parent == place.parents[1] == running.folder(in_memory=True)
    assert not temporary.exists()  # with what the part has left in it
    monkeypatch.setattr(running, "MEMORY", tmp_path)
    assert running.folder(in_memory=False) == Path(tempfile.gettempdir())
    monkeypatch.setattr(running, "MEMORY_BYTES_MIN", 1)
    assert running.folder(in_memory=True) == tmp_path
    monkeypatch.setattr(running, "MEMORY_BYTES_MIN", 1 << 60)
    assert running.folder(in_memory=True) == Path(tempfile.gettempdir())


def test_whatever_is_wrong_fails_the_proof(capsys: pytest.CaptureFixture[str]) -> None:
    """All in one run, which costs least; then what each has shown is judged as if it were alone."""
    wrong = {
        "violation": "violation: lost r7: seed 1990",
        "missed": "missed: of its own: 2 of 3",
        "not-all": "mutants caught: 41 of 42",
        "silent": "silent: did not state: model states",
        "blind": "blind: the control did not fail: the broken one",
        "uncontrolled": "uncontrolled: did not try the control: the broken one",
        "undeclared": "undeclared: a control that it does not declare: the broken one",
        "raises": "its last words",
        "garbled": "garbled: said what cannot be read: Expected `int`, got `bool`",
        "dies": "dies: was ended by signal 9",
    }
    done = proof("--only", *wrong)
    assert done.returncode == 1
    assert "proof: FAILED" in done.stderr
    assert [said for said in wrong.values() if said not in done.stderr] == []
    shown = {one.name: one for one in msgspec.json.decode(done.stdout, type=Record).shown}
    for name, said in wrong.items():
        judged = judging.judged(PARTS, [shown.pop(name)], Size.PROOF)
        code = ended(Record(size=Size.PROOF, shown=[], judged=judged), seed=1990)
        told = capsys.readouterr().err
        assert (code, said in told, "proof: FAILED" in told) == (1, True, True), name
    assert shown == {}


def test_a_part_that_hangs_is_ended_with_all_that_it_started() -> None:
    done = proof("--only", "hangs")
    assert done.returncode == 1
    said = re.search(r"hangs: was not done after 15 s; last said: left (\d+)", done.stderr)
    assert said is not None, done.stderr
    left = Path(f"/proc/{said[1]}")
    wait_until(lambda: not left.exists())  # it was killed: its parent lays it to rest


def test_a_row_is_missed_when_all_parts_that_add_to_it_fall_short() -> None:
    """One of the three alone could be short of it; one that was skipped excuses nobody."""
    alone = proof("--only", "missed-row")
    together = proof("--only", "missed-row", "skipped", "silent")
    assert (alone.returncode, together.returncode) == (0, 1)
    assert "model states: 7 of 2,000,000" in together.stderr


def test_what_cannot_be_tried_here_is_a_failure_unless_it_is_left_out_by_name() -> None:
    done = proof("--only", "skipped", "good")
    assert done.returncode == 1
    assert "skipped: not tried: no such device here; `--without skipped` leaves it out" in (
        done.stderr
    )
    left_out = proof("--only", "skipped", "good", "--without", "skipped")
    assert left_out.returncode == 0
    last = left_out.stderr.splitlines()[-1]
    assert last.startswith("proof: nothing lost, nothing twice; 1 goals reached, 0 missed, ")
    assert "model states" in last.partition("not tried: ")[2]


def test_a_part_that_does_not_exist_is_a_usage_error() -> None:
    done = proof("--only", "goood")
    assert done.returncode == 2
    assert "no such part: goood" in done.stderr
