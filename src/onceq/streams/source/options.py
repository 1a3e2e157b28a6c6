"""The core of a source, as options want it. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec
from msgspec.structs import replace

from onceq.streams.model.options import Scope, settled
from onceq.streams.model.uses import beat_s
from onceq.streams.model.window import Flight
from onceq.streams.source.epochs import SourceLife, Timing
from onceq.streams.source.releasing import Policy
from onceq.streams.source.sending import Sending


def core_of(
    life: SourceLife,
    options: Mapping[str, object],
    timing: Timing | None = None,
    *,
    backups: str = "",
) -> Sending:
    """Return the core of a life of a source. options: of the table, those that are not defaults.

    Those of stability are the list's, which the life has. Raises InvalidValue for options that are
    none, that cannot be, or do not fit each other.
    """
    given: dict[str, Any] = settled(options, Scope.SOURCE)
    flight = Flight(
        messages_max=given["flight_size"],
        bytes_max=given["flight_size_bytes"],
        behavior=given["flight_size_behavior"],
    )
    activity_ms = given["activity_timeout_ms"]
    timing = replace(
        timing or Timing(),
        resend_s=given["message_stability_timeout_ms"] / 1_000,
        interval_s=given["registration_interval_ms"] / 1_000,
        beat_s=beat_s(activity_ms),
    )
    return Sending(
        replace(life, activity_ms=activity_ms, creation=given["create"]),
        flight,
        timing,
        policy=Policy(**{one.name: given[one.name] for one in msgspec.structs.fields(Policy)}),
        backups=backups,
        reported=given["consensus_sequence_number_behavior"],
    )
