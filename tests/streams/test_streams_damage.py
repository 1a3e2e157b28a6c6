"""Bits flipped in a store's log: receivers are shown what was sent, and the store heals itself."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import pytest

from onceq.streams.store.log import opening
from onceq.streams.store.log.entries import Geometry
from onceq.streams.store.log.segments import Files
from proof.part import Order, Size
from proof.streams_damage.flipping import flip, proven
from proof.streams_damage.logs import SEGMENT_BYTES, opened, written
from proof.streams_damage.part import PART
from proof.streams_simulation.mistakes_of_disks import damage_is_cut
from tests.small import small

if TYPE_CHECKING:
    from pathlib import Path

GEOMETRY = Geometry(segment_bytes=SEGMENT_BYTES)


def order(place: Path) -> Order:
    return Order(size=Size.SMALL, seed=1990, place=place, say=lambda *_: None)


@pytest.mark.timeout(300)
def test_nothing_is_shown_wrongly_and_all_is_healed(tmp_path: Path) -> None:
    reached = small(PART, tmp_path)
    assert reached["messages shown while bits were flipped, each right"] >= 2_000
    assert reached["logs with a flipped bit whose store forgot"] > 0


def test_a_flip_changes_one_bit_of_what_was_synced(tmp_path: Path) -> None:
    written(tmp_path / "log", random.Random(1))
    files = Files(tmp_path / "log")
    before = {number: files.read(number) for number in files.numbers()}
    stops = dict(proven(files, GEOMETRY))
    at = flip(tmp_path / "log", GEOMETRY, random.Random(2))
    assert at is not None
    number, offset = at
    assert offset < stops[number]
    changed = [
        (one, place)
        for one, data in before.items()
        for place, (old, new) in enumerate(zip(data, files.read(one), strict=True))
        if old != new
    ]
    assert changed == [at]


def test_a_log_that_is_cut_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(opening, "read", damage_is_cut)
    assert any("it ends at" in one for one in opened(order(tmp_path), 60).wrong)
