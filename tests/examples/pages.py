"""What the tests of the pages share: their blocks, as files and scripts of a directory; a shell.

A python block whose first line names a file is that file.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

ROOT = Path(__file__).resolve().parents[2]
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
FILE_NAME = re.compile(r"# (\w+\.py)\n")


def text_of(page: str) -> str:
    """Returns a page, named by its path."""
    return (ROOT / page).read_text(encoding="utf-8")


def section(title: str, page: str) -> str:
    """Returns the text of one section of a page, up to the next of its level."""
    found = re.search(rf"^## {re.escape(title)}.*?(?=^## |\Z)", page, re.DOTALL | re.MULTILINE)
    assert found is not None, f"there is no section {title!r}"
    return found.group()


def blocks(text: str) -> dict[str, str]:
    """Returns the blocks of a text by language, those of one language joined."""
    found = {"python": "", "bash": "", "text": ""}
    for language, block in BLOCK.findall(text):
        found[language] = found.get(language, "") + block
    return found


def write_files(text: str, directory: Path) -> list[str]:
    """Writes the files that the python blocks of a text name; returns the names, in their order."""
    names: list[str] = []
    for language, block in BLOCK.findall(text):
        named = FILE_NAME.match(block)
        if language == "python" and named is not None:
            (directory / named[1]).write_text(block, encoding="utf-8")
            names.append(named[1])
    return names


def reader(**own: str) -> dict[str, str]:
    """Returns what a reader's shell has: these sources and tools, and nothing said about onceq."""
    kept = {name: value for name, value in os.environ.items() if "ONCEQ" not in name}
    tools = f"{Path(sys.executable).parent}:{kept['PATH']}"
    return {**kept, "PYTHONPATH": str(ROOT / "src"), "PATH": tools, **own}


def shell(
    script: str, directory: Path, environment: Mapping[str, str], limit_s: float
) -> tuple[str, str]:
    """Runs a script, which must succeed; returns its output and errors, and leaves no process."""
    with subprocess.Popen(
        ["bash", "-c", f"set -eu\n{script}"],
        cwd=directory,
        env=environment,
        start_new_session=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            printed, complaints = process.communicate(timeout=limit_s)
        finally:
            _end_group(process.pid)
    assert process.returncode == 0, f"{printed}\n{complaints}"
    return printed, complaints


def _end_group(leader: int) -> None:
    """Ends what the script may have left: the processes of the session that it was started in."""
    try:
        os.killpg(leader, signal.SIGTERM)
    except ProcessLookupError:
        return
