"""Stores on simulated disks: what ships, but for `Files`, with commits that take their time."""

from __future__ import annotations

import os
from functools import partial
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec.structs import replace

from onceq.streams.errors import StoreFull
from onceq.streams.model.frames import decode
from onceq.streams.model.ops import WaitUntil
from onceq.streams.store import acts
from onceq.streams.store.directory import IDENTITY, VERSION, Identity
from onceq.streams.store.disk_store import DiskStore
from onceq.streams.store.log.entries import HEADER, HEADER_BYTES, EntryKind
from onceq.streams.store.noting_store import NoCacheStore
from onceq.streams.store.serving import Serving
from proof.streams_simulation.stores import STEP_BYTES, Entry, StoreNode, Told, entries
from proof.streams_simulation.volume import PowerCut, Volume

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from onceq.streams.store.log.entries import Entry as LogEntry
    from onceq.streams.store.log.reading import Last
    from proof.streams_simulation.net import Net

SEGMENT_BYTES = 4_096
COMMIT_S_MAX = 0.1
SCRUB_S_MAX = 2.0
"""A store rests so long, at most, before it looks through its log again."""


class _Exact(DiskStore):
    """A store that knows how much it has to a frame or two, and lets go of what it cannot open."""

    def __init__(self, *given: Any, **more: Any) -> None:
        try:
            super().__init__(*given, **more)
        except (PowerCut, OSError, StoreFull):
            os.close(self._lock)
            raise

    def _replay(self, found: Last | None) -> Sequence[LogEntry]:
        again = super()._replay(found)
        vars(self.weights)["_step"] = STEP_BYTES
        return again


class _ExactNoCache(_Exact, NoCacheStore):
    """The same, of a store that keeps no messages."""


class DiskNode(StoreNode):
    """A store on a disk. home: where its directory is, in which nothing is but whose it is.

    flipped: where bits were flipped, until that is healed: segments, each with an offset.
    """

    kind: type[DiskStore] = _Exact

    def __init__(self, net: Net, name: str, told: Told, home: Path) -> None:
        self._directory = identified(home / f"{name} {self.kind.keeps}", keeps=self.kind.keeps)
        self._disk: DiskStore | None = None
        self._is_committing = False
        self.flipped: list[tuple[int, int]] = []
        super().__init__(net, name, told)

    @property
    def disk(self) -> DiskStore:
        """The store."""
        if self._disk is None:
            raise TypeError("the store is not open")
        return self._disk

    def wipe(self) -> None:
        """Lose everything; it must not run."""
        self.close()
        self.volume = Volume(self.net.chance)
        self.flipped.clear()
        self._begin = 0
        self._open()

    def close(self) -> None:
        """Let go of the directory."""
        if self._disk is not None:
            self._disk.close()
            self._disk = None

    def _open(self) -> None:
        """Open the store again and again, until nothing befalls it meanwhile."""
        while self._disk is None:
            try:
                self._disk = self.kind(
                    self._directory,
                    self.net.chance.randbytes,
                    files=self.volume,
                    may_keep=self.may_keep,
                    clock=lambda: self.net.now_s,
                )
            except PowerCut:
                self.volume.cut_power()
            except StoreFull:
                self.volume.is_full = False
            except OSError:
                pass  # the process ended: what it wrote is read, and perhaps not on the platter
        self.store = self._disk

    # its end

    def kill(self) -> None:
        """End the process; what it had written stays."""
        super().kill()
        self.close()
        self._open()

    def fail_power(self) -> None:
        """End the process, and lose of what was not synced."""
        super().kill()
        self.close()
        self.volume.cut_power()
        self._open()

    # what it does

    def start(self) -> None:
        """Start the process."""
        self._is_committing = False
        super().start()

    def _step(self, given: acts.Given) -> None:
        try:
            super()._step(given)
        except PowerCut:
            self.fail_power()
        except OSError:
            self.kill()

    def _do(self, act: acts.Act) -> None:
        if not isinstance(act, acts.Commit):
            super()._do(act)
        elif not self._is_committing:
            self._is_committing = True
            seconds = self.net.chance.random() * COMMIT_S_MAX
            self.net.later(seconds, partial(self._commit, self.serving), self.name)

    def _commit(self, serving: Serving) -> None:
        if serving is not self.serving or not self.is_up:
            return
        self._is_committing = False
        try:
            synced = self.disk.log.commit()
            self.disk.log.prepare()
        except PowerCut:
            self.fail_power()
        except OSError:
            self.kill()
        else:
            self._step(acts.Synced(position=synced))

    def _perform(self, act: acts.Ask) -> None:
        op = act.op
        if isinstance(op, WaitUntil):
            act = replace(act, op=replace(op, within_s=min(op.within_s, SCRUB_S_MAX)))
        super()._perform(act)

    # what it has

    def entries(self, numbers: range) -> dict[int, Entry]:
        """See StoreNode. What is written again is there, though it is read when it is synced."""
        dies_in, self.volume.dies_in = self.volume.dies_in, None  # it is the judge that reads
        try:
            return self._entries(numbers)
        finally:
            self.volume.dies_in = dies_in

    def _entries(self, numbers: range) -> dict[int, Entry]:
        moved = self._moved()
        if not moved:
            return super().entries(numbers)
        found = {number: one for number, one in moved.items() if number in numbers}
        number = max(numbers.start, self.held.begin)
        while number < numbers.stop:
            given = {number: moved[number]} if number in moved else {}
            given = given or super().entries(range(number, numbers.stop))
            if not given:
                break
            found |= given
            number = max(given) + 1
        return found

    def _moved(self) -> dict[int, Entry]:
        """Return what waits to be written again: until then, its segment is not freed."""
        found: dict[int, Entry] = {}
        for one in vars(self.disk.log)["_pending"]:
            kind = HEADER.unpack_from(one.data)[2]
            if kind == EntryKind.RELOCATED:
                payload = one.data[HEADER_BYTES:]
                found |= dict(enumerate(entries(payload), decode(payload).number))
        return found

    # faults

    @property
    def is_at_rest(self) -> bool:
        """See StoreNode."""
        return not self.disk.log.has_pending()

    def mend(self) -> None:
        """See StoreNode."""
        self.volume.is_full = self.volume.sync_fails = False
        self.volume.dies_in = None

    def flip(self) -> bool:
        """Flip a bit of what is said to be synced; return whether there was one."""
        proven = [one for one in self.volume.proven(self.disk.geometry) if one[1] > 0]
        if not proven:
            return False
        number, stop = self.net.chance.choice(proven)
        at = number, self.net.chance.randrange(stop)
        self.flipped.append(at)
        self.volume.flip(*at)
        return True

    def is_filled(self) -> bool:
        """Whether it holds the stream, and what was flipped is healed."""
        return super().is_filled() and not self._is_harmed()

    def _is_harmed(self) -> bool:
        if not self.flipped:
            return False
        held, log = self.held, self.disk.log
        written = self.disk.geometry.number(log.synced)
        numbers = range(held.begin, held.end)
        if any(segment >= written for segment, _ in self.flipped) or held.damaged:
            return True
        if len(self.entries(numbers)) < len(numbers):
            return True
        self.flipped.clear()
        return False


class NoCacheNode(DiskNode):
    """A store that keeps no messages."""

    keeps = False
    kind = _ExactNoCache


def identified(directory: Path, *, keeps: bool) -> Path:
    """Return a directory that is a store's; nothing of it needs to last."""
    if not directory.exists():
        directory.mkdir(parents=True)
        made = Identity(version=VERSION, store="5e" * 16, segment_bytes=SEGMENT_BYTES, keeps=keeps)
        (directory / IDENTITY).write_bytes(msgspec.json.encode(made))
    return directory
