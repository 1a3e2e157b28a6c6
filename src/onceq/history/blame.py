"""Which faults of a run could have touched an element: they excuse it, and no others do (G7).

Private to the checker. A fault that names a server touches what that server has executed. One that
names a client touches no execution. Any other may touch whatever ran at its time. One whose time
is not known (at 0) may have been at any time.
"""

from __future__ import annotations

import bisect
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass

CLIENTS = "client"
"""The target of a fault that only clients feel."""


def name_of(actor: str) -> str:
    """Returns the participant of an actor as faults name it: the last word."""
    return actor.rpartition(" ")[2]


class Injected:
    """The faults of a run, by the participants they touched. Call `sort` once all were added."""

    def __init__(self) -> None:
        self._at: defaultdict[str, list[int]] = defaultdict(list)

    def add(self, target: str, at: int) -> None:
        """Adds a fault."""
        self._at[name_of(target)].append(at)

    def sort(self, servers: Iterable[str], clients: Iterable[str]) -> None:
        """Drops those of clients, and groups those that name no server."""
        known = {name_of(one) for one in servers}
        for name in {CLIENTS, *map(name_of, clients)} - known:
            self._at.pop(name, None)
        for name in [name for name in self._at if name and name not in known]:
            self._at[""] += self._at.pop(name)
        for times in self._at.values():
            times.sort()

    def targets(self) -> set[str]:
        """Returns the targets of the faults."""
        return set(self._at)

    def touching(self, actors: Iterable[str], begin: int, end: int) -> int:
        """Returns how many may have touched what these executed, within these times."""
        names = {"", *map(name_of, actors)}
        return sum(_within(self._at.get(name, []), begin, end) for name in names)

    def unheard(self, most: int) -> int:
        """Returns how many servers may have died with an element of which they had said nothing.

        Nobody can tell which. Such a death must fall within one instant, so more than `most` for
        one element are not chance, unless the time of the faults is not known.
        """
        untimed = sum(bisect.bisect_right(times, 0) for times in self._at.values())
        return untimed + min(most, sum(map(len, self._at.values())) - untimed)


def _within(times: list[int], begin: int, end: int) -> int:
    untimed = bisect.bisect_right(times, 0)
    return untimed + max(
        0, bisect.bisect_right(times, end) - bisect.bisect_left(times, max(begin, 1))
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """What is known of a whole history, by which each part of it is judged.

    faults: sorted. starts, executions: whether anybody recorded `Started` and `Executed`.
    """

    faults: Injected
    starts: bool
    executions: bool
