"""A link for the time of a block, for whoever asks or says something once."""

from __future__ import annotations

import contextlib
from collections.abc import Generator

from onceq.engine.connect.connection import Link
from onceq.engine.embedded.locate import Located


@contextlib.contextmanager
def brief_link(located: Located, repository: str) -> Generator[Link]:
    """Connects, and closes at the end of the block. CannotConnect, SchemaMissing."""
    with contextlib.closing(Link(located, repository)) as link:
        link.reconnect()
        yield link
