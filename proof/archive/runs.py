"""The processes that archive: told what to do, and killed at a point, or at any moment.

`python -m proof.archive.runs` is such a process: it makes a run for each line of its input.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import subprocess
import sys
import time
from dataclasses import dataclass, field
from datetime import date
from typing import TYPE_CHECKING, Final

import msgspec

from onceq.engine.faultpoints import VARIABLE
from onceq.spark.pipelines import archive, restore

if TYPE_CHECKING:
    from collections.abc import Generator, Mapping
    from pathlib import Path

    from onceq.spark.pipelines import Archived, Restored

RUN_S: Final = 900.0
LOOK_EVERY_S: Final = 0.5
EMPTY: Final[dict[str, str]] = {}
_JAVA: Final = "JDK_JAVA_OPTIONS"
QUICK: Final = {_JAVA: os.environ.get(_JAVA, "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")}
"""Better compilation and collection do not pay for a Java that is killed in its first minute."""
DONE: Final = b"this run is done: "


class Told(msgspec.Struct, frozen=True, kw_only=True):
    """A run that a process is told to make. days: it restores them, and archives nothing."""

    url: str
    repository: str
    root: str
    keep_days: int
    compact: int
    days: tuple[date, date] | None = None


@dataclass(frozen=True, slots=True)
class Process:
    """A process that archives. tell, hear: the ends of its input and of its output."""

    popen: subprocess.Popen[bytes]
    tell: int
    hear: int

    def archives(self, told: Told, within_s: float) -> bool:
        """Lets it make a run; returns whether that ended well, and in time."""
        with contextlib.suppress(BrokenPipeError):  # its exit code shows its end
            os.write(self.tell, msgspec.json.encode(told) + b"\n")
        said = b""
        end = time.monotonic() + within_s
        while DONE not in said and (left := end - time.monotonic()) > 0:
            if not select.select([self.hear], [], [], min(left, LOOK_EVERY_S))[0]:
                if self.popen.poll() is None:
                    continue
                break
            some = os.read(self.hear, 65_536)
            if not some:
                break
            said += some
        return DONE in said


@dataclass(slots=True)
class Runs:
    """The processes that archive. place: a directory; met: the points at which one has died."""

    place: Path
    kills: int = 0
    seconds: float = 0.0
    met: set[str] = field(default_factory=set[str])
    violations: list[str] = field(default_factory=list[str])

    @contextlib.contextmanager
    def process(self, own: Mapping[str, str] = EMPTY) -> Generator[Process]:
        """Starts a process, which is gone at the end of the block. own: for its environment."""
        began = time.monotonic()
        told, tell = os.pipe()
        hear, said = os.pipe()
        with (self.place / "said.log").open("ab") as log:
            popen = subprocess.Popen(
                [sys.executable, "-m", "proof.archive.runs"],
                stdin=told,
                stdout=said,
                stderr=log,
                env={**os.environ, **own},
            )
        os.close(told)
        os.close(said)
        try:
            yield Process(popen, tell, hear)
        finally:
            popen.kill()
            popen.wait()
            os.close(tell)
            os.close(hear)
            self.seconds += time.monotonic() - began

    def ask(self, process: Process, told: Told) -> None:
        """Lets a process make a run, and waits for its end."""
        if not process.archives(told, RUN_S):
            self.violations.append(f"{told.repository}: a run failed, or took over {RUN_S:.0f} s")

    def kill(self, told: Told, after_s: float) -> None:
        """Lets a process make a run, and kills it."""
        with self.process(QUICK) as process:
            process.archives(told, after_s)
            process.popen.kill()
            self.kills += process.popen.wait() == -signal.SIGKILL

    def strike(self, told: Told, point: str) -> None:
        """Lets a process die at a point, and notes that it did."""
        directory = self.place / "points" / f"{self.kills}-{point}"
        directory.mkdir(parents=True)
        with self.process({**QUICK, VARIABLE: f"{point} 1 kill {directory}"}) as process:
            process.archives(told, RUN_S)
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.popen.wait(1)
            died = process.popen.returncode == -signal.SIGKILL
        self.kills += died
        if died and (directory / point).exists():
            self.met.add(point)
        else:
            self.violations.append(f"a run did not die at {point}")


def main() -> None:
    """Archives whenever it is told to: the process of `Runs`."""
    for line in sys.stdin.buffer:
        told = msgspec.json.decode(line, type=Told)
        done = _run(told)
        sys.stdout.buffer.write(DONE + repr(done).encode() + b"\n")
        sys.stdout.buffer.flush()


def _run(told: Told) -> Archived | Restored:
    if told.days is not None:
        since, until = told.days
        return restore(told.url, since=since, until=until, repository=told.repository)
    return archive(
        told.root,
        told.url,
        repository=told.repository,
        keep_days=told.keep_days,
        compact=told.compact,
    )


if __name__ == "__main__":
    main()
