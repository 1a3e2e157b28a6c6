"""A client that survives the loss of its connection: used by submit and collect.

What was under way is done again in the next life; in both programs this doubles nothing.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Generator
from typing import Final, Protocol, TypeVar

from onceq import errors
from onceq.engine.connect.connection import Link
from onceq.engine.embedded.locate import Located, locate
from onceq.engine.wake.waiting import Wakes
from onceq.files.program import Life, begin
from onceq.model import names
from onceq.model.ops import Program

T = TypeVar("T")

LOST: Final = (
    errors.CannotConnect,
    errors.ConnectionLost,
    errors.InDoubt,
    errors.EnvironmentFault,
    errors.EmbeddedStartFailed,
)
WAITS_S: Final = (0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 5.0, 5.0, 5.0)
"""Waits between attempts to connect again after a loss; the first connection is tried once."""


class ClientLink(Protocol):
    """What a client needs from its connection; `Link` is one."""

    def reconnect(self) -> None:
        """Connects if there is no connection, or it broke."""
        ...

    def run(self, program: Program[T]) -> T:
        """Runs a Program."""
        ...

    def close(self) -> None:
        """Closes the connection; idempotent."""
        ...


@contextlib.contextmanager
def client_at(
    where: Located | str | None,
    repository: str,
    name: str,
    told: Callable[[str], None],
    *,
    wakes: Wakes | None = None,
) -> Generator[PersistentClient]:
    """A client of a repository, for the time of a block.

    where: its database; a URL or None, like `onceq.open`; the rest: see `Link`, `PersistentClient`.
    """
    names.check_id("client", name)
    with contextlib.ExitStack() as opened:
        if where is None or isinstance(where, str):
            where = opened.enter_context(contextlib.closing(locate(where)))
        yield PersistentClient(Link(where, repository, wakes=wakes), name, told)


def quiet(*_: object) -> None:
    """Tells nobody."""


def wait(seconds: float) -> None:
    """Waits."""
    threading.Event().wait(seconds)


class PersistentClient:
    """Runs Programs in lives of a client, a new one after each loss.

    told: is told of losses. pause: waits so many seconds between attempts to connect again.
    """

    def __init__(
        self,
        link: ClientLink,
        client: str,
        told: Callable[[str], None],
        pause: Callable[[float], None] = wait,
    ) -> None:
        self._link = link
        self._client = client
        self._told = told
        self._life: Life | None = None
        self._pause = pause

    def run(self, part: Callable[[Life], T]) -> T:
        """Returns part(life), run again in a new life if the connection is lost meanwhile.

        Raises the last loss once WAITS_S is used up; at once, if it was never connected; and
        everything else at once.
        """
        was_connected = self._life is not None
        for wait_s in WAITS_S:
            try:
                return self._attempt(part)
            except LOST as error:
                was_connected = was_connected or self._life is not None
                self._drop()
                if not was_connected:
                    raise
                self._told(f"connection lost, trying again in {wait_s} s: {error}")
                self._pause(wait_s)
        return self._attempt(part)

    def perform(self, program: Program[T]) -> T:
        """Runs a Program in the present life; for use inside `part`."""
        return self._link.run(program)

    def close(self) -> None:
        """Closes the connection; the session stays. Idempotent."""
        self._drop()

    def _attempt(self, part: Callable[[Life], T]) -> T:
        if self._life is None:
            self._link.reconnect()
            self._life = self._link.run(begin(self._client))
        return part(self._life)

    def _drop(self) -> None:
        self._life = None
        self._link.close()
