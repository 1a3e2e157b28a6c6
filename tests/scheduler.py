"""Gives the processes of `make test` their groups of files, as tests/order.py deals them out.

Imported only where pytest-xdist is: single files run without it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from xdist.scheduler import LoadFileScheduling

from tests.order import dealt, file_of

if TYPE_CHECKING:
    import pytest
    from xdist.remote import Producer


class InGroups(LoadFileScheduling):  # type: ignore[misc] # xdist says no types
    """Gives each process one group after the other."""

    def __init__(self, config: pytest.Config, log: Producer | None = None) -> None:
        super().__init__(config, log)
        self._group_of: dict[str, str] = {}

    def schedule(self) -> None:
        """Deals the groups out, once it is known what there is."""
        if not self._group_of:
            (one, *_) = self.registered_collections.values()
            self._group_of = dealt({file_of(nodeid) for nodeid in one})[0]
        super().schedule()

    def _split_scope(self, nodeid: str) -> str:
        return self._group_of[file_of(nodeid)]
