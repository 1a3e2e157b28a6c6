"""Type checkers show what is wrong in a program, line by line, and nothing else."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable

HERE = Path(__file__).parent
SOURCE = HERE.parents[1] / "src"
IGNORED = re.compile(r"  # type: [i]gnore\[.*\] # wrong$")
PYRIGHT = {
    "typeCheckingMode": "standard",
    "pythonVersion": "3.11",
    "venvPath": str(Path(sys.prefix).parent),
    "venv": Path(sys.prefix).name,
    "extraPaths": [str(SOURCE)],
}


def lines_of(program: Path) -> tuple[str, set[int]]:
    """Returns a program without its ignores, and the lines that had one."""
    lines = program.read_text().splitlines()
    wrong = {number for number, line in enumerate(lines, 1) if IGNORED.search(line)}
    return "\n".join(IGNORED.sub("", line) for line in lines), wrong


def pyright(folder: Path) -> set[int]:
    checker = shutil.which("basedpyright", path=str(Path(sys.executable).parent))
    assert checker is not None
    (folder / "pyrightconfig.json").write_text(json.dumps(PYRIGHT))
    said = _run([checker, "--outputjson", "--project", str(folder)], folder)
    found = json.loads(said)["generalDiagnostics"]
    return {one["range"]["start"]["line"] + 1 for one in found if one["severity"] == "error"}


def mypy(folder: Path) -> set[int]:
    config = folder / "mypy.ini"
    config.write_text(f"[mypy]\nstrict = true\nmypy_path = {SOURCE}\nfollow_imports = silent\n")
    command = [sys.executable, "-m", "mypy", "--config-file", str(config), "--output", "json"]
    said = _run([*command, str(folder / "program.py")], folder)
    found = [json.loads(line) for line in said.splitlines() if line.startswith("{")]
    return {one["line"] for one in found if one["severity"] == "error"}


def _run(command: list[str], folder: Path) -> str:
    ran = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert ran.returncode == 1, ran.stdout + ran.stderr
    return ran.stdout


@pytest.mark.timeout(600)
@pytest.mark.parametrize("check", [pyright, mypy])
def test_each_wrong_line_is_flagged_and_no_other(
    tmp_path: Path, check: Callable[[Path], set[int]]
) -> None:
    program, wrong = lines_of(HERE / "programs.py")
    (tmp_path / "program.py").write_text(program)
    assert len(wrong) > 40
    assert check(tmp_path) == wrong
