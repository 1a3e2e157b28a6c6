"""Places the Unix socket: a short private directory, named by a hash.

For this package only. A socket's path is at most 107 bytes (103 on macOS), so it cannot
be in the data directory. The name hashes the directory's path, device and inode, so that neither a
prefix of another path nor a renamed directory is ever taken for it.
A joining process does not use this: it reads the running server's `postmaster.pid`.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path

from onceq.errors import EmbeddedError

PORT = 5432  # only part of the socket's file name: nothing listens on TCP
_PATH_BYTES_MAX = 103  # Linux has room for 107, macOS for 103
# No comma, quote or blank: they have a meaning in PostgreSQL's and libpq's lists.
_PLAIN = re.compile(r"/[A-Za-z0-9_./+-]*\Z")


def make_socket_directory(directory: Path) -> Path:
    """Make the socket's empty 0700 directory for the data directory, and return it.

    For a server that is about to start: what a killed one left there is removed.
    The first of XDG_RUNTIME_DIR, the temporary directory and /tmp that is short enough
    and ours alone. Raises EmbeddedError, naming each and its fault.
    """
    found = directory.stat()
    key = f"{directory}\0{found.st_dev}\0{found.st_ino}".encode(errors="surrogateescape")
    name = hashlib.sha256(key).hexdigest()[:16]
    faults: list[str] = []
    for base in _bases():
        try:
            return _prepare(base, name)
        except (OSError, EmbeddedError) as error:
            faults.append(f"{base}: {error}")
    raise EmbeddedError(
        f"No place for the Unix socket of {directory} ({'; '.join(faults)}). "
        "Set XDG_RUNTIME_DIR or TMPDIR to a short directory that only you can write."
    )


def remove_socket_directory(directory: Path) -> None:
    """Remove the socket directory of a server that has ended, with what a kill left there."""
    with contextlib.suppress(OSError, EmbeddedError):
        _check_private(directory)
        _clear(directory)
        directory.rmdir()


def _clear(directory: Path) -> None:
    for stale in directory.glob(".s.PGSQL.*"):
        stale.unlink()


def _bases() -> Iterator[Path]:
    runtime = os.environ.get("XDG_RUNTIME_DIR")
    if runtime:
        yield Path(runtime) / "onceq"
    own = f"onceq-{os.geteuid()}"
    yield Path(tempfile.gettempdir()) / own
    yield Path("/tmp") / own  # noqa: S108 - made 0700 and its owner checked


def _prepare(base: Path, name: str) -> Path:
    directory = base / name
    if not _PLAIN.match(str(directory)):
        raise EmbeddedError("its name has a character that a socket list cannot hold")
    if len(os.fsencode(directory / f".s.PGSQL.{PORT}")) > _PATH_BYTES_MAX:
        raise EmbeddedError(f"a socket path there is longer than {_PATH_BYTES_MAX} bytes")
    for path in (base, directory):
        path.mkdir(mode=0o700, exist_ok=True)
        _check_private(path)
    _clear(directory)  # PostgreSQL would believe the lock file of a zombie
    return directory


def _check_private(path: Path) -> None:
    found = path.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid():
        raise EmbeddedError(f"{path} is not a directory of this user")
    if stat.S_IMODE(found.st_mode) & 0o077:
        raise EmbeddedError(f"{path} is open to other users (chmod 700 it)")
