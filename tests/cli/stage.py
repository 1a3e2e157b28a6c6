"""What scenes are played on: a repository, and sessions of servers that do what they are told."""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import Generator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import onceq
from onceq.model import ops
from tests.cli.parts import Cli
from tests.lives import Life, living
from tests.parts import plain

RAW: Final = onceq.Queue("raw", bytes, bytes, abort_limit=3, backoff_ms=60_000)


@dataclass(frozen=True)
class Stage:
    """What a scene is played on: an open repository with its queues."""

    qm: onceq.QueueManager
    conninfo: str
    cli: Cli
    place: Path

    def put(self, queue: onceq.Queue[bytes, bytes] = RAW, **attributes: Any) -> uuid.UUID:
        return self.qm.enqueue(queue, b"x", **attributes)

    def served(self, *queues: str) -> contextlib.AbstractContextManager[Life]:
        """A session of a server of these queues, which does what it is told."""
        return self._served(queues or (RAW.name,))

    @contextlib.contextmanager
    def _served(self, queues: tuple[str, ...]) -> Generator[Life]:
        with living(self.conninfo, self.qm.repository) as life:
            ids = [self.qm.show(name).queue_id for name in queues]
            life.driver.perform(ops.Attend(slot=life.slot, queue_ids=ids))
            yield life

    def execute(self, statement: str, *parameters: Any) -> None:
        with plain(self.conninfo) as connection:
            connection.execute(statement.format(self.qm.repository).encode(), parameters or None)
