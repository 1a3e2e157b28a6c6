"""A crash at a named place: a callable runs in a child process, and dies there.

Used by the pytest plugin. The places are those of `onceq.engine.faultpoints`, listed in
docs/maintainers/fault-points.md. The child is forked, so any callable will do; it must open
connections of its own, and never use the parent's.
"""

from __future__ import annotations

import difflib
import os
import select
import signal
import tempfile
import traceback
import warnings
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from onceq.engine import faultpoints
from onceq.engine.perform.async_driver import AsyncPostgresDriver
from onceq.engine.perform.driver import PostgresDriver
from onceq.errors import InvalidValue

HOW: Final = ("kill", "raise")
ENDED, PLANNED = b"ended", b"planned"


class NotCrashed(AssertionError):
    """The callable did not die at the place; the message says what it did instead."""


@dataclass(frozen=True, slots=True)
class Crash:
    """A child that died as planned. reached: how often it had reached each place by then."""

    point: str
    reached: Mapping[str, int]


def check_point(point: str) -> str:
    """Returns a name of a place. Raises InvalidValue, which lists them all."""
    if point in faultpoints.POINTS:
        return point
    close = difflib.get_close_matches(point, faultpoints.POINTS, n=3, cutoff=0.4)
    meant = f"; is {' or '.join(close)} meant?" if close else ""
    raise InvalidValue(
        f"there is no crash point {point!r}{meant}\nThere are: {', '.join(faultpoints.POINTS)}"
    )


def crash_at(
    point: str,
    call: Callable[[], object],
    *,
    occurrence: int = 1,
    how: str = "kill",
    timeout_s: float = 30.0,
) -> Crash:
    """Runs a callable in a child process, which dies at a place; returns when it is dead.

    occurrence: at the how manyth time it comes there. how: kill (-9), or raise: an exception that
    nothing in onceq handles, which also ends the child. Raises InvalidValue (there is no such
    place), NotCrashed (it ended, raised something else, or did nothing of the kind in time).
    """
    check_point(point)
    if how not in HOW:
        raise InvalidValue(f"how is one of {HOW}, not {how!r}")
    with tempfile.TemporaryDirectory(prefix="onceq-crash-") as directory:
        plan = f"{point} {occurrence} {how} {directory}"
        end, said = _run_child(plan, call, timeout_s)
        reached = {path.name: path.stat().st_size for path in Path(directory).iterdir()}
    if end == (-signal.SIGKILL if how == "kill" else 0) and said == (
        b"" if how == "kill" else PLANNED
    ):
        return Crash(point, reached)
    came = ", ".join(f"{name} x{count}" for name, count in reached.items()) or "no place"
    did = {b"": f"died of {end}", ENDED: "ended", PLANNED: "raised as planned"}
    what = did.get(said) or f"raised: {said.decode(errors='replace')}"
    raise NotCrashed(
        f"the callable did not die at {point}, time {occurrence}: it {what}\nIt came to: {came}"
    )


def _run_child(plan: str, call: Callable[[], object], timeout_s: float) -> tuple[int, bytes]:
    """Returns how the child ended, as subprocess reports it, and what it said before."""
    ear, mouth = os.pipe()
    with warnings.catch_warnings():
        warnings.simplefilter(
            "ignore", DeprecationWarning
        )  # other threads do not matter: the child needs none
        pid = os.fork()
    if pid == 0:
        try:
            os.close(ear)
            _live(plan, call, mouth)
        finally:  # the child ends here, whatever was raised
            os._exit(0)
    os.close(mouth)
    try:
        said = _listen(ear, pid, timeout_s)
    finally:
        os.close(ear)
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)  # it has ended, or it will never
        _, status = os.waitpid(pid, 0)
    return os.waitstatus_to_exitcode(status), said


def _live(plan: str, call: Callable[[], object], mouth: int) -> None:
    """Is the child's life; reports how the callable ended, if it did."""
    faultpoints.arm(plan)
    for driver in (PostgresDriver, AsyncPostgresDriver):
        faultpoints.pointed(driver)
    said = ENDED
    try:
        call()
    except faultpoints.PlannedFault:
        said = PLANNED
    except BaseException:
        said = traceback.format_exc().encode(errors="replace")[-4000:]
        raise
    finally:
        os.write(mouth, said)


def _listen(ear: int, pid: int, timeout_s: float) -> bytes:
    """Returns what the child says until its end. Raises NotCrashed if that does not come."""
    said = b""
    while True:
        if not select.select([ear], [], [], timeout_s)[0]:
            raise NotCrashed(f"the callable neither died nor ended in {timeout_s} s (pid {pid})")
        part = os.read(ear, 65536)
        if not part:
            return said
        said += part
