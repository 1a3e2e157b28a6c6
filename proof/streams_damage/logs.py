"""Logs in which one bit was flipped, and what a store says when it opens them."""

from __future__ import annotations

import random
import shutil
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final

from onceq.streams.model import asks
from onceq.streams.model.choice import Bridge, Log, Stage
from onceq.streams.model.frames import Frame, FrameKind, body_of, decode, encode
from onceq.streams.model.quorum import listed
from onceq.streams.store.directory import initialize
from onceq.streams.store.disk_store import DiskStore
from onceq.streams.store.log.entries import Geometry
from proof.streams_damage.flipping import flip

if TYPE_CHECKING:
    from proof.part import Order

STREAM: Final = 7
LIFE: Final = 77
FRAMES: Final = 60
SEGMENT_BYTES: Final = 2_048
SAID_MAX: Final = 200


@dataclass(slots=True)
class Opened:
    """What was opened, and found wrong. forgot: how many stores counted as ones that forgot."""

    opened: int = 0
    forgot: int = 0
    wrong: list[str] = field(default_factory=list[str])


def written(directory: Path, chance: random.Random) -> dict[int, bytes]:
    """Make a log of some segments, and end its store; return the frames by their numbers."""
    initialize(directory, chance.randbytes, segment_bytes=SEGMENT_BYTES)
    store = DiskStore(directory, chance.randbytes)
    own = listed("127.0.0.1:1 127.0.0.1:2 127.0.0.1:3")
    store.do(store.catalogue.fence(asks.Fence(stream=STREAM, epoch=1, life=LIFE, own=own)))
    log = Log(admitted=0, end=0, lists=(own,), firsts=(), positions={})
    bridge = Bridge(epoch=1, stage=Stage.SETTLED, lists=(own,), firsts=((1, 0),))
    store.admit(asks.Admit(stream=STREAM, life=LIFE, log=log, bridge=bridge))
    frames: dict[int, bytes] = {}
    for number in range(FRAMES):
        data = frames[number] = encode(
            Frame(
                kind=FrameKind.MESSAGES,
                stream=STREAM,
                epoch=1,
                number=number,
                stable=number,
                count=1,
                body=body_of([chance.randbytes(30)]),
            )
        )
        store.take(decode(data), data, LIFE)
        store.log.commit()
        store.log.prepare()
    store.tend()  # an idle store says how far it is synced
    store.log.commit()
    store.close()
    return frames


def opened(order: Order, count: int) -> Opened:
    """Open so many logs, each with a bit flipped."""
    chance = random.Random(order.seed)
    made = Opened()
    whole = order.place / "whole"
    frames = written(whole, chance)
    for number in range(count):
        place = order.place / "flipped"
        shutil.copytree(whole, place)
        _open(place, chance, frames, made)
        shutil.rmtree(place)
        if number % SAID_MAX == 0:
            order.say("logs opened", number, count)
    return made


def _open(place: Path, chance: random.Random, frames: dict[int, bytes], made: Opened) -> None:
    at = flip(place, Geometry(segment_bytes=SEGMENT_BYTES), chance)
    store = DiskStore(place, chance.randbytes)
    try:
        made.opened += 1
        made.forgot += store.forgot
        held = store.catalogue.of(STREAM)
        if store.forgot:
            return
        if held.end != FRAMES:
            made.wrong.append(f"flipped at {at}: it ends at {held.end}, and had {FRAMES}")
        number = 0
        while number < FRAMES:
            given = list(store.read(STREAM, range(number, FRAMES)))
            if any(data != frames[n] for n, data in enumerate(given, number)):
                made.wrong.append(f"flipped at {at}: other bytes from {number} on")
            number += len(given) or 1
    finally:
        store.close()
