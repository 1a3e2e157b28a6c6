"""Reads what stores have that is stable, over asyncio: it performs the Programs of `reading`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, Self

from onceq.model.ops.async_running import RunsAsync
from onceq.streams.bridge.reading import Asked, Piece, Waits, read_stable
from onceq.streams.net.asker import Asker
from onceq.streams.net.tls import Certificates
from onceq.streams.receiver.ops import ReadStore

CLOSE_S: Final = 1.0


async def fetched(
    asked: Asked, waits: Waits, certificates: Certificates | None = None
) -> Sequence[Piece]:
    """Return what stores have of some numbers, in order, without a gap, however long that takes."""
    async with Reading(certificates) as reading:
        return await reading.run(read_stable(asked, waits))


class Reading(RunsAsync):
    """Performs Programs that ask stores, for the time of a block."""

    def __init__(self, certificates: Certificates | None = None) -> None:
        self._asker = Asker(None if certificates is None else certificates.connecting())

    async def perform(self, op: Any) -> Any:
        """See RunsAsync."""
        match op:
            case ReadStore(store=store, ask=ask, within_s=within_s):
                return await self._asker.ask(store, ask, within_s)
            case _:
                return await self._asker.perform(op)

    def _leave(self) -> None:
        """See RunsAsync: a Program holds nothing here."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._asker.wait_closed(CLOSE_S)
