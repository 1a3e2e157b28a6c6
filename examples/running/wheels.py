"""Files that pinned wheels carry, for the examples: fetched for their data alone.

A wheel is never installed and never imported. A file that comes into being is whole and verified,
or not there at all; what an earlier call finished is kept, so an interrupted one goes on.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import zipfile
from pathlib import Path

from onceq import errors

ROOT = Path(__file__).resolve().parents[2]
DATA = ROOT / ".data"
PINNED = ROOT / "requirements-data.txt"
DOWNLOAD_TIMEOUT_S = 300.0


def fetch(member: str, sha256: str, data: Path = DATA) -> Path:
    """Return where a file of a wheel is, which bears the name of its first directory.

    Raises FileMismatch if it is not what it should be, EnvironmentFault if it cannot be fetched.
    """
    kept = data / Path(member).name
    if not is_whole(kept, sha256):
        data.mkdir(parents=True, exist_ok=True)
        with zipfile.ZipFile(_fetch_wheel(member.partition("/")[0], data / "wheels")) as wheel:
            content = wheel.read(member)
        write_whole(kept, content)
        if not is_whole(kept, sha256):
            raise errors.FileMismatch(f"{kept}: sha256 is not {sha256}")
    return kept


def is_whole(path: Path, sha256: str) -> bool:
    """Return whether a file is there, with this content."""
    return path.exists() and hashlib.sha256(path.read_bytes()).hexdigest() == sha256


def write_whole(path: Path, content: bytes) -> None:
    """Write a file that is there with all its content, or not at all."""
    unfinished = path.with_name(f".{path.name}.{os.getpid()}.part")
    unfinished.write_bytes(content)
    unfinished.replace(path)


def _fetch_wheel(name: str, wheels: Path) -> Path:
    """Download the pinned wheels, and return that of a name, whose file may have capitals in it.

    Pip keeps those that are there already and verifies them.
    """
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps"]
    command += ["--require-hashes", "--requirement", str(PINNED), "--dest", str(wheels)]
    try:
        ran = subprocess.run(
            command, check=False, capture_output=True, text=True, timeout=DOWNLOAD_TIMEOUT_S
        )
    except subprocess.TimeoutExpired as error:
        late = f"the download took more than {DOWNLOAD_TIMEOUT_S:.0f} s"
        raise errors.EnvironmentFault(f"{late}; start again: it goes on") from error
    if ran.returncode != 0:
        tail = "\n".join(ran.stderr.splitlines()[-5:])
        raise errors.EnvironmentFault(f"pip could not download {PINNED.name}; it said:\n{tail}")
    found = (one for one in sorted(wheels.glob("*.whl")) if one.name.lower().startswith(f"{name}-"))
    return next(found)
