"""The processes of torture: a store, a life of the source, a life of a receiver.

Each is told everything by its arguments, and ends when it is told by SIGTERM, or is killed.
"""

from __future__ import annotations

import asyncio
import errno
import os
import signal
import time
from collections.abc import Coroutine
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from msgspec.structs import replace

from onceq.streams.errors import FlightFull, NotRegistered, SourceSucceeded
from onceq.streams.history import (
    Journal,
    Reader,
    ReceiverRecorder,
    SourceRecorder,
    record_opened,
)
from onceq.streams.model.quorum import listed
from onceq.streams.model.window import Flight
from onceq.streams.net.address import address
from onceq.streams.receiver.async_receiver import AsyncReceiver
from onceq.streams.receiver.driver import Wishes
from onceq.streams.receiver.ops import Message, Shown
from onceq.streams.receiver.placing import Who
from onceq.streams.source.async_source import AsyncSource
from onceq.streams.source.epochs import SourceLife, Timing
from onceq.streams.source.sending import Sending
from onceq.streams.store.daemon import Daemon
from onceq.streams.store.directory import initialize
from onceq.streams.store.disk_store import DiskStore
from onceq.streams.store.limits import Limits
from onceq.streams.store.log.segments import Files
from onceq.streams.store.records import key_of
from proof.streams_faultpoints.points import Armed, suffer
from proof.streams_simulation.variants import VARIANTS
from proof.streams_torture import messages

TOPIC: Final = "bars"
SESSION: Final = 9
TIMING: Final = Timing(
    ask_s=1.0,
    admit_s=5.0,
    interval_s=0.2,
    retry_s=0.1,
    resend_s=1.0,
    unresponsive_s=0.7,
    copy_s=30.0,
    change_s=1.0,
    room_s=2.0,
)
FLIGHT: Final = 2_000
ALONE_S: Final = 60.0
"""A source that is mistaken does not notice for so long that it reaches one store only."""
FULL: Final = "full"
FAILS: Final = "fails"
"""Files beside a store's directory: its disk is full; its next sync fails."""
ENOUGH: Final = "enough"
"""A file: the source is to send no more."""
FINISHED: Final = ".finished"
"""The suffix of a file that says that all is stable, and which number would be next."""
CHECKED_EVERY: Final = 500


class Ailing(Files):
    """The files of a store whose disk is full, or fails to sync, as files beside it say."""

    def _is(self, what: str) -> bool:
        return self.directory.with_suffix(f".{what}").exists()

    def reserve(self, handle: int, size: int) -> None:
        """See Files."""
        if self._is(FULL):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        super().reserve(handle, size)

    def sync(self, handle: int) -> None:
        """See Files."""
        if self._is(FAILS):
            self.directory.with_suffix(f".{FAILS}").unlink(missing_ok=True)
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        super().sync(handle)


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreOrder:
    """A store: its directory, where it listens, and its address as the list has it.

    notes: its file of events. life: a number of its own, ascending.
    """

    place: Path
    notes: Path
    life: int
    listen: str
    own: str
    kept_bytes: int
    segment_bytes: int
    armed: Armed | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LifeOrder:
    """A life of the source, or of a receiver. notes: its file of events. life: ascending.

    name: of a receiver; session: its id. is_mistaken: the source takes what one store has for
    stable.
    """

    home: Path
    notes: Path
    stores: str
    life: int
    name: str = ""
    listen: str = ""
    session: int = 0
    is_stable_only: bool = True
    is_mistaken: bool = False
    armed: Armed | None = None


def _run(made: Coroutine[Any, Any, None]) -> None:
    asyncio.run(made)


def _when_told(stop: asyncio.Event) -> None:
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)


# a store


def store(order: StoreOrder) -> None:
    """Be a store until SIGTERM, or until its disk fails."""
    suffer(order.armed)
    try:
        _run(_store(order))
    except OSError as error:
        if error.errno != errno.EIO:
            raise
        os._exit(1)  # nobody knows what the disk has: the next life reads it


async def _store(order: StoreOrder) -> None:
    stop = asyncio.Event()
    _when_told(stop)
    if not (order.place / "store.json").exists():
        initialize(order.place, os.urandom, segment_bytes=order.segment_bytes)
    kept = DiskStore(
        order.place,
        os.urandom,
        files=Ailing(order.place),
        may_keep=Limits(size_bytes=order.kept_bytes),
    )
    with Journal(order.notes) as journal:
        record_opened(journal, order.place.name, order.life, kept)
    await Daemon(kept, address(order.listen), own=order.own).run(ready=_unheeded, stop=stop)
    kept.close()


def _unheeded(*_: object) -> None:
    """Nobody waits for it."""


# the source


def source(order: LifeOrder) -> None:
    """Be a life of the source until it is told that there is enough, and then SIGTERM."""
    suffer(order.armed)
    if order.is_mistaken:
        VARIANTS["stable-set"].make()
    _run(_source(order))


async def _source(order: LifeOrder) -> None:
    stop = asyncio.Event()
    _when_told(stop)
    recorder = SourceRecorder(Journal(order.notes), order.life, content=messages.sender_of)
    life = SourceLife(
        life=order.life,
        born_s=int(time.time()),
        own=listed(order.stores),
        topic=TOPIC,
        session=SESSION,
    )
    timing = replace(TIMING, unresponsive_s=ALONE_S) if order.is_mistaken else TIMING
    core = Sending(life, Flight(messages_max=FLIGHT), timing)
    made = AsyncSource(core, listen=address(order.listen), on_event=recorder.on_event)
    async with made:
        try:
            await _send(made, order, recorder)
            await made.wait_stable()
        except SourceSucceeded:
            recorder.refused(made.next_number)
            return
        recorder.finished(made.next_number)
        order.notes.with_suffix(FINISHED).write_text(str(made.next_number))
        await stop.wait()


async def _send(made: AsyncSource, order: LifeOrder, recorder: SourceRecorder) -> None:
    enough, number = order.home / ENOUGH, 0
    await made.wait_registered()
    while number % CHECKED_EVERY or not enough.exists():
        try:
            number = made.next_number
            body = messages.message(order.life, number)
            recorder.sending(number, body)
            made.send(body)
        except FlightFull:
            await _room(made)
        except NotRegistered:
            await made.wait_registered()


async def _room(made: AsyncSource) -> None:
    try:
        await made.wait_room(messages.PAD_BYTES)
    except NotRegistered:
        await made.wait_registered()


# a receiver


def receiver(order: LifeOrder) -> None:
    """Be a life of a receiver until SIGTERM."""
    suffer(order.armed)
    _run(_receiver(order))


async def _receiver(order: LifeOrder) -> None:
    stop = asyncio.Event()
    _when_told(stop)
    reader = Reader(
        receiver=order.name,
        life=order.life,
        session=order.session,
        is_stable_only=order.is_stable_only,
    )
    recorder = ReceiverRecorder(Journal(order.notes), reader, content=messages.sender_of)
    who = Who(
        topic=TOPIC,
        source=SESSION,
        session=order.session,
        key=key_of(0, order.session),
        known=listed(order.stores),
    )
    made = AsyncReceiver(
        who,
        lambda one: _show(recorder, one),
        tell=recorder.on_event,
        wishes=Wishes(is_stable_only=order.is_stable_only, ack_batching_interval_ms=50),
    )
    living = asyncio.ensure_future(made.run())
    stopping = asyncio.ensure_future(stop.wait())
    await asyncio.wait({living, stopping}, return_when=asyncio.FIRST_COMPLETED)
    made.stop()
    await living
    stopping.cancel()


def _show(recorder: ReceiverRecorder, one: Shown) -> None:
    if isinstance(one, Message):
        recorder.shown(one)
    else:
        recorder.on_event(one)
