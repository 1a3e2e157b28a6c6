"""The trace context of a send, among the properties of what was sent (spec Q14). Pure.

It is the `traceparent` of the W3C, as text. Only onceq writes it, where OpenTelemetry is switched
on; whoever reads an element finds it beside the properties, which are then as they were given.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, cast

KEY: Final = "onceq_trace"


def with_trace(properties: Mapping[str, Any] | None, trace: str) -> dict[str, Any]:
    """Returns properties with the trace context of a send."""
    return {**(properties or {}), KEY: trace}


def parted(properties: Any) -> tuple[Any, str | None]:
    """Returns properties as they were given, and the trace context of the send; None: none.

    Properties that are no JSON object, as SQL of others may have made them, stay what they are.
    """
    if not isinstance(properties, Mapping) or KEY not in properties:
        return cast("Any", properties), None
    left = dict(cast("Mapping[str, Any]", properties))
    trace = left.pop(KEY)
    return left or None, trace if isinstance(trace, str) else None
