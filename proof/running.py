"""One part at work, in a process and a directory of its own; and what became of it.

Invariants: when a part has ended, in whatever way, nothing that it started is left: its processes
are known by a mark in their environment, or by its directory in their command line, and are killed.
A part that dies, hangs or says nothing is a failure, never an error of the runner.
"""

from __future__ import annotations

import contextlib
import os
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from proof import sources
from proof.wire import Asked, Ended, Said

if TYPE_CHECKING:
    from collections.abc import Iterator

    from proof.part import Outcome, Part, Size

ROOT = Path(__file__).resolve().parents[1]
MARK = "ONCEQ_PROOF_PLACE"
WORDS_BYTES = 4000
CHUNK_BYTES = 65536
PROCESSES = Path("/proc")
SWEEPS = 100
SWEEP_S = 0.05
MEMORY = Path("/dev/shm")  # noqa: S108 - directories of our own are made in it
MEMORY_BYTES_MIN = 4 << 30
"""With less room than this, memory is not used."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """What became of a part. failure: why there is no outcome, with its last words.

    digest: of the sources that it covers; empty if they have changed while it ran.
    """

    part: Part
    seconds: float
    outcome: Outcome | None = None
    failure: str | None = None
    digest: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """What all parts of a run are asked to do. table: MODULE:ATTRIBUTE."""

    size: Size
    seed: int
    table: str


class Running:
    """A running part. Call `step` until there is a result; close it in any case."""

    def __init__(self, part: Part, terms: Terms) -> None:
        self.part = part
        self.said = Said("starts", 0, 0)
        self._decoder: msgspec.json.Decoder[Said | Ended] = msgspec.json.Decoder(Said | Ended)
        self._outcome: Outcome | None = None
        self._misheard: str | None = None
        self._unread = b""
        where = folder(in_memory=part.in_memory)
        self._place = Path(tempfile.mkdtemp(prefix=f"onceq-proof-{part.name}-", dir=where))
        # For the temporary files of the part; its name is short, as paths of sockets must be.
        self._temporary = tempfile.mkdtemp(prefix="oqp-", dir=where)
        self._digest = sources.digest(part.covers)
        self._began = time.monotonic()
        self._end = self._began + part.limits.of(terms.size)
        self._log = (self._place / "log").open("wb")
        self._answers, theirs = os.pipe()
        try:
            self._process = self._start(terms, theirs)
        finally:
            os.close(theirs)

    def _start(self, terms: Terms, answers: int) -> subprocess.Popen[bytes]:
        place = self._place / "place"
        place.mkdir()
        asked = Asked(terms.table, self.part.name, terms.size, terms.seed, str(place), answers)
        own = {
            "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT)]),
            "TMPDIR": self._temporary,
            MARK: str(self._place),
        }
        return subprocess.Popen(
            [sys.executable, "-m", "proof.child", msgspec.json.encode(asked).decode()],
            cwd=ROOT,
            env={**os.environ, **own},
            stdin=subprocess.DEVNULL,
            stdout=self._log,
            stderr=self._log,
            pass_fds=[answers],
            start_new_session=True,
        )

    @property
    def answers(self) -> int:
        """The descriptor on which something, or the end, may be heard."""
        return self._answers

    def step(self) -> Result | None:
        """Read what there is, without waiting; return the result once the part has ended."""
        code = self._process.poll()  # before reading: what is written before the end is read
        self._read()
        if code is not None:
            return self._result(None if code == 0 else _ended_how(code))
        if time.monotonic() > self._end:
            allowed = f"{self._end - self._began:g} s"
            return self._result(f"was not done after {allowed}; last said: {self.said.text}")
        return None

    def _read(self) -> None:
        while select.select([self._answers], [], [], 0)[0]:
            chunk = os.read(self._answers, CHUNK_BYTES)
            if not chunk:
                return
            *lines, self._unread = (self._unread + chunk).split(b"\n")
            for line in lines:
                self._hear(line)

    def _hear(self, line: bytes) -> None:
        try:
            heard = self._decoder.decode(line)
        except msgspec.DecodeError as error:  # only this part fails: the others go on
            self._misheard = f"said what cannot be read: {error}"
            return
        match heard:
            case Said():
                self.said = heard
            case Ended(outcome):
                self._outcome = outcome

    def _result(self, failure: str | None) -> Result:
        if failure is None and self._outcome is None:
            failure = self._misheard or "ended without an outcome"
        seconds = time.monotonic() - self._began
        is_same = sources.digest(self.part.covers) == self._digest
        return Result(
            part=self.part,
            seconds=seconds,
            outcome=self._outcome if failure is None else None,
            failure=None if failure is None else f"{failure}{self._last_words()}",
            digest=self._digest if is_same else "",
        )

    def _last_words(self) -> str:
        self._log.flush()
        said = (self._place / "log").read_bytes()[-WORDS_BYTES:].decode(errors="replace").strip()
        return f"\n{said}" if said else ""

    def close(self) -> None:
        """End the part and whatever it has left, and remove its directory."""
        with contextlib.suppress(ProcessLookupError):  # nobody of its group is left
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        for _ in range(SWEEPS):
            if not _kill_left_behind(self._place):
                break
            time.sleep(SWEEP_S)
        os.close(self._answers)
        self._log.close()
        for made in (self._place, self._temporary):
            shutil.rmtree(made, onerror=_tell)


def folder(*, in_memory: bool, bytes_min: int = 0) -> Path:
    """Return where parts have their directories; in memory, if they may and there is room.

    bytes_min: how much room, if more than usual.
    """
    wanted = max(bytes_min, MEMORY_BYTES_MIN)
    if in_memory and MEMORY.is_dir() and shutil.disk_usage(MEMORY).free >= wanted:
        return MEMORY
    return Path(tempfile.gettempdir())


def _ended_how(code: int) -> str:
    return f"ended with exit code {code}" if code > 0 else f"was ended by signal {-code}"


def _tell(_call: object, path: str, _error: object) -> None:
    """Report that something cannot be removed, and why; the run goes on."""
    sys.stderr.write(f"{path} stays: {traceback.format_exc(limit=0).splitlines()[-1]}\n")


def _kill_left_behind(place: Path) -> bool:
    """Kill what a part has left; return whether there was anything."""
    left = list(_left_behind(place))
    for pid in left:
        with contextlib.suppress(ProcessLookupError):  # it ended by itself meanwhile
            os.kill(pid, signal.SIGKILL)
    return bool(left)


def _left_behind(place: Path) -> Iterator[int]:
    """Yield the processes that a part started and left; none if there is no /proc."""
    marks = (f"{MARK}={place}".encode(), f"{place}/".encode())
    for entry in PROCESSES.glob("[0-9]*"):
        with contextlib.suppress(OSError):  # it is gone, or another user's
            known = (entry / "environ").read_bytes() + (entry / "cmdline").read_bytes()
            if any(mark in known for mark in marks):
                yield int(entry.name)
