"""The two programs of docs/coming-from-celery.md print what the page says that they print.

Celery is in the environment of the peers (bench/requirements-peers.in): where that was made, by
`make bench` or `python -m bench.peers`, the program before is run too.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from bench import peers

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "coming-from-celery.md"


def shown() -> list[str]:
    """What the page says that the program before, and the one after, print."""
    return re.findall(r"```text\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)


def printed(python: str, name: str, place: Path) -> str:
    ran = subprocess.run(
        [python, str(ROOT / "examples" / "from_celery" / f"{name}.py")],
        cwd=place,
        env={**os.environ, "PYTHONPATH": str(ROOT / "src")},
        check=False,
        capture_output=True,
        text=True,
        timeout=250,
    )
    assert ran.returncode == 0, ran.stderr
    return ran.stdout


PYTHONS = {"after": sys.executable} | ({"before": str(peers.PYTHON)} if peers.is_complete() else {})
"""By the program; both where Celery is."""


@pytest.mark.parametrize("name", sorted(PYTHONS))
def test_it_prints_what_the_page_shows(name: str, tmp_path: Path) -> None:
    before, after = shown()
    assert printed(PYTHONS[name], name, tmp_path) == {"before": before, "after": after}[name]


def test_the_page_shows_both() -> None:
    assert len(shown()) == 2
