"""The wheel and the source archive: each built, installed into an empty environment, and used.

What is installed sees nothing of this checkout: it runs in another directory, without
PYTHONPATH. It runs the README's quickstart, and the output is compared with what the
README says.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

from proof import goals
from proof.part import Limits, Measure, Outcome, Part
from tests.examples.pages import blocks, section, shell, text_of, write_files

if TYPE_CHECKING:
    from proof.part import Order

ROOT: Final = Path(__file__).resolve().parents[1]
KINDS: Final = {"wheel": "*.whl", "sdist": "*.tar.gz"}
SCRIPT_S: Final = 240
WORDS: Final = 3000


class Failed(Exception):
    """A step of building or installing failed; the text has its last words."""


def build(into: Path, *, root: Path = ROOT) -> dict[str, Path]:
    """Builds the wheel and the source archive; returns them by kind."""
    targets = [word for kind in KINDS for word in ("--target", kind)]
    do(sys.executable, "-m", "hatchling", "build", "--directory", str(into), *targets, at=root)
    return {kind: next(into.glob(pattern)) for kind, pattern in KINDS.items()}


def do(*command: str, at: Path) -> None:
    """Runs a step, without what Python finds by its environment."""
    own = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    done = subprocess.run(command, cwd=at, env=own, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise Failed(f"{' '.join(command)}: {done.stdout[-WORDS:]}{done.stderr[-WORDS:]}")


def install(package: Path, prefix: Path) -> None:
    """Installs a package with the extra `embedded` into a new environment."""
    do(sys.executable, "-m", "venv", str(prefix), at=prefix.parent)
    pip = (str(prefix / "bin" / "python"), "-m", "pip", "--disable-pip-version-check")
    do(*pip, "install", "--quiet", f"{package}[embedded]", at=prefix.parent)


def use(prefix: Path, directory: Path) -> str | None:
    """Runs the quickstart with what is installed; returns what is wrong with its output."""
    text = section("Quickstart", text_of("README.md"))
    directory.mkdir()
    write_files(text, directory)
    found = blocks(text)
    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("PYTHON", "PG", "ONCEQ", "DATABASE_URL"))
    }
    own = {**kept, "VIRTUAL_ENV": str(prefix), "PATH": f"{prefix / 'bin'}:{kept['PATH']}"}
    try:
        printed, complaints = shell(found["bash"], directory, own, SCRIPT_S)
    except AssertionError as error:
        return f"the quickstart fails: {error}"
    except subprocess.TimeoutExpired as error:
        return f"the quickstart does not end: {error}"
    return None if printed == found["text"] else f"it prints {printed!r}; {complaints}"


def run(order: Order) -> Outcome:
    """Builds, installs and uses each kind of package."""
    violations: list[str] = []
    try:
        order.say("building", 0, len(KINDS))
        built = build(order.place / "dist")
    except Failed as failed:
        return Outcome(measures=[_reached(0)], violations=[str(failed)])
    for number, (kind, package) in enumerate(built.items()):
        order.say(f"installing and using the {kind}", number, len(KINDS))
        prefix = order.place / f"env-{kind}"
        try:
            install(package, prefix)
            wrong = use(prefix, order.place / f"shop-{kind}")
        except Failed as failed:
            wrong = str(failed)
        violations += [] if wrong is None else [f"{kind}: {wrong}"]
    return Outcome(measures=[_reached(len(KINDS) - len(violations))], violations=violations)


def _reached(number: int) -> Measure:
    return Measure(what=goals.PACKAGES, reached=number, goal=len(KINDS))


PART: Final = Part(
    name="packaging",
    text="the wheel and the source archive, each installed into an empty environment and used",
    run=run,
    states=(goals.PACKAGES,),
    limits=Limits(small_s=600.0, proof_s=900.0, long_s=900.0),
)
