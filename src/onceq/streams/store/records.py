"""What a store notes in its log beside frames, and what that changes of what it knows. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, TypeAlias

import msgspec
from msgspec.structs import replace

from onceq.streams.model import asks
from onceq.streams.model.choice import Bridge, Stage
from onceq.streams.model.log import merged
from onceq.streams.model.losses import still_stable
from onceq.streams.model.quorum import StoreList
from onceq.streams.model.tombstones import Positions, joined
from onceq.streams.store.log.entries import EntryKind


class Promised(msgspec.Struct, frozen=True, kw_only=True):
    """An epoch was promised to a life of the source of a stream. own: its list.

    regid: of the source here; 0: as it is.
    """

    stream: int
    epoch: int
    life: int
    own: StoreList
    topic: str = ""
    session: int = 0
    regid: int = 0


class Admitted(msgspec.Struct, frozen=True, kw_only=True):
    """The store was admitted: of its own log it keeps what lies before `kept`.

    life: to which the epoch is promised from now on. begin: what lies before was trimmed by others.
    end: of the log, with the copies that came just before. positions: of receivers, by their keys.
    address, late_join: the source's.
    """

    stream: int
    life: int
    bridge: Bridge
    kept: int
    begin: int
    end: int
    positions: Mapping[str, int] = {}
    address: str = ""
    marks: Mapping[str, int] = {}
    late_join: bool = True


class Registered(msgspec.Struct, frozen=True, kw_only=True):
    """A receiver was registered, by topic and session, or by an id of its own.

    mark: of its registration, see `tombstones`. With a greater one than before, it begins anew.
    """

    stream: int
    regid: int
    topic: str
    session: int
    below: int
    mark: int = 0


class Acknowledged(msgspec.Struct, frozen=True, kw_only=True):
    """A receiver has processed everything below."""

    stream: int
    regid: int
    below: int


class Deregistered(msgspec.Struct, frozen=True, kw_only=True):
    """A receiver was forgotten: by its id here, or by the key that its position has anywhere.

    mark: the tombstone that stays; 0: none does, and nothing is known of it any more.
    """

    stream: int
    regid: int = 0
    key: str = ""
    mark: int = 0


class Trimmed(msgspec.Struct, frozen=True, kw_only=True):
    """What lies before a number was given up. forced: though a receiver had not acknowledged it."""

    stream: int
    below: int
    forced: bool = False


class Passed(msgspec.Struct, frozen=True, kw_only=True):
    """A store that keeps no messages saw those before a number."""

    stream: int
    end: int


class Ended(msgspec.Struct, frozen=True, kw_only=True):
    """A stream was deregistered: nothing is left of it but that. topic, session: its source's."""

    stream: int
    topic: str = ""
    session: int = 0


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
    """All that a store knows of a stream but its frames. local: its short number in the log.

    session, regid, address, late_join: of its source; regid: at this store, and no other's there.
    is_gone: it was deregistered; then it is as one that was promised to nobody, and nothing more.
    """

    stream: int
    local: int
    topic: str = ""
    session: int = 0
    regid: int = 0
    address: str = ""
    late_join: bool = True
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
    marks: Mapping[str, int] = {}
    is_gone: bool = False

    @property
    def admitted(self) -> int:
        """The epoch of its admission; 0 if it was never admitted to what was sent."""
        bridge = self.bridge
        return 0 if bridge is None or bridge.stage is Stage.CREATING else bridge.epoch

    def in_spite(self, below: int, bridge: Bridge) -> int:
        """Return what is left of what it knows, below a number, in the epoch of a record.

        What was accepted as lost since it was admitted the last time, is not.
        """
        return still_stable(below, self.admitted, bridge.losses)

    @property
    def known(self) -> Positions:
        """What it knows of receivers, those that were deregistered too."""
        return Positions(below=self.positions, marks=self.marks)


class Snapshot(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that a store knows but its frames. regid: the last that it gave."""

    regid: int = 0
    streams: tuple[Held, ...] = ()


Record: TypeAlias = (
    Promised | Admitted | Registered | Acknowledged | Deregistered | Trimmed | Passed | Ended
)

KINDS: Final[dict[type[Any], EntryKind]] = {
    Promised: EntryKind.PROMISE,
    Admitted: EntryKind.ADMIT,
    Registered: EntryKind.REGISTER,
    Acknowledged: EntryKind.ACK,
    Deregistered: EntryKind.DEREGISTER,
    Trimmed: EntryKind.TRIM,
    Passed: EntryKind.PASS,
    Ended: EntryKind.END,
}

_ENCODER: Final = msgspec.msgpack.Encoder()
_DECODERS: Final = {kind: msgspec.msgpack.Decoder(record) for record, kind in KINDS.items()}
_SNAPSHOTS: Final = msgspec.msgpack.Decoder(Snapshot)
_STABLE: Final = msgspec.msgpack.Decoder(dict[int, int])


def packed(record: Record | Snapshot) -> bytes:
    """Return the payload of a record's entry."""
    return _ENCODER.encode(record)


def record_of(kind: EntryKind, payload: bytes) -> Record:
    """Return the record that an entry holds."""
    return _DECODERS[kind].decode(payload)  # type: ignore[no-any-return] # by the kind


def packed_stable(stable: Mapping[int, int]) -> bytes:
    """Return the payload of a mark that says below what streams are stable, by short numbers."""
    return _ENCODER.encode(stable)


def stable_of(payload: bytes) -> Mapping[int, int]:
    """Return what a mark says of that; older logs say nothing."""
    return _STABLE.decode(payload) if payload else {}


def snapshot_of(payload: bytes) -> Snapshot:
    """Return the snapshot that an entry holds."""
    return _SNAPSHOTS.decode(payload)


def after(held: Held, record: Record) -> Held:
    """Return what is known of a stream after a record."""
    match record:
        case Promised() | Admitted():
            return _after_control(held, record)
        case Registered():
            return _with_receiver(held, record)
        case Acknowledged():
            return _with_position(held, record.regid, record.below)
        case Deregistered():
            return _without(held, record)
        case Trimmed():
            begin = max(held.begin, min(record.below, held.end))
            return replace(held, begin=begin, damaged=_from(held.damaged, begin))
        case Passed():
            end = max(held.end, record.end)
            return replace(held, begin=end, end=end)
        case Ended():
            return Held(
                stream=held.stream,
                local=held.local,
                topic=record.topic,
                session=record.session,
                promised=asks.EPOCH_MAX,
                is_gone=True,
            )


def _after_control(held: Held, record: Promised | Admitted) -> Held:
    if isinstance(record, Admitted):
        return _after_admission(held, record)
    hints = held.hints
    if held.bridge is None:
        hints = tuple(dict.fromkeys((*hints, record.own)))
    promised = replace(
        held,
        promised=record.epoch,
        life=record.life,
        hints=hints,
        regid=record.regid or held.regid,
    )
    if not record.topic:
        return promised
    return replace(promised, topic=record.topic, session=record.session)


def _after_admission(held: Held, record: Admitted) -> Held:
    """Return what is known after an admission: the log was cut, and copies came."""
    damaged = tuple(number for number in held.damaged if number < record.kept)
    kept = {key: held.in_spite(below, record.bridge) for key, below in held.positions.items()}
    own = Positions(below=kept, marks=held.marks)
    known = joined(own, Positions(below=record.positions, marks=record.marks))
    return replace(
        held,
        promised=record.bridge.epoch,
        life=record.life,
        bridge=record.bridge,
        begin=record.begin,
        end=record.end,
        stable=min(held.in_spite(held.stable, record.bridge), record.end),
        damaged=_from(damaged, record.begin),
        positions=known.below,
        receivers=tuple(one for one in held.receivers if one.key in known.below),
        marks=known.marks,
        address=record.address or held.address,
        late_join=record.late_join,
    )


def receiver(held: Held, regid: int) -> Receiver | None:
    """Return the receiver with this id, if it is registered here."""
    return next((one for one in held.receivers if one.regid == regid), None)


def is_registered(held: Held, ask: asks.Acknowledge | asks.Deregister) -> bool:
    """Whether a receiver is registered here, and its id is not another's since."""
    known = receiver(held, ask.regid)
    return known is not None and ask.session in {0, known.session}


def is_asked(one: Receiver, ask: asks.Register) -> bool:
    """Whether a receiver is known here. One with neither id nor session never is: it is another."""
    if ask.session:
        return (one.topic, one.session) == (ask.topic, ask.session)
    return bool(ask.regid) and (one.regid, one.session) == (ask.regid, 0)


def _with_receiver(held: Held, record: Registered) -> Held:
    noted = Receiver(regid=record.regid, topic=record.topic, session=record.session)
    others = tuple(one for one in held.receivers if one.regid != record.regid)
    marks = {noted.key: record.mark} if record.mark else {}
    known = joined(held.known, Positions(below={noted.key: record.below}, marks=marks))
    return replace(held, receivers=(*others, noted), positions=known.below, marks=known.marks)


def _with_position(held: Held, regid: int, below: int) -> Held:
    known = receiver(held, regid)
    if known is None:
        return held
    return replace(held, positions=merged((held.positions, {known.key: below})))


def _without(held: Held, record: Deregistered) -> Held:
    known = receiver(held, record.regid)
    gone = record.key if known is None else known.key
    left = {key: below for key, below in held.positions.items() if key != gone}
    marks = {key: mark for key, mark in held.marks.items() if key != gone}
    if record.mark:
        marks[gone] = record.mark
    others = tuple(one for one in held.receivers if one.key != gone)
    return replace(held, positions=left, receivers=others, marks=marks)


def _from(numbers: tuple[int, ...], begin: int) -> tuple[int, ...]:
    return tuple(number for number in numbers if number >= begin)
