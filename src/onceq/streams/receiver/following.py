"""What a receiver tells when a source has changed what it keeps its stream by. Pure.

Source: spec M6; UM, "Persistence Events": a registration with changed options.
"""

from __future__ import annotations

from collections.abc import Iterator

from onceq.streams.model import events
from onceq.streams.model.quorum import StoreList


class Following:
    """The list of stores that a life of a receiver was told of last. stream: its id."""

    def __init__(self, stream: int, known: StoreList) -> None:
        self.stream = stream
        self._known = known

    def look(self, now: StoreList) -> Iterator[events.OptionsChanged]:
        """Take the list that counts now; yield what is another than before."""
        before, self._known = self._known, now
        if before is now:
            return
        for option, known, wanted in (
            ("stores", before.text(), now.text()),
            ("retention_intragroup_stability_behavior", before.intragroup, now.intragroup),
            ("retention_intergroup_stability_behavior", before.intergroup, now.intergroup),
        ):
            if known != wanted:
                yield events.OptionsChanged(
                    stream=self.stream, option=option, before=known, now=wanted
                )
