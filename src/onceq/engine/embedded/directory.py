"""The directory of an embedded server: what is in it, and whether it is ours.

    DIRECTORY/            0700, owned by who runs the server
      onceq-embedded      the marker: layout version, written first
      users.lock, change.lock, run.lock      see `locks`
      postgres.log        PostgreSQL's log, one older generation beside it
      cluster/            PostgreSQL's data directory; appears by an atomic rename
      cluster.new.*       a cluster being made, or what a crash left of one

For this package only, but for `sync_directory`. It never adopts a directory that holds anything
else, never gives others a permission, and never follows a marker of another layout.
"""

from __future__ import annotations

import os
import pwd
import re
import stat
from pathlib import Path

from onceq.errors import DirectoryRefused, InvalidValue

_MARKER = "onceq-embedded"
_LAYOUT = 1
_PATH_BYTES_MAX = 700  # PostgreSQL cuts paths at 1023 bytes, its own names included
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")
_EMPTY_ENOUGH = frozenset({"lost+found"})  # a fresh file system


class Layout:
    """The paths inside one directory, which is absolute with links resolved.

    marker: its presence says that the directory is ours. users_lock: shared by users. change_lock:
    held while the server is started or stopped. run_lock: held by PostgreSQL's processes; holds the
    postmaster's identity. log: PostgreSQL's. cluster: its data directory. pid_file: its own record
    of the postmaster.
    """

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.marker = directory / _MARKER
        self.users_lock = directory / "users.lock"
        self.change_lock = directory / "change.lock"
        self.run_lock = directory / "run.lock"
        self.log = directory / "postgres.log"
        self.cluster = directory / "cluster"
        self.pid_file = self.cluster / "postmaster.pid"

    def leftovers(self) -> list[Path]:
        """What crashed attempts to make a cluster left behind."""
        return sorted(self.directory.glob("cluster.new.*"))

    def cluster_major(self) -> int | None:
        """The major version that made the cluster; None when there is no cluster yet.

        DirectoryRefused: it is damaged.
        """
        try:
            return int((self.cluster / "PG_VERSION").read_text(encoding="ascii"))
        except FileNotFoundError:
            if self.cluster.exists():
                raise DirectoryRefused(
                    f"{self.cluster} has no PG_VERSION: the cluster is damaged. "
                    "Restore the directory from a backup, or use another."
                ) from None
            return None
        except ValueError:
            raise DirectoryRefused(
                f"{self.cluster}/PG_VERSION is not a number: the cluster is damaged, or was "
                "made by a PostgreSQL before 10. Restore it from a backup, or use another."
            ) from None


def claim_directory(directory: str | os.PathLike[str]) -> Layout:
    """Check that the directory is ours, making or adopting it if new or empty.

    Raises DirectoryRefused, or InvalidValue for a path that cannot be; at most an empty directory
    was made.
    """
    path = _checked_path(directory)
    try:
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
        layout = Layout(path.resolve(strict=True))
        _check_owner(layout.directory)
        _check_or_mark(layout)
    except (FileExistsError, NotADirectoryError):
        raise DirectoryRefused(f"{path} is not a directory; name another.") from None
    except OSError as error:
        raise DirectoryRefused(
            f"{path} cannot be used as a directory for PostgreSQL: {error.strerror}. "
            "Make it writable for this user, free some space, or name another."
        ) from error
    return layout


def existing_directory(directory: str | os.PathLike[str]) -> Layout | None:
    """Like claim_directory, but None, and nothing made, if no server was ever there."""
    path = _checked_path(directory)
    try:
        names = {entry.name for entry in path.iterdir()}
    except FileNotFoundError:
        return None
    except OSError as error:
        raise DirectoryRefused(f"{path} cannot be read: {error.strerror}.") from error
    if not _EMPTY_ENOUGH.issuperset(names):
        return claim_directory(path)
    return None


def sync_directory(directory: Path) -> None:
    """Make the names in a directory durable."""
    fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def _checked_path(directory: str | os.PathLike[str]) -> Path:
    try:
        path = Path(directory).expanduser().resolve()
    except (RuntimeError, ValueError) as error:  # ~nobody-of-that-name, a loop of links, NUL
        raise InvalidValue(f"{directory!r} is not a path: {error}. Name another.") from None
    if _CONTROL.search(str(path)):
        raise InvalidValue(
            f"{str(path)!r} has a control character, which PostgreSQL's files "
            "cannot hold. Name another directory."
        )
    if len(os.fsencode(path)) > _PATH_BYTES_MAX:
        raise InvalidValue(
            f"{path} is longer than {_PATH_BYTES_MAX} bytes, too long for PostgreSQL. "
            "Name a directory with a shorter path."
        )
    return path


def _check_owner(directory: Path) -> None:
    found = directory.stat()
    if found.st_uid != os.geteuid():
        raise DirectoryRefused(
            f"{directory} belongs to user {_user(found.st_uid)}, but this process runs as "
            f"{_user(os.geteuid())}. Run as its owner, or name a directory of your own."
        )


def _check_or_mark(layout: Layout) -> None:
    if layout.marker.exists():
        _check_marker(layout)
        _check_mode(layout.directory)
        return
    foreign = sorted({entry.name for entry in layout.directory.iterdir()} - _EMPTY_ENOUGH)
    # Another process may have marked the directory since the first look.
    if foreign and not layout.marker.exists():
        raise DirectoryRefused(
            f"{layout.directory} is not an onceq directory: it holds {foreign[0]!r} and has no "
            f"{_MARKER} file. Nothing was changed. Name an empty or new directory."
        )
    layout.directory.chmod(0o700)
    layout.marker.write_text(f"layout {_LAYOUT}\n", encoding="ascii")


def _check_marker(layout: Layout) -> None:
    # An empty marker is one that was being written by a process that died, or by another now.
    words = layout.marker.read_text(encoding="ascii", errors="replace").split()
    if words and words != ["layout", str(_LAYOUT)]:
        raise DirectoryRefused(
            f"{layout.directory} was made by another version of onceq ({' '.join(words)}; this "
            f"one knows layout {_LAYOUT}). Upgrade onceq, or name another directory."
        )


def _check_mode(directory: Path) -> None:
    mode = stat.S_IMODE(directory.stat().st_mode)
    if mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise DirectoryRefused(
            f"{directory} is writable by others (mode {mode:04o}), who could replace the data. "
            f"Check its contents, then: chmod 700 '{directory}'"
        )


def _user(uid: int) -> str:
    try:
        return f"{pwd.getpwuid(uid).pw_name} ({uid})"
    except KeyError:
        return str(uid)
