"""Flips bits of a log below what it says was synced: damage, which no torn tail looks like."""

from __future__ import annotations

import contextlib
import random
from pathlib import Path

from onceq.streams.store.log import opening
from onceq.streams.store.log.entries import Geometry, decode_head
from onceq.streams.store.log.segments import Files


def proven(files: Files, geometry: Geometry) -> list[tuple[int, int]]:
    """Return the segments, each with the offset before which all is said to be synced."""
    numbers = files.numbers()
    data = files.read(numbers[-1])
    head = decode_head(data)
    if head is None:
        return []
    first = geometry.first(numbers[-1])
    read = opening.read(data, head, first)
    if not read.has_snapshot:
        return []
    rest = [(number, files.size(number)) for number in numbers[:-1]]
    return [one for one in (*rest, (numbers[-1], read.synced - first)) if one[1] > 0]


def flip(directory: Path, geometry: Geometry, chance: random.Random) -> tuple[int, int] | None:
    """Flip a bit; return in which segment, and at which offset; None: there was nothing to flip."""
    files = Files(directory)
    with contextlib.suppress(FileNotFoundError):  # the store has freed a segment meanwhile
        sized = proven(files, geometry)
        if sized:
            ((number, stop),) = chance.choices(sized, [size for _, size in sized])
            offset = chance.randrange(stop)
            with files.path(number).open("r+b") as file:
                file.seek(offset)
                byte = file.read(1)[0]
                file.seek(offset)
                file.write(bytes([byte ^ 1 << chance.randrange(8)]))
            return number, offset
    return None
