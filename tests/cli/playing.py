"""What a scene of `onceq explain` is, and what it yields."""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import Callable, Generator
from dataclasses import dataclass
from typing import Final

import onceq
from tests.cli.stage import Stage


@dataclass(frozen=True, kw_only=True)
class Asked:
    """How to ask for a request, and the reasons that are to be given."""

    reasons: tuple[str, ...]
    client: str | None = None
    rid: str | None = None
    eid: uuid.UUID | None = None

    @property
    def words(self) -> tuple[str, ...]:
        """The arguments of the command."""
        return (str(self.eid),) if self.eid else (str(self.client), str(self.rid))

    def explained(self, qm: onceq.QueueManager) -> onceq.Explanation:
        return qm.explain(self.client, self.rid, eid=self.eid)


STRICT: Final = onceq.Queue("line", bytes, bytes, order="strict", backoff_ms=60_000)
Played = Generator[Asked]
Scene = Callable[[Stage], contextlib.AbstractContextManager[Asked]]
