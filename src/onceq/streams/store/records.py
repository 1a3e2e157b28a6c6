"""What a store notes in its log beside frames: a catalogue is what they add up to. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, TypeAlias

import msgspec

from onceq.streams.model.choice import Bridge
from onceq.streams.model.quorum import StoreList
from onceq.streams.store.log.entries import EntryKind


class Promised(msgspec.Struct, frozen=True, kw_only=True):
    """An epoch was promised to a life of the source of a stream. own: its list."""

    stream: int
    epoch: int
    life: int
    own: StoreList


class Admitted(msgspec.Struct, frozen=True, kw_only=True):
    """The store was admitted: of its own log it keeps what lies before `kept`.

    life: to which the epoch is promised from now on. begin: what lies before was trimmed by others.
    end: of the log, with the copies that came just before. positions: of receivers, by their keys.
    """

    stream: int
    life: int
    bridge: Bridge
    kept: int
    begin: int
    end: int
    positions: Mapping[str, int] = {}


class Registered(msgspec.Struct, frozen=True, kw_only=True):
    """A receiver was registered, by topic and session, or by an id of its own."""

    stream: int
    regid: int
    topic: str
    session: int
    below: int


class Acknowledged(msgspec.Struct, frozen=True, kw_only=True):
    """A receiver has processed everything below."""

    stream: int
    regid: int
    below: int


class Deregistered(msgspec.Struct, frozen=True, kw_only=True):
    """A receiver was forgotten."""

    stream: int
    regid: int


class Trimmed(msgspec.Struct, frozen=True, kw_only=True):
    """What lies before a number was given up. forced: though a receiver had not acknowledged it."""

    stream: int
    below: int
    forced: bool = False


class Receiver(msgspec.Struct, frozen=True, kw_only=True):
    """A receiver that is registered here. regid: its id at this store, and at no other.

    `key` is its name at all stores.
    """

    regid: int
    topic: str
    session: int

    @property
    def key(self) -> str:
        """Return by what its position is known at all stores."""
        return key_of(self.regid, self.session)


def key_of(regid: int, session: int) -> str:
    """Return the name of a receiver at all stores: its session, or the id that it chose itself."""
    return f"session {session:x}" if session else f"regid {regid}"


class Held(msgspec.Struct, frozen=True, kw_only=True):
    """All that a store knows of a stream but its frames. local: its short number in the log."""

    stream: int
    local: int
    promised: int = 0
    life: int = 0
    hints: tuple[StoreList, ...] = ()
    bridge: Bridge | None = None
    begin: int = 0
    end: int = 0
    stable: int = 0
    damaged: tuple[int, ...] = ()
    positions: Mapping[str, int] = {}
    receivers: tuple[Receiver, ...] = ()


class Snapshot(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that a store knows but its frames. regid: the last that it gave."""

    regid: int = 0
    streams: tuple[Held, ...] = ()


Record: TypeAlias = Promised | Admitted | Registered | Acknowledged | Deregistered | Trimmed

KINDS: Final[dict[type[Any], EntryKind]] = {
    Promised: EntryKind.PROMISE,
    Admitted: EntryKind.ADMIT,
    Registered: EntryKind.REGISTER,
    Acknowledged: EntryKind.ACK,
    Deregistered: EntryKind.DEREGISTER,
    Trimmed: EntryKind.TRIM,
}

_ENCODER: Final = msgspec.msgpack.Encoder()
_DECODERS: Final = {kind: msgspec.msgpack.Decoder(record) for record, kind in KINDS.items()}
_SNAPSHOTS: Final = msgspec.msgpack.Decoder(Snapshot)


def packed(record: Record | Snapshot) -> bytes:
    """Return the payload of a record's entry."""
    return _ENCODER.encode(record)


def record_of(kind: EntryKind, payload: bytes) -> Record:
    """Return the record that an entry holds."""
    return _DECODERS[kind].decode(payload)  # type: ignore[no-any-return] # by the kind


def snapshot_of(payload: bytes) -> Snapshot:
    """Return the snapshot that an entry holds."""
    return _SNAPSHOTS.decode(payload)
