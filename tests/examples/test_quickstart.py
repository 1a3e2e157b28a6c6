"""The quickstart and the next steps, in an empty directory, with the built wheel installed.

The wheel is built from this checkout and installed by pip into a new environment. What onceq
depends on is not downloaded again: it comes from the environment that runs the tests, by a .pth
file, which puts it behind the new environment's own packages. That onceq itself comes from the
wheel is checked.

A python block whose first line names a file is that file. The bash blocks are one
script; the text blocks after them are what it prints, exactly.
"""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import onceq
from tests.examples.pages import ROOT, blocks, section, shell, text_of, write_files

if TYPE_CHECKING:
    from collections.abc import Sequence

README = text_of("README.md")
NEXT_STEPS = text_of("docs/next-steps.md")
SCRIPT_S = 300


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


def run_sections(sections: Sequence[str], directory: Path, prefix: Path) -> None:
    """Run the script of some sections in a directory, compare what it prints.

    They are one script, as the reader has one shell.
    """
    text = "".join(sections)
    assert len(write_files(text, directory)) == text.count("```python")
    found = blocks(text)
    printed, complaints = shell(found["bash"], directory, environment(prefix), SCRIPT_S)
    assert printed == found["text"], complaints


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


@pytest.mark.timeout(400)
def test_the_native_server(tmp_path: Path, prefix: Path) -> None:
    sections = [section("Quickstart", README), section("A file of requests", NEXT_STEPS)]
    run_sections(sections, tmp_path, prefix)


@pytest.mark.timeout(400)
def test_spark(tmp_path: Path, prefix: Path) -> None:
    write_files(section("Quickstart", README), tmp_path)
    run_sections([section("Spark", NEXT_STEPS)], tmp_path, prefix)
