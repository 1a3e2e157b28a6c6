from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from onceq import errors
from onceq.spark.start.scratch import claim_scratch

HOLD = """
import pathlib, sys
from onceq.spark.start.scratch import claim_scratch
print(claim_scratch(pathlib.Path(sys.argv[1])), flush=True)
sys.stdin.read()
"""


def start_owner(parent: Path) -> tuple[subprocess.Popen[str], Path]:
    environ = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    owner = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(parent)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=environ,
    )
    assert owner.stdout is not None
    return owner, Path(owner.stdout.readline().strip())


def finish(owner: subprocess.Popen[str], *, kill: bool) -> None:
    if kill:
        owner.kill()
    owner.communicate(timeout=150)


def test_scratch_is_private(tmp_path: Path) -> None:
    scratch = claim_scratch(tmp_path)
    assert scratch.parent.parent == tmp_path
    assert scratch.stat().st_mode & 0o777 == 0o700
    assert scratch.parent.stat().st_mode & 0o777 == 0o700


def test_a_process_that_ends_removes_its_own(tmp_path: Path) -> None:
    owner, scratch = start_owner(tmp_path)
    assert scratch.is_dir()
    finish(owner, kill=False)
    assert not scratch.exists()


def test_what_a_killed_process_left_is_swept_and_a_living_one_is_not(tmp_path: Path) -> None:
    killed, abandoned = start_owner(tmp_path)
    living, kept = start_owner(tmp_path)
    (abandoned / "spill").write_text("x")
    finish(killed, kill=True)
    assert abandoned.is_dir()
    claim_scratch(tmp_path)
    assert not abandoned.exists()
    assert kept.is_dir()
    finish(living, kill=False)


@pytest.mark.parametrize("kind", ["open directory", "link", "file"])
def test_a_base_prepared_by_somebody_else_is_refused(tmp_path: Path, kind: str) -> None:
    base = tmp_path / f"onceq-spark-{os.getuid()}"
    match kind:
        case "open directory":
            base.mkdir()
            base.chmod(0o777)
        case "link":
            (tmp_path / "elsewhere").mkdir(mode=0o700)
            base.symlink_to(tmp_path / "elsewhere")
        case _:
            base.write_text("")
    with pytest.raises(errors.EnvironmentFault, match="TMPDIR"):
        claim_scratch(tmp_path)


def test_a_missing_parent_is_a_clear_error(tmp_path: Path) -> None:
    with pytest.raises(errors.EnvironmentFault, match="No such file"):
        claim_scratch(tmp_path / "gone")
