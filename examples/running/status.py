"""What a child of a run tells its runner about itself: a JSON line each on its standard output."""

from __future__ import annotations

import sys
from collections.abc import Mapping

import msgspec


class Status(msgspec.Struct, frozen=True, omit_defaults=True):
    """ready: whether it is at work in this life. counts: how far it is; what is left out stands."""

    ready: bool = False
    counts: Mapping[str, int] = msgspec.field(default_factory=dict[str, int])


def say(also: Mapping[str, int] | None = None, *, ready: bool = False, **counts: int) -> None:
    """Tells the runner how this process is getting on; a missing runner does not matter.

    also: counts whose names are no words of Python.
    """
    line = msgspec.json.encode(Status(ready=ready, counts={**counts, **(also or {})}))
    sys.stdout.write(line.decode() + "\n")
    sys.stdout.flush()
