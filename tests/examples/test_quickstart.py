"""The README's quickstarts, word for word, in an empty directory, with the built wheel installed.

The wheel is built from this checkout and installed by pip into a new environment. What onceq
depends on is not downloaded again: it comes from the environment that runs the tests, by a .pth
file, which puts it behind the new environment's own packages. That onceq itself comes from the
wheel is checked.

In the README, a python block whose first line names a file is that file. The bash blocks are one
script; the text blocks after them are what it prints, exactly.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import sysconfig
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import onceq

if TYPE_CHECKING:
    from collections.abc import Sequence

ROOT = Path(__file__).resolve().parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")
BLOCK = re.compile(r"^```(python|bash|text)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
FILE_NAME = re.compile(r"^# (\w+\.py)\n", re.MULTILINE)
SCRIPT_S = 200


def section(title: str) -> str:
    """Return the text of one section of the README, up to the next of its level."""
    found = re.search(rf"^## {re.escape(title)}.*?(?=^## |\Z)", README, re.DOTALL | re.MULTILINE)
    assert found is not None, f"README.md has no section {title!r}"
    return found.group()


def environment(prefix: Path) -> dict[str, str]:
    """Return what a user's shell has who has activated the environment at `prefix`."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    for name in ("ONCEQ_URL", "ONCEQ_REPOSITORY", "DATABASE_URL", "PGHOST", "PGSERVICE"):
        kept.pop(name, None)
    return {**kept, "VIRTUAL_ENV": str(prefix), "PATH": f"{prefix / 'bin'}:{kept['PATH']}"}


def run(*command: str) -> str:
    """Run a step of the installation; return what it printed."""
    done = subprocess.run(command, cwd="/", check=False, capture_output=True, text=True)
    assert done.returncode == 0, f"{command}: {done.stdout}\n{done.stderr}"
    return done.stdout


def blocks(titles: Sequence[str]) -> dict[str, str]:
    """Return the blocks of the sections by language, those of one language joined."""
    found = {"python": "", "bash": "set -eu\n", "text": ""}
    for language, text in BLOCK.findall("".join(map(section, titles))):
        found[language] += text
    return found


def write_files(titles: Sequence[str], directory: Path) -> None:
    """Write the files that the sections' python blocks name."""
    parts = FILE_NAME.split(blocks(titles)["python"])
    assert parts[0] == "", f"a python block that names no file:\n{parts[0]}"
    for name, text in zip(parts[1::2], parts[2::2], strict=True):
        (directory / name).write_text(f"# {name}\n{text}", encoding="utf-8")


def run_sections(titles: Sequence[str], directory: Path, prefix: Path) -> None:
    """Run the sections' script in a directory, compare what it prints.

    They are one script, as the reader has one shell.
    """
    found = blocks(titles)
    with subprocess.Popen(
        ["bash", "-c", found["bash"]],
        cwd=directory,
        env=environment(prefix),
        start_new_session=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as shell:
        try:
            printed, complaints = shell.communicate(timeout=SCRIPT_S)
        finally:
            end_group(shell.pid)
    assert shell.returncode == 0, f"{printed}\n{complaints}"
    assert printed == found["text"], complaints


def end_group(leader: int) -> None:
    """End what the script may have left: the processes of the session that it was started in."""
    try:
        os.killpg(leader, signal.SIGTERM)
    except ProcessLookupError:
        return


@pytest.fixture(scope="module")
def prefix(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A new environment with the wheel of this checkout."""
    place = tmp_path_factory.mktemp("installed")
    wheels, prefix = place / "wheels", place / "venv"
    pip = (sys.executable, "-m", "pip", "--disable-pip-version-check")
    building = ("--no-deps", "--no-build-isolation", "--wheel-dir", str(wheels))
    run(*pip, "wheel", str(ROOT), *building)
    (wheel,) = wheels.glob("onceq-*.whl")
    run(sys.executable, "-m", "venv", "--without-pip", str(prefix))
    python = str(prefix / "bin" / "python")
    run(*pip, "--python", python, "install", "--no-deps", "--no-index", str(wheel))
    packages = next((prefix / "lib").glob("python3*")) / "site-packages"
    (packages / "zz_dependencies.pth").write_text(sysconfig.get_path("purelib") + "\n")
    return prefix


def test_onceq_comes_from_the_wheel(prefix: Path) -> None:
    python = str(prefix / "bin" / "python")
    code = "import onceq, psycopg; print(onceq.__file__); print(onceq.__version__)"
    done = subprocess.run(
        [python, "-c", code],
        cwd="/",
        env=environment(prefix),
        check=True,
        capture_output=True,
        text=True,
    )
    file, version = done.stdout.split()
    assert Path(file).is_relative_to(prefix)
    assert version == onceq.__version__


@pytest.mark.timeout(240)
def test_the_native_server(tmp_path: Path, prefix: Path) -> None:
    native = ["Quickstart", "A file of requests"]
    write_files(native, tmp_path)
    run_sections(native, tmp_path, prefix)


@pytest.mark.timeout(240)
def test_spark(tmp_path: Path, prefix: Path) -> None:
    write_files(["Quickstart", "Spark"], tmp_path)
    run_sections(["Spark"], tmp_path, prefix)
