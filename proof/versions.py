"""Each supported version of PostgreSQL and of Python: the conformance suite on it.

Each version is a part, so that one that this machine lacks is named as not tried. A
PostgreSQL is found as the library finds it, a Python on PATH or in pyenv. Each Python gets a new
environment with this checkout and the pinned versions of its dependencies.
"""

from __future__ import annotations

import functools
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

from onceq.engine.embedded import open_embedded
from onceq.engine.embedded.binaries import all_binaries
from proof import goals
from proof.part import Limits, Measure, Outcome, Part, Size

if TYPE_CHECKING:
    from collections.abc import Iterator

    from proof.part import Order

ROOT: Final = Path(__file__).resolve().parents[1]
POSTGRESQL: Final = (15, 16, 17, 18)
PYTHON: Final = ((3, 11), (3, 12), (3, 13), (3, 14))
SUITE: Final = "tests/conformance"
FEW: Final = "a_request"
"""Which behaviours the small size tries: those with this in their name."""
TOOLS: Final = ("hypothesis", "psutil", "pytest", "pytest-randomly", "pytest-timeout")
PIN: Final = re.compile(r"^([\w.-]+==[\w.+-]+(?: ; [^\\]+?)?) ?\\?$", re.MULTILINE)
WORDS: Final = 3000


def on_postgresql(major: int, order: Order) -> Outcome:
    """Runs the suite on a PostgreSQL of this version, with the Python that runs the proof."""
    binaries = next((one for one in all_binaries() if one.major == major), None)
    if binaries is None:
        return Outcome(skipped=f"there is no PostgreSQL {major} on this machine")
    with open_embedded(order.place / "postgresql", binaries=binaries) as server:
        return conformance(sys.executable, order, ONCEQ_TEST_URL=server.conninfo)


def on_python(version: tuple[int, int], order: Order) -> Outcome:
    """Runs the suite with a Python of this version, on the PostgreSQL that onceq brings."""
    base = interpreter(version)
    if base is None:
        return Outcome(skipped=f"there is no Python {name_of(version)} on this machine")
    order.say(f"installing for {base}", 0, 2)
    prefix = order.place / "env"
    python = str(prefix / "bin" / "python")
    pins = order.place / "pins.txt"
    pins.write_text(constraints((ROOT / "requirements.txt").read_text(encoding="utf-8")))
    install = ("-m", "pip", "install", "--quiet", "--disable-pip-version-check", "-c", str(pins))
    for command in (
        (base, "-m", "venv", str(prefix)),
        (python, *install, f"{ROOT}[embedded]", *TOOLS),
    ):
        done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=order.place)
        if done.returncode != 0:
            what = f"cannot be installed for Python {name_of(version)}: {done.stderr[-WORDS:]}"
            return Outcome(measures=[_reached(0)], violations=[what])
    return conformance(python, order)


def conformance(python: str, order: Order, **own: str) -> Outcome:
    """Runs the suite with an interpreter; if it fails, its output is a violation."""
    order.say("the conformance suite", 1, 2)
    chosen = ("-k", FEW) if order.size is Size.SMALL else ()
    done = subprocess.run(
        [python, "-m", "pytest", "-q", "-p", "no:cacheprovider", *chosen, SUITE],
        cwd=ROOT,
        env={**os.environ, **own},
        capture_output=True,
        text=True,
        check=False,
    )
    counted = re.search(r"(\d+) passed", done.stdout)
    passed = int(counted[1]) if counted is not None else 0
    good = done.returncode == 0 and passed > 0
    said = f"{done.stdout[-WORDS:]}{done.stderr[-WORDS:]}"
    return Outcome(
        measures=[_reached(int(good)), Measure(what="conformance tests passed", reached=passed)],
        violations=[] if good else [f"the conformance suite fails: {said}"],
    )


def _reached(number: int) -> Measure:
    return Measure(what=goals.VERSIONS, reached=number, goal=1)


def interpreter(version: tuple[int, int]) -> str | None:
    """Returns the path of a Python of this version, or None if there is none."""
    for path in _interpreters(name_of(version)):
        code = "import sys; print('%d.%d' % sys.version_info[:2])"
        done = subprocess.run([path, "-c", code], capture_output=True, text=True, check=False)
        if done.stdout.strip() == name_of(version):
            return path
    return None


def _interpreters(name: str) -> Iterator[str]:
    found = shutil.which(f"python{name}")
    if found is not None:
        yield found
    home = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv"))
    yield from map(str, sorted((home / "versions").glob(f"{name}*/bin/python")))


def constraints(requirements: str) -> str:
    """Returns the pins of a requirement file without their hashes, as pip's constraints."""
    return "\n".join(PIN.findall(requirements)) + "\n"


def name_of(version: tuple[int, int]) -> str:
    """Returns 3.11 of (3, 11)."""
    return ".".join(map(str, version))


LIMITS: Final = Limits(small_s=180.0, proof_s=900.0, long_s=900.0)
PARTS: Final = (
    *(
        Part(
            name=f"postgresql-{major}",
            text=f"the conformance suite on PostgreSQL {major}",
            run=functools.partial(on_postgresql, major),
            states=(goals.VERSIONS,),
            limits=LIMITS,
        )
        for major in POSTGRESQL
    ),
    *(
        Part(
            name=f"python-{name_of(version).replace('.', '')}",
            text=f"the conformance suite with Python {name_of(version)}",
            run=functools.partial(on_python, version),
            states=(goals.VERSIONS,),
            limits=LIMITS,
        )
        for version in PYTHON
    ),
)
