"""How far a file is submitted, and the rejects so far: two files beside each other.

Used by `submit`. The track is a note of how many rows are dealt with and how long the file of
rejects was then. It is written after the commit of a batch and removed with the last row. A run
that finds one cuts the rejects back to it and goes on after those rows. So a kill at any moment
leaves at most one batch to be sent again. Its rids make that harmless, and its rejects are
cut off and written again: none is lost, none is doubled.

Nothing depends on the track being there, or being the newest: a run without one begins with the
first row. One that is torn, of something else, beside rejects that are not its own, or ahead of the
repository is not used. That is why it is never synced.
"""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Generator, Sequence
from pathlib import Path
from typing import Final, Self

import msgspec

from onceq.errors import IllegalState, InvalidValue
from onceq.files.disk import DISK, Disk
from onceq.files.rows import BadRow

NOTE_BYTES_MAX: Final = 65_536


class Note(msgspec.Struct, frozen=True, kw_only=True):
    """How far a file is submitted. subject: a digest of what is submitted, by whom and to where.

    row: the last one dealt with. last_eid: of the last element sent; None: none yet.
    states: how many rows are in each.
    """

    subject: str
    row: int = 0
    last_eid: str | None = None
    states: dict[str, int] = {}
    rejected: int = 0
    rejects_bytes: int = 0
    rejects_sha256: str = hashlib.sha256().hexdigest()


def encode(note: Note) -> bytes:
    """Returns a note as a line that shows whether it is complete."""
    text = msgspec.json.encode(note)
    return hashlib.sha256(text).hexdigest().encode() + b" " + text + b"\n"


def decode(line: bytes) -> Note | None:
    """Returns the note in a line; None if it is torn."""
    digest, _, rest = line.partition(b" ")
    text = rest.partition(b"\n")[0]
    if hashlib.sha256(text).hexdigest().encode() != digest:
        return None
    try:
        return msgspec.json.decode(text, type=Note)
    except msgspec.DecodeError:
        return None


class Track:
    """The track beside a file of rejects. For one process at a time; a second gets IllegalState."""

    def __init__(self, rejects: Path, subject: str, disk: Disk = DISK) -> None:
        self._path = rejects.with_name(f".{rejects.name}.track")
        self._disk = disk
        self._subject = subject
        self._fd = self._open_locked()
        self._rejects = _Rejects(rejects, disk)
        self.note = Note(subject=subject)

    def _open_locked(self) -> int:
        try:
            fd = self._disk.open(self._path)
        except PermissionError as error:
            raise InvalidValue(
                f"{self._path.parent} cannot be written: --rejects says where else bad rows go, "
                f"and beside them how far the file is submitted ({error})"
            ) from None
        if not (self._disk.lock(fd) and self._disk.is_at(fd, self._path)):
            self._disk.close(fd)
            raise IllegalState(f"another `onceq submit` writes {self._path}: wait for its end")
        return fd

    def former(self) -> Note | None:
        """Returns the note that a former run of the same file left; None if there is none."""
        note = decode(self._disk.read(self._fd, NOTE_BYTES_MAX, 0))
        return note if note is not None and note.subject == self._subject else None

    @contextlib.contextmanager
    def kept_if_begun(self) -> Generator[None]:
        """Removes the track if the block fails before any run has noted anything."""
        try:
            yield
        except BaseException:
            if not self._disk.size(self._fd):
                self._disk.remove(self._path)
            raise

    def resume(self, note: Note | None) -> bool:
        """Goes on from a note, or else begins anew. False: the rejects are not as it says."""
        if note is not None and self._rejects.resume(note.rejects_bytes, note.rejects_sha256):
            self.note = note
            return True
        self._disk.cut(self._fd, 0)
        self._rejects.resume(0, hashlib.sha256().hexdigest())
        return note is None

    def advance(self, row: int, states: Sequence[str], bad: Sequence[BadRow], eid: str) -> None:
        """Notes that the rows up to this one are dealt with. eid: of the last one sent, or ""."""
        self._rejects.append(b"".join(one.line() for one in bad))
        counts = dict(self.note.states)
        for state in states:
            counts[state] = counts.get(state, 0) + 1
        self.note = Note(
            subject=self._subject,
            row=row,
            last_eid=eid or self.note.last_eid,
            states=counts,
            rejected=self.note.rejected + len(bad),
            rejects_bytes=self._rejects.length,
            rejects_sha256=self._rejects.sha256,
        )
        self._disk.write_all(self._fd, encode(self.note), 0)

    def end(self) -> None:
        """Makes the rejects durable, or removes the file if it has none; then removes the track."""
        self._rejects.end()
        self._disk.remove(self._path)

    def close(self) -> None:
        """Closes both files."""
        self._rejects.close()
        self._disk.close(self._fd)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class _Rejects:
    """The file with the bad rows, one on each line; made when there is one."""

    def __init__(self, path: Path, disk: Disk) -> None:
        self._path = path
        self._disk = disk
        self._fd: int | None = None
        self._digest = hashlib.sha256()
        self.length = 0

    @property
    def sha256(self) -> str:
        """Of all lines."""
        return self._digest.hexdigest()

    def resume(self, length: int, sha256: str) -> bool:
        """Cuts the file back to this length. False, and nothing happens: it is another file."""
        if self._fd is None and not self._disk.exists(self._path):
            return length == 0
        fd = self._opened()
        done, digest = self._disk.digest(fd, length)
        if (done, digest.hexdigest()) != (length, sha256):
            return False
        self._disk.cut(fd, length)
        self._digest, self.length = digest, length
        return True

    def append(self, data: bytes) -> None:
        """Appends lines."""
        if data:
            self._disk.write_all(self._opened(), data, self.length)
            self._digest.update(data)
            self.length += len(data)

    def end(self) -> None:
        """Makes the lines durable; if there are none, removes what an earlier run left."""
        if self.length:
            self._disk.sync(self._opened())
            self._disk.sync_directory(self._path.parent)
        else:
            self._disk.remove(self._path)

    def _opened(self) -> int:
        if self._fd is None:
            self._fd = self._disk.open(self._path)
        return self._fd

    def close(self) -> None:
        """Closes the file."""
        if self._fd is not None:
            self._disk.close(self._fd)
