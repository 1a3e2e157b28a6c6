"""The directory of a store: whose it is, and that one process has it."""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Callable
from pathlib import Path
from typing import Final, TypeAlias

import msgspec

from onceq.streams.errors import StoreRefused
from onceq.streams.store.log.segments import Files

IDENTITY: Final = "store.json"
VERSION: Final = 1
Chance: TypeAlias = Callable[[int], bytes]


class Identity(msgspec.Struct, frozen=True, kw_only=True):
    """Whose a directory is. segment_bytes: of its log, for ever. keeps: whether messages, too."""

    version: int
    store: str
    segment_bytes: int
    keeps: bool = True


def initialize(
    directory: Path, chance: Chance, *, segment_bytes: int, keeps: bool = True
) -> Identity:
    """Make an empty directory a new store's. chance: gives so many random bytes.

    Raises StoreRefused if it is not empty.
    """
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    if any(directory.iterdir()):
        raise StoreRefused(f"{directory} is not empty: a new store begins in an empty directory")
    made = Identity(
        version=VERSION, store=chance(16).hex(), segment_bytes=segment_bytes, keeps=keeps
    )
    path = directory / IDENTITY
    path.write_bytes(msgspec.json.encode(made))
    with path.open("rb") as file:
        os.fsync(file.fileno())
    Files(directory).sync_directory()
    return made


def identified(directory: Path) -> Identity:
    """Return whose a directory is. Raises StoreRefused if it is no store's of this version."""
    path = directory / IDENTITY
    try:
        found = msgspec.json.decode(path.read_bytes(), type=Identity)
    except FileNotFoundError:
        raise StoreRefused(
            f"{directory} is no store's: give the directory of one, or begin one there"
        ) from None
    except msgspec.DecodeError as error:
        raise StoreRefused(f"{path} cannot be read: {error}") from error
    if found.version != VERSION:
        raise StoreRefused(f"{directory} is a store's of version {found.version}, not {VERSION}")
    if directory.stat().st_uid != os.geteuid():
        raise StoreRefused(f"{directory} belongs to another user: run the store as that user")
    return found


def locked(directory: Path) -> int:
    """Lock a store's directory; return the handle that holds the lock.

    Raises StoreRefused if another process has it.
    """
    handle = os.open(directory / IDENTITY, os.O_RDONLY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        with contextlib.suppress(OSError):
            os.close(handle)
        raise StoreRefused(f"{directory} is in use by another store process") from error
    return handle
