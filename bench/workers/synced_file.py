"""A file that is appended to and synced: what the disk takes, beside a stream that waits for it."""

from __future__ import annotations

import os
import platform
import time

from bench.workers.base import About, Pace, Place, RoundTrips, System, serve_commands

PAGE = b"x" * 4096
RESERVED = 64 << 20
"""As a store reserves a segment: a sync then changes no size."""


class SyncedFile(System):
    """One file."""

    def __init__(self, place: Place) -> None:
        self.place = place
        self._handle = os.open(place.directory / "synced", os.O_RDWR | os.O_CREAT)
        os.posix_fallocate(self._handle, 0, RESERVED)
        os.fsync(self._handle)
        self._at = 0

    def about(self) -> About:
        return About(
            system="synced_file",
            version=platform.release(),
            weaker="it keeps bytes, and no messages",
            how="4 KiB after 4 KiB by pwrite, each synced by fdatasync",
        )

    def pace(self, asked: Pace) -> RoundTrips:
        """Sync one page after another for as long as the messages would take."""
        each_s: list[float] = []
        began = time.perf_counter()
        until = began + asked.number / asked.per_s
        while not each_s or time.perf_counter() < until:
            started = time.perf_counter()
            os.pwrite(self._handle, PAGE, self._at)
            os.fdatasync(self._handle)
            each_s.append(time.perf_counter() - started)
            self._at = (self._at + len(PAGE)) % RESERVED
        return RoundTrips(seconds=time.perf_counter() - began, each_s=each_s)

    def close(self) -> None:
        os.close(self._handle)


if __name__ == "__main__":
    serve_commands(SyncedFile)
