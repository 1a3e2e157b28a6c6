"""The rules by which a source keeps what it has sent, and gives up what it cannot keep. Pure.

Source: UM, "Source Message Retention and Release"; spec M12 to M18.
"""

from __future__ import annotations

from typing import Final

import msgspec

from onceq.errors import InvalidValue
from onceq.streams.model.events import Notification
from onceq.streams.model.fragments import FRAGMENT_BYTES_MAX
from onceq.streams.model.frames import LENGTH_BYTES
from onceq.streams.model.window import Flight

FLIGHTS_MIN: Final = 2
"""The limit of what is kept is at least so many flights."""


class Policy(msgspec.Struct, frozen=True, kw_only=True):
    """The rules of one source; its fields are options, see their table."""

    fragment_size: int = FRAGMENT_BYTES_MAX
    message_stability_notification: Notification = Notification.STABLE
    message_stability_lifetime_ms: int = 0
    retention_unique_confirmations: int = 0
    retransmit_retention_size_threshold: int = 0
    retransmit_retention_size_limit: int = 64 << 20
    source_liveness_timeout_ms: int = 0

    @property
    def is_told(self) -> bool:
        """Whether the application is told what is stable."""
        return self.message_stability_notification is not Notification.OFF

    def releases_below(
        self, *, begin: int, stable: int, confirmed: int, is_kept: bool = True
    ) -> int:
        """Return below which number the rules let go of what is kept, the oldest first.

        begin: what is kept. stable: everything below is, and nobody needs it any more. confirmed:
        everything below has as many confirmations as it needs. If stability is not told, or no
        store keeps what is stable, confirmations alone let go, and a source that wants none keeps
        all until its limit says otherwise; what is not stable is kept even then, since stores may
        lack it.
        """
        unique = self.retention_unique_confirmations
        if not unique:
            return stable if self.is_told and is_kept else begin
        return min(stable, confirmed)


def refuse_unless_fits(policy: Policy, flight: Flight) -> None:
    """Raise InvalidValue unless a policy keeps at least what two flights take."""
    least = FLIGHTS_MIN * max(flight.bytes_max, flight.messages_max * LENGTH_BYTES)
    limit = policy.retransmit_retention_size_limit
    if limit < least:
        raise InvalidValue(
            f"retransmit_retention_size_limit is {limit}: with this flight_size and"
            f" flight_size_bytes give at least {least}, which is {FLIGHTS_MIN} flights"
        )
    if policy.retransmit_retention_size_threshold > limit:
        raise InvalidValue(
            f"retransmit_retention_size_threshold is"
            f" {policy.retransmit_retention_size_threshold}: give at most the limit, {limit}"
        )
