"""The protocol of a measured system: JSON lines on its standard input and output.

A module of this package defines a `System`, and ends with
`if __name__ == "__main__": serve_commands(open_it)`. The benchmark starts it as
`python -m bench.workers.MODULE --dir DIR [--conninfo CONNINFO] [--setting best|safe]`.

1. The first line says what is measured (`ready`), or why it is not (`skip`).
2. Each command is a line, and so is its answer: seconds, or an error, which is never a figure.
3. At the end of its input it closes everything that it started, and exits.

Whatever else writes to standard output in this process, or in its children, goes to standard
error: only answers go out. Imports no third party.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
import traceback
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal, NoReturn, TextIO, TypeAlias, cast

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

Setting: TypeAlias = Literal["best", "safe"]
Until: TypeAlias = Literal["stable", "received"]
BODY = b"a request of the benchmark; its body is as long as a small order: ".ljust(200, b"x")


class SkippedError(Exception):
    """The system cannot be measured here; the text says why."""


class WrongError(Exception):
    """What was measured did not do what it should: its time does not count as a figure."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where a system works. conninfo: of a database of its own; None without PostgreSQL."""

    directory: Path
    conninfo: str | None
    setting: Setting

    def require_conninfo(self) -> str:
        """Return the connection string, or say that it is missing."""
        if self.conninfo is None:
            raise SkippedError("needs --conninfo, a database of its own")
        return self.conninfo


@dataclass(frozen=True, slots=True, kw_only=True)
class About:
    """What the first line says.

    weaker: what it does not guarantee against onceq, in one sentence; empty for onceq.
    how: how it is configured, and what its clients and servers are (threads, tasks, processes).
    """

    system: str
    version: str
    weaker: str
    how: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Enqueue:
    """Enqueue `number` requests of about 200 B, one durable after another, by `clients`."""

    number: int
    clients: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class EnqueueBatch:
    """Enqueue `number` requests, `batch` in a transaction or in what the system has for it."""

    number: int
    batch: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Dequeue:
    """Execute `number` requests, which are enqueued first, untimed.

    user_sql: each execution inserts its body into a user's table, if possible in the same
    transaction. The time ends when the last one is done and acknowledged, durably. raising: one of
    so many raises after that, and has failed; 0: none does.
    """

    number: int
    servers: int = 1
    batch: int = 1
    user_sql: bool = False
    raising: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestReply:
    """Make `number` round trips in all: each of `clients` has one request outstanding."""

    number: int
    clients: int = 1
    servers: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Publish:
    """Send `number` messages of a stream that three servers keep; done when all are stable.

    And when all of `receivers` were shown all of it. flight: how many may be sent, and not stable.
    stopped: receivers beside them that joined, and then take nothing. filled: messages of 1 KiB
    that are sent before, untimed: as much as may be held for one that is stopped.
    """

    number: int
    body_bytes: int = 100
    flight: int = 10_000
    receivers: int = 1
    stopped: int = 0
    filled: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Pace:
    """Send `number` messages, `per_s` a second; measure how long each takes.

    until: it is stable, as the source is told; or "received": it is shown to a receiver.
    """

    number: int
    per_s: int = 5_000
    body_bytes: int = 100
    until: Until = "stable"


@dataclass(frozen=True, slots=True, kw_only=True)
class CatchUp:
    """Show a new receiver `number` messages that were stable before, from its start on."""

    number: int
    body_bytes: int = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class Timed:
    """How long it all took."""

    seconds: float

    def answer(self) -> dict[str, object]:
        """Return what the answering line holds."""
        return {"seconds": self.seconds}


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundTrips:
    """How long it all took, and each round trip, in seconds."""

    seconds: float
    each_s: Sequence[float]

    def answer(self) -> dict[str, object]:
        """Return what the answering line holds: percentiles in microseconds."""
        each = sorted(self.each_s)
        return {
            "seconds": self.seconds,
            "p50_us": round(percentile(each, 0.50) * 1e6, 1),
            "p99_us": round(percentile(each, 0.99) * 1e6, 1),
        }


class System:
    """A measured system. A subclass offers what it overrides.

    Made by the function that `serve_commands` is given, which raises SkippedError where the
    system cannot be had.
    """

    def about(self) -> About:
        """Return what the first line says."""
        raise NotImplementedError

    def enqueue(self, asked: Enqueue) -> Timed:
        """Enqueue one by one; making the clients ready is not timed."""
        raise NotImplementedError

    def enqueue_batch(self, asked: EnqueueBatch) -> Timed:
        """Enqueue in batches."""
        raise NotImplementedError

    def dequeue(self, asked: Dequeue) -> Timed:
        """Enqueue, untimed; then execute all of it. Raises WrongError if not all was done."""
        raise NotImplementedError

    def request_reply(self, asked: RequestReply) -> RoundTrips:
        """Make round trips."""
        raise NotImplementedError

    def publish(self, asked: Publish) -> Timed:
        """Send messages of a stream; making the receivers ready is not timed."""
        raise NotImplementedError

    def pace(self, asked: Pace) -> RoundTrips:
        """Send messages of a stream at a pace."""
        raise NotImplementedError

    def catch_up(self, asked: CatchUp) -> Timed:
        """Send messages, untimed; then show them to a receiver that is new."""
        raise NotImplementedError

    def close(self) -> None:
        """End everything that was started. Within 20 s."""


def percentile(ascending: Sequence[float], share: float) -> float:
    """Return the smallest value that at least this share of the values does not exceed."""
    if not ascending:
        raise WrongError("a percentile of nothing")
    rank = max(1, -(-len(ascending) * round(share * 1000) // 1000))
    return ascending[rank - 1]


def shares(number: int, parts: int) -> list[int]:
    """Divide a number into this many parts, as equal as possible."""
    return [number // parts + (index < number % parts) for index in range(parts)]


def require_count(what: str, found: int, expected: int) -> None:
    """Raise WrongError unless as many were found as there should be."""
    if found != expected:
        raise WrongError(f"{what}: {found} instead of {expected}")


COMMANDS: Mapping[str, tuple[type, Callable[[System], Callable[..., Timed | RoundTrips]]]] = {
    "enqueue": (Enqueue, lambda system: system.enqueue),
    "enqueue_batch": (EnqueueBatch, lambda system: system.enqueue_batch),
    "dequeue": (Dequeue, lambda system: system.dequeue),
    "request_reply": (RequestReply, lambda system: system.request_reply),
    "publish": (Publish, lambda system: system.publish),
    "pace": (Pace, lambda system: system.pace),
    "catch_up": (CatchUp, lambda system: system.catch_up),
}


def offers(system: System) -> list[str]:
    """Return the names of the commands that a system overrides."""
    return [name for name in COMMANDS if getattr(type(system), name) is not getattr(System, name)]


def _performed(system: System, line: str) -> dict[str, object]:
    asked = cast("dict[str, object]", json.loads(line))
    name = str(asked.pop("do"))
    if name not in COMMANDS or name not in offers(system):
        return {"error": f"{name!r} is not offered"}
    kind, method = COMMANDS[name]
    return method(system)(kind(**asked)).answer()


def _answer(system: System, line: str) -> dict[str, object]:
    try:
        return _performed(system, line)
    except Exception as error:  # noqa: BLE001 - the boundary: whatever fails is the answer
        traceback.print_exc()
        return {"error": f"{type(error).__name__}: {error}"}


def _own_output() -> TextIO:
    """Keep standard output for the answers; what others print goes to standard error."""
    sys.stdout.flush()
    kept = os.fdopen(os.dup(1), "w", encoding="utf-8", buffering=1)
    os.dup2(2, 1)
    return kept


def _place() -> Place:
    parser = argparse.ArgumentParser()
    parser.add_argument("--dir", type=Path, required=True)
    parser.add_argument("--conninfo")
    parser.add_argument("--setting", choices=["best", "safe"], default="best")
    given = parser.parse_args()
    given.dir.mkdir(parents=True, exist_ok=True)
    return Place(directory=given.dir.resolve(), conninfo=given.conninfo, setting=given.setting)


def _terminated(number: int, _frame: object) -> NoReturn:
    raise SystemExit(128 + number)


def serve_commands(open_system: Callable[[Place], System]) -> None:
    """Speak the protocol until the end of the input; then close the system."""
    place = _place()
    answers = _own_output()
    signal.signal(signal.SIGTERM, _terminated)

    def say(line: Mapping[str, object]) -> None:
        answers.write(json.dumps(line) + "\n")
        answers.flush()

    try:
        system = open_system(place)
    except SkippedError as reason:
        say({"ready": False, "skip": str(reason)})
        return
    try:
        about = system.about()
        say(
            {
                "ready": True,
                "system": about.system,
                "version": about.version,
                "setting": place.setting,
                "offers": offers(system),
                "weaker": about.weaker,
                "how": about.how,
            }
        )
        for line in sys.stdin:
            say(_answer(system, line))
    finally:
        system.close()
