"""The guide to exactly-once output: its files, run by its script, print what it says."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
GUIDE = (ROOT / "docs" / "exactly-once-output.md").read_text(encoding="utf-8")
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
FILE_NAME = re.compile(r"# (\w+\.py)\n")
LIMIT_S = 150


@pytest.mark.timeout(200)
def test_the_guide_is_true(tmp_path: Path) -> None:
    """A client killed three times prints each ticket once."""
    script = wanted = ""
    for language, text in BLOCK.findall(GUIDE):
        named = FILE_NAME.match(text)
        if named is not None:
            (tmp_path / named[1]).write_text(text, encoding="utf-8")
        script += text if language == "bash" else ""
        wanted += text if language == "text" else ""
    tools = Path(sys.executable).parent
    with subprocess.Popen(
        ["bash", "-c", f"set -eu\n{script}"],
        cwd=tmp_path,
        env={
            **{name: value for name, value in os.environ.items() if "ONCEQ" not in name},
            "PYTHONPATH": str(ROOT / "src"),
            "PATH": f"{tools}:{os.environ['PATH']}",
        },
        start_new_session=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as shell:
        try:
            printed, complaints = shell.communicate(timeout=LIMIT_S)
        finally:
            end_group(shell.pid)
    assert shell.returncode == 0, f"{printed}\n{complaints}"
    assert printed == wanted, complaints
    assert complaints.count("FAULT POINTS ARE ARMED") == 3
    struck = [(tmp_path / place).iterdir() for place in ("one", "two", "three")]
    assert all(any(points) for points in struck)


def end_group(leader: int) -> None:
    """Ends what the script may have left."""
    try:
        os.killpg(leader, signal.SIGTERM)
    except ProcessLookupError:
        return
