"""What processes note, in files that outlive them, and the messages that tell who sent them.

A message says of which life it is, and which number it has: so nobody must note what was sent.
"""

from __future__ import annotations

import mmap
import os
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Final, TypeAlias

import msgspec

_HEAD: Final = struct.Struct("<QQ")
_RUN: Final = struct.Struct("<QQQQ")
_END: Final = struct.Struct("<Q")
PAD: Final = bytes(range(256)) * 2
PAD_BYTES: Final = 16


def message(life: int, number: int) -> bytes:
    """Return the message that a life sends as a number."""
    at = number % 256
    return _HEAD.pack(life, number) + PAD[at : at + PAD_BYTES]


def sender_of(body: bytes, number: int) -> int:
    """Return the life that has sent a message as this number; 0: nobody sends such a one."""
    life: int = _HEAD.unpack_from(body)[0] if len(body) >= _HEAD.size else 0
    return life if body == message(life, number) else 0


class Note(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """The base of what is noted."""


class Began(Note, frozen=True):
    """A life of the source may send, in an epoch, from `number` on."""

    life: int
    epoch: int
    number: int


class StableTold(Note, frozen=True):
    """A life of the source was told that numbers which it had sent are stable."""

    life: int
    first: int
    last: int


class Fenced(Note, frozen=True):
    """A life of the source was told that another has taken over."""

    life: int
    epoch: int


class Ended(Note, frozen=True):
    """A life of the source has sent all, and all is stable. number: the one that would be next."""

    life: int
    number: int


class Delivered(Note, frozen=True):
    """A life of a receiver was shown numbers in a row, all of one epoch, sent by one life."""

    first: int
    last: int
    epoch: int
    life: int


class Lost(Note, frozen=True):
    """A life of a receiver was told that it does not get some numbers, and why."""

    first: int
    last: int
    why: str


class RolledBack(Note, frozen=True):
    """A life of a receiver was told that it saw some numbers in vain."""

    first: int
    last: int


Noted: TypeAlias = Began | StableTold | Fenced | Ended | Delivered | Lost | RolledBack
_DECODER: Final = msgspec.json.Decoder(Noted)
_ENCODER: Final = msgspec.json.Encoder()


class Notes:
    """The notes of a process; each is in its file before `add` returns."""

    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)

    def add(self, note: Note) -> None:
        """Note something."""
        os.write(self._file, _ENCODER.encode(note) + b"\n")


def decoded(line: bytes) -> Noted:
    """Return the note of a line."""
    made: Noted = _DECODER.decode(line)
    return made


def read(path: Path) -> Iterator[Noted]:
    """Yield the notes of a file; the last may be cut short, and then is none."""
    for line in path.read_bytes().split(b"\n")[:-1]:
        yield decoded(line)


class Run:
    """What a receiver was shown in a row, in a file that is mapped: each number is there at once.

    What is noted of it before the next begins is in both files if the process ends between.
    """

    def __init__(self, path: Path, noted: Notes) -> None:
        path.write_bytes(bytes(_RUN.size))
        with path.open("r+b") as file:
            self._map = mmap.mmap(file.fileno(), _RUN.size)
        self._noted = noted
        self._end = self._epoch = self._life = 0

    def add(self, number: int, epoch: int, life: int) -> None:
        """Note a number that was shown."""
        if (number, epoch, life) != (self._end, self._epoch, self._life):
            self.end()
            _RUN.pack_into(self._map, 0, 0, number, epoch, life)
            self._epoch, self._life = epoch, life
        self._end = number + 1
        _END.pack_into(self._map, 0, self._end)

    def end(self) -> None:
        """Note what was shown, and begin anew."""
        found = _delivered(bytes(self._map))
        if found is not None:
            self._noted.add(found)
        _END.pack_into(self._map, 0, 0)
        self._end = self._epoch = self._life = 0


def run_of(path: Path) -> Delivered | None:
    """Return what a process had shown and not noted when it ended."""
    return _delivered(path.read_bytes())


def _delivered(data: bytes) -> Delivered | None:
    end, first, epoch, life = _RUN.unpack(data)
    return Delivered(first=first, last=end - 1, epoch=epoch, life=life) if end > first else None
