"""What a source tells of the stores that register it, and of those that do not. Pure.

Source: streams.md 5; spec M1, M6.
"""

from __future__ import annotations

from collections.abc import Iterator

from onceq.streams.model import events
from onceq.streams.model.losses import Acceptance
from onceq.streams.source import telling
from onceq.streams.source.epochs import Begun, Short


class Registered:
    """The stores that have registered a source, in the epoch that goes on.

    regids: what it is called there.
    """

    def __init__(self) -> None:
        self.regids: dict[str, int] = {}
        self._stores: set[str] = set()
        self._short = Short()

    def begin(self, begun: Begun) -> Iterator[events.RegistrationError]:
        """Begin an epoch; yield where another source has the RegID of this one."""
        self.regids |= begun.regids
        self._stores.clear()
        self._short = Short()
        yield from telling.taken(begun.stream, begun.taken)

    def register(
        self, begun: Begun, store: str, end: int | None, regid: int = 0
    ) -> Iterator[events.StoreRegistered]:
        """Yield that a store has registered it. end: of its log; None: it keeps none.

        regid: as it told; 0: as it told before.
        """
        is_old = store in self._stores or store not in begun.fresh
        self._stores.add(store)
        known = self.regids[store] = regid or self.regids.get(store, 0)
        yield telling.store_registered(begun.stream, store, end, old=is_old, regid=known)

    @property
    def rest(self) -> Acceptance | None:
        """What a person may accept as lost, so that a life goes on; None: nothing."""
        return self._short.rest

    def lack(
        self, stream: int, short: Short
    ) -> Iterator[events.RegistrationError | events.StoresForgot]:
        """Yield why no epoch can begin, unless that was told just before."""
        before, self._short = self._short, short
        if short != before:
            yield from telling.lacking(stream, short)
