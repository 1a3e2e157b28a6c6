"""The guide to many requests, word for word, as one program in an empty directory."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
BLOCK = re.compile(r"^```python\n(.*?)^```$", re.DOTALL | re.MULTILINE)
LIMIT_S = 250


def test_the_guide_runs_as_it_stands(tmp_path: Path) -> None:
    text = (ROOT / "docs" / "many-requests.md").read_text(encoding="utf-8")
    program = tmp_path / "guide.py"
    program.write_text("".join(BLOCK.findall(text)), encoding="utf-8")
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    command = [sys.executable, str(program)]
    try:
        done = subprocess.run(
            command,
            cwd=tmp_path,
            env=environment,
            check=False,
            capture_output=True,
            text=True,
            timeout=LIMIT_S,
        )
    finally:
        stop = [sys.executable, "-m", "onceq.cli.main", "--url", "embedded:./data", "stop"]
        subprocess.run(stop, cwd=tmp_path, env=environment, check=False, capture_output=True)
    assert (done.returncode, done.stdout) == (0, "nothing in time: queued\n"), done.stderr
