"""What onceq logs of OpenTelemetry; `onceq.telemetry` says what an event is, and tells it."""

from __future__ import annotations

import logging

from onceq.telemetry import Event


class SpanFailed(Event, level=logging.WARNING):
    """A span, a metric or their export failed; the operation itself was not touched.

    doing: what was tried. code: the class of what was raised. Told once for each pair.
    """

    doing: str
    code: str
