"""Files of what is recorded: one for each life, one event a line, and one of what is under way.

An event of numbers in a row is noted when the row ends. Until then it stands in a small file
beside, mapped into memory, so that each number is there at once, also after a kill -9; that costs
less than a microsecond. Never interprets: `onceq.streams.history` does.
"""

from __future__ import annotations

import mmap
import struct
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, Final, Self, TypeAlias

import msgspec
from msgspec.structs import replace

from onceq.history.events import Recorder
from onceq.history.events.files import EVENTS_PATTERN, Lines, parts, read_part
from onceq.streams.history.kinds import KINDS, Delivered, Sent, StreamEvent

Made: TypeAlias = Callable[[int, int, tuple[Any, ...]], Sent | Delivered]
"""Makes the event of a row, of its first and last number and its key."""

UNDER_WAY: Final = ".run"
"""The suffix of the file beside, in place of that of the events."""
_HEAD: Final = struct.Struct("=QI")
_WORD: Final = 8
"""Bytes of the end of the row, written by one store of the processor: a death leaves the old one or
the new one. What packs bytes clears them first, and a death between the two hid the row."""
_SIZE: Final = 4_096
_TAIL_BYTES: Final = 4_096
_PART_BYTES: Final = 64 << 20
_LINES: Final = Lines[Any](KINDS)
_ENCODER: Final = msgspec.json.Encoder()


class Journal:
    """Appends events to a file, which is made: each is there when the method returns.

    One life, any of its threads, one file. actor: who records. Raises FileExistsError: a life that
    was killed may have left what a later one must not write over.
    """

    def __init__(self, path: Path, actor: str = "") -> None:
        path.touch(exist_ok=False)
        self._actor = actor
        self._recorder = Recorder(path, actor)
        beside = path.with_suffix(UNDER_WAY)
        beside.write_bytes(bytes(_SIZE))
        with beside.open("r+b") as file:
            self._map = mmap.mmap(file.fileno(), _SIZE)
        self._ends = memoryview(self._map)[:_WORD].cast("Q")
        self._lock = threading.RLock()
        self._row: Sent | Delivered | None = None
        self._key: tuple[Any, ...] = ()
        self._end = 0

    def record(self, event: StreamEvent, *, ends_row: bool = True) -> None:
        """Append an event, behind the row that is under way; or beside it, which then goes on."""
        with self._lock:
            if ends_row:
                self.end_row()
            self._recorder.record(event)

    def go_on(self, first: int, last: int, key: tuple[Any, ...], made: Made) -> None:
        """Note numbers that follow, in the row under way if that has the same key and they fit.

        made: called with first, last and the key, if another row begins.
        """
        with self._lock:
            if first != self._end or key != self._key or self._row is None:
                self.end_row()
                self._begin(made(first, last, key))
                self._key = key
            self._end = self._ends[0] = last + 1

    def _begin(self, row: Sent | Delivered) -> None:
        row = replace(row, at=row.at or time.monotonic_ns(), actor=row.actor or self._actor)
        data = _ENCODER.encode(row)
        if _HEAD.size + len(data) > _SIZE:
            raise ValueError(f"the content of {row.first} is too long: a digest is meant")
        self._map[_HEAD.size : _HEAD.size + len(data)] = data
        _HEAD.pack_into(self._map, 0, 0, len(data))
        self._row = row

    def end_row(self) -> None:
        """Append the row that is under way, if there is one."""
        with self._lock:
            if self._row is not None:
                self._recorder.record(replace(self._row, last=self._end - 1))
                self._ends[0] = 0
                self._row = None

    def close(self) -> None:
        """End the row, and close the files."""
        self.end_row()
        self._ends.release()
        self._map.close()
        self._recorder.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def read(path: Path) -> Iterator[StreamEvent]:
    """Yield the events of a file, and the row that was under way when its life ended.

    A last line cut off by a death is left out. Raises msgspec.DecodeError for any other that is not
    an event, with the file in its notes.
    """
    last: StreamEvent | None = None
    for part in parts(path, _PART_BYTES):
        for _, events in read_part(part, _LINES):
            yield from events
            last = events[-1] if events else last
    row = under_way(path)
    if row is not None and row != last:
        yield row


def under_way(path: Path) -> Sent | Delivered | None:
    """Return the row that is under way in a file of events; None: there is none."""
    beside = path.with_suffix(UNDER_WAY)
    data = beside.read_bytes() if beside.exists() else b""
    end, size = _HEAD.unpack_from(data) if len(data) == _SIZE else (0, 0)
    if not end:
        return None
    row: Sent | Delivered = msgspec.json.decode(
        data[_HEAD.size : _HEAD.size + size], type=Sent | Delivered
    )
    return replace(row, last=end - 1)


def tail(path: Path) -> list[StreamEvent]:
    """Return the last events of a file that may grow, and the row under way; nothing: no file."""
    if not path.exists():
        return []
    with path.open("rb") as file:
        file.seek(max(0, path.stat().st_size - _TAIL_BYTES))
        lines = file.read().split(b"\n")[:-1]
    whole = [line for line in lines if line.startswith(b"{") and line.endswith(b"}")]
    found: list[StreamEvent] = _LINES.decode(b"\n".join(whole)) if whole else []
    row = under_way(path)
    return found if row is None else [*found, row]


def paths_of(given: Iterable[Path]) -> list[Path]:
    """Return files of events: those that are given, and those in folders that are.

    Raises FileNotFoundError for one that is not there, or a folder that has none.
    """
    found: list[Path] = []
    for path in given:
        within = sorted(path.glob(EVENTS_PATTERN)) if path.is_dir() else [path]
        if not within or not within[0].exists():
            raise FileNotFoundError(f"{path}: there are no events")
        found += within
    return found


def events_of(paths: Iterable[Path]) -> Iterator[StreamEvent]:
    """Yield the events of all files, one file after the other."""
    for path in paths:
        yield from read(path)
