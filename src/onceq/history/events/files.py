"""Files of events: how processes write down what they did, and how that is read.

A process appends each event to a file of its own, by one write, so that what it did before a
kill -9 is there afterwards. One JSON object on each line: {"event": "SendOk", "at": ..., "actor":
..., and the fields of the class that differ from their defaults}; bytes are base64. The final state
is beside them in files of the same form. Never interprets: `onceq.history` does.
"""

from __future__ import annotations

import dataclasses
import hashlib
import itertools
import os
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, Self, TypeVar, Union

import msgspec
from msgspec.structs import replace

from onceq.history.events.final import FinalState, Place
from onceq.history.events.kinds import KINDS, Effect, Event

T = TypeVar("T")

FINAL_NAME, PLACES_NAME, EFFECTS_NAME = "final.json", "final.places", "final.effects"
"""The files of the final state, beside those of the events."""

EVENTS_PATTERN = "*.events"
_PIECE_BYTES = 1 << 20


def digest(content: bytes) -> str:
    """Returns a short fingerprint of a reply's content."""
    return hashlib.sha256(content).hexdigest()[:16]


class Recorder:
    """Appends events to a file; each one is there when `record` returns, even if this process dies.

    One process, any of its threads. actor: who records, unless the event says.
    """

    def __init__(self, path: Path, actor: str = "") -> None:
        self._actor = actor
        self._encoder = msgspec.json.Encoder()
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)

    def record(self, event: Event) -> None:
        """Appends an event, in one write."""
        complete = replace(
            event, at=event.at or time.monotonic_ns(), actor=event.actor or self._actor
        )
        line = self._encoder.encode(complete) + b"\n"
        written = os.write(self._file, line)
        if written != len(line):
            raise OSError(f"only {written} of {len(line)} bytes of an event were written")

    def close(self) -> None:
        """Closes the file."""
        os.close(self._file)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def load(paths: Iterable[Path]) -> list[Event]:
    """Returns the events in these files, by time. A last line cut off by a death is left out."""
    events = [event for path in paths for piece in read(path) for event in piece]
    events.sort(key=lambda event: event.at)
    return events


def read(path: Path) -> Iterator[list[Event]]:
    """Yields the events of a file piece by piece, in the order in which they were written.

    A last line cut off by a death is left out. Raises msgspec.DecodeError for any other that is
    not an event, with the file in its notes.
    """
    return _read(path, EVENTS)


class Lines(Generic[T]):
    """A decoder of lines, each of them an object of one of these kinds."""

    def __init__(self, kinds: tuple[type[T], ...]) -> None:
        # msgspec takes a union only at run time.
        union: Any = Union[kinds]  # noqa: UP007 # made of a tuple, which `|` does not take
        self._decoder: msgspec.json.Decoder[T] = msgspec.json.Decoder(union)

    def decode(self, lines: bytes) -> list[T]:
        """Returns the objects. Raises msgspec.DecodeError."""
        return self._decoder.decode_lines(lines)


EVENTS, PLACES, EFFECTS = Lines(KINDS), Lines((Place,)), Lines((Effect,))
"""What the files hold."""


def _read(path: Path, lines: Lines[T]) -> Iterator[list[T]]:
    for whole, end in _whole_lines(path, 0, None):
        yield _decoded(lines, whole, path, end)


def _decoded(lines: Lines[T], whole: bytes, path: Path, end: int) -> list[T]:
    try:
        return lines.decode(whole)
    except msgspec.DecodeError as error:
        error.add_note(f"in {path}, before byte {end}")
        raise


def _whole_lines(path: Path, begin: int, end: int | None) -> Iterator[tuple[bytes, int]]:
    """Yields the lines that begin in a part of a file, many at a time, and where they end."""
    with path.open("rb") as file:
        begun = b""
        if begin:
            file.seek(begin - 1)
            file.readline()
        while end is None or file.tell() < end:
            left = _PIECE_BYTES if end is None else min(_PIECE_BYTES, end - file.tell())
            piece = file.read(left)
            if not piece:
                return
            if end is not None and file.tell() == end and not piece.endswith(b"\n"):
                piece += file.readline()
            whole, newline, rest = piece.rpartition(b"\n")
            if not newline:
                begun += piece
                continue
            yield begun + whole, file.tell()
            begun = rest


@dataclass(frozen=True, slots=True)
class Part:
    """The lines that begin in a part of a file, for one of several readers. end: not included."""

    path: str
    begin: int
    end: int


def parts(path: Path, most_bytes: int) -> list[Part]:
    """Returns parts of a file that together are all of it."""
    size = path.stat().st_size
    cuts = [*range(0, size, most_bytes), size]
    return [Part(str(path), low, high) for low, high in itertools.pairwise(cuts)]


def read_part(part: Part, lines: Lines[T]) -> Iterator[tuple[list[bytes], list[T]]]:
    """Yields lines of a part of a file, as they are and decoded. Raises as `read` does."""
    path = Path(part.path)
    for whole, end in _whole_lines(path, part.begin, part.end):
        raw = [line for line in whole.split(b"\n") if line]
        yield raw, _decoded(lines, whole, path, end)


def save_final(final: FinalState, folder: Path) -> None:
    """Writes the final state beside the files of events, for whoever checks them later."""
    encoder = msgspec.json.Encoder()
    (folder / PLACES_NAME).write_bytes(encoder.encode_lines(final.places))
    (folder / EFFECTS_NAME).write_bytes(encoder.encode_lines(final.effects))
    without_rows = dataclasses.replace(final, places=(), effects=())
    (folder / FINAL_NAME).write_bytes(encoder.encode(without_rows) + b"\n")


@dataclass(frozen=True, slots=True)
class StoredFinal:
    """A final state in files: its rows are read anew each time they are asked for.

    stated: everything but the rows. Raises FileNotFoundError if no final state was saved.
    """

    folder: Path
    stated: FinalState

    @classmethod
    def open(cls, folder: Path) -> StoredFinal:
        """Reads everything but the rows of the final state in a folder."""
        content = (folder / FINAL_NAME).read_bytes()
        return cls(folder, msgspec.json.decode(content, type=FinalState))

    def places(self) -> Iterator[Place]:
        """Yields the places."""
        for piece in _read(self.folder / PLACES_NAME, PLACES):
            yield from piece

    def effects(self) -> Iterator[Effect]:
        """Yields the ledger of effects."""
        for piece in _read(self.folder / EFFECTS_NAME, EFFECTS):
            yield from piece

    def load(self) -> FinalState:
        """Returns the final state as a whole, in memory."""
        return dataclasses.replace(
            self.stated, places=tuple(self.places()), effects=tuple(self.effects())
        )
