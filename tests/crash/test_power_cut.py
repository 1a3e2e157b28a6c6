"""Ten power cuts under load, and the controls; `python -m proof --only power-cut` does more.

And that the disk which loses its power is one: what it was told to flush it keeps, nothing else.
"""

from __future__ import annotations

import mmap
import os
import random
from typing import TYPE_CHECKING

import pytest

from proof.goals import POWER_CUTS
from proof.part import Order, Size
from proof.powercut import devices
from proof.powercut.drive import Cache, Ground, Kind
from proof.powercut.part import PART, SYSTEMS
from proof.running import Result
from tests.crash.parts import report
from tests.small import judged, reached

if TYPE_CHECKING:
    from collections.abc import Generator
    from pathlib import Path

SEED = int(os.environ.get("SEED", "1"))
BLOCK = 1 << 20
BLOCKS = 16


def cannot(reason: str | None) -> None:
    """Skips the test where this machine has no such devices, and says why."""
    if reason is not None:
        pytest.skip(reason)


@pytest.mark.timeout(600)
def test_ten_power_cuts_lose_nothing_that_was_acknowledged(tmp_path: Path) -> None:
    report(f"SEED={SEED}")
    outcome = PART.run(Order(size=Size.SMALL, seed=SEED, place=tmp_path, say=lambda *_: None))
    cannot(outcome.skipped)
    shown = judged(Result(part=PART, seconds=0.0, outcome=outcome))
    assert reached(shown)[POWER_CUTS] == 10


def write(file: int, byte: bytes) -> None:
    """Hands every block to the drive, past the memory of the machine."""
    with mmap.mmap(-1, BLOCK) as block:
        block.write(byte * BLOCK)
        for number in range(BLOCKS):
            os.pwrite(file, block, number * BLOCK)


def left(ground: Ground, kind: Kind) -> bytes:
    """Returns what a cut leaves of a file that was flushed, written again, and not flushed."""
    name = f"{kind.system}-{kind.cache.name}"
    with ground.powered(ground.fresh(name, kind.system), "load", kind) as drive:
        path = drive.cluster.parent / "blocks"
        file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_DIRECT)
        write(file, b"a")
        os.fsync(file)
        write(file, b"b")
        os.close(file)
        (path.parent / "in memory").write_bytes(b"c")
        cut = drive.cut(ground.file(f"{name}-cut"), random.Random(SEED))
    with ground.powered(cut.image, "cut", kind) as drive:
        assert not (drive.cluster.parent / "in memory").exists()
        return (drive.cluster.parent / "blocks").read_bytes()


@pytest.fixture
def ground(tmp_path: Path) -> Generator[Ground]:
    """Where drives are files."""
    cannot(devices.missing())
    try:
        with Ground(tmp_path) as made:
            yield made
    except devices.DeviceFailed as error:
        cannot(str(error))


@pytest.mark.parametrize("system", SYSTEMS)
def test_the_drive_keeps_what_it_was_told_to_flush_and_no_more(ground: Ground, system: str) -> None:
    found = {one: left(ground, Kind(system=system, cache=one)) for one in Cache}
    assert {len(one) for one in found.values()} == {BLOCK * BLOCKS}
    assert set(found[Cache.LOST]) == {ord("a")}
    assert set(found[Cache.KEPT]) == {ord("b")}
    assert set(found[Cache.SOME]) <= {ord("a"), ord("b")}
