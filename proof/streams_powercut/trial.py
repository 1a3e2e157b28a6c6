"""One round: stores and a source on a drive, cuts of its power, and what stores have after each."""

from __future__ import annotations

import asyncio
import random
import time
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final

from onceq.streams.errors import FlightFull
from onceq.streams.model.frames import decode
from onceq.streams.model.window import Flight
from onceq.streams.source.async_source import AsyncSource
from onceq.streams.source.epochs import SourceLife
from onceq.streams.source.sending import Sending
from onceq.streams.store.disk_store import DiskStore
from onceq.streams.store.log.segments import Files
from proof.powercut import devices
from proof.streams_damage.cluster import (
    NAMES,
    SESSION,
    TOPIC,
    WITHIN_S,
    serving,
)

if TYPE_CHECKING:
    from proof.powercut.drive import Cut, Drive, Ground, Kind

BODY: Final = 100
QUORUM: Final = 2
APART_S: Final = (0.05, 0.4)
FLIGHT: Final = 500


class Unsynced(Files):
    """The files of a store that takes a write for one that is on the disk: the control."""

    def sync(self, handle: int) -> None:
        """See Files. Nothing is done."""
        del handle

    def sync_directory(self) -> None:
        """See Files. Nothing is done."""


@dataclass(slots=True)
class Told:
    """What a source was told: at some moments (monotonic, ns) all below a number was stable."""

    at_ns: list[int] = field(default_factory=list[int])
    below: list[int] = field(default_factory=list[int])

    def add(self, below: int) -> None:
        """Note that all below a number is stable now."""
        self.at_ns.append(time.monotonic_ns())
        self.below.append(below)

    def stable_at(self, at_ns: int) -> int:
        """Return below which number all was stable before a moment."""
        at = bisect_right(self.at_ns, at_ns)
        return self.below[at - 1] if at else 0


@dataclass(slots=True)
class Verdict:
    """What was left after a cut. stable: as the source was told before it; lost: of these."""

    stable: int
    lost: int = 0
    wrong: list[str] = field(default_factory=list[str])


def body(number: int) -> bytes:
    """Return the message with a number."""
    return b"%020d" % number * (BODY // 20)


async def load(
    drive: Drive, images: Sequence[Path], *, syncs: bool, chance: random.Random
) -> tuple[list[Cut], Told]:
    """Send all the time; meanwhile cut the power, once for each image."""
    made: list[Cut] = []
    told = Told()
    home = drive.cluster.parent / "stores"
    home.mkdir()
    files = Files if syncs else Unsynced
    async with serving(home, chance.randbytes, files) as cluster:
        devices.command("sync", "--file-system", home)
        life = SourceLife(life=1, born_s=1, own=cluster.own, topic=TOPIC, session=SESSION)
        core = Sending(life, Flight(messages_max=FLIGHT))
        async with AsyncSource(core) as source:
            await source.wait_registered(WITHIN_S)
            sending = asyncio.ensure_future(_send(source, told))
            try:
                for image in images:
                    await asyncio.sleep(chance.uniform(*APART_S))
                    if sending.done():
                        sending.result()
                    made.append(await asyncio.to_thread(drive.cut, image, chance))
            finally:
                sending.cancel()
                await asyncio.gather(sending, return_exceptions=True)
    return made, told


async def _send(source: AsyncSource, told: Told) -> None:
    """Send, and note what is stable, until this is cancelled."""
    while True:
        try:
            source.send(body(source.next_number))
        except FlightFull:
            await source.wait_room(BODY, WITHIN_S)
            told.add(source.stable_below)


def judged(ground: Ground, cut: Cut, kind: Kind, *, told: Told, chance: random.Random) -> Verdict:
    """Open the stores of a drive whose power was cut, and count what is lost."""
    verdict = Verdict(stable=told.stable_at(cut.began_ns))
    with ground.powered(cut.image, "cut", kind) as drive:
        ends = [_whole(drive.cluster.parent / "stores" / name, chance, verdict) for name in NAMES]
    kept = sorted(ends, reverse=True)[QUORUM - 1]
    verdict.lost = max(0, verdict.stable - kept)
    cut.image.unlink()
    return verdict


def _whole(place: Path, chance: random.Random, verdict: Verdict) -> int:
    """Return below which number a store has all, as it was sent; what it has otherwise is wrong."""
    store = DiskStore(place, chance.randbytes)
    try:
        number = 0
        for held in store.catalogue.streams.values():
            for data in store.read(held.stream, range(held.end)):
                for given in decode(data).messages():
                    if bytes(given) != body(number):
                        verdict.wrong.append(f"{place.name} has {number} otherwise")
                    number += 1
        return number
    finally:
        store.close()
