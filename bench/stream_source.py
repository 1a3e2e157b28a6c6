"""One source of a stream in a process of its own, as a user's: it imports nothing but onceq.

`python -m bench.stream_source STORES NUMBER` says what it weighs after a hundredth of so many
messages, and at every tenth.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from dataclasses import asdict, dataclass
from pathlib import Path

from onceq import streams

TOPIC = streams.Topic("long")
SESSION = 0x10
BODY = b"x" * 100
FLIGHT = 10_000
STABLE_S = 300.0
PAGE = os.sysconf("SC_PAGE_SIZE")


@dataclass(frozen=True, slots=True)
class Told:
    """What it says. retained_mb: what it keeps to send it again, as far as its bodies go."""

    sent: int
    resident_mb: float
    retained_mb: float

    @staticmethod
    def of(line: bytes) -> Told:
        """Return what a line says."""
        return Told(**json.loads(line))


async def send(stores: str, number: int) -> None:
    """Send so many messages, and say what that takes."""
    marks = {max(1, number // 100), *(max(1, number * tenth // 10) for tenth in range(1, 11))}
    async with (
        streams.open_async(session_id=SESSION) as context,
        context.source(TOPIC, stores=stores, flight_size=FLIGHT) as source,
    ):
        await source.wait_registered(STABLE_S)
        for count in range(1, number + 1):
            await source.send(BODY)
            if count in marks:
                _say(source, count)
        await source.wait_stable(STABLE_S)


def _say(source: streams.AsyncSource[bytes], count: int) -> None:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    retained = source.statistics().retained_bytes
    told = Told(count, pages * PAGE / 1e6, retained / 1e6)
    sys.stdout.write(json.dumps(asdict(told)) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    asyncio.run(send(sys.argv[1], int(sys.argv[2])))
