"""What the tests of spans share: an exporter in memory, and what it has been told."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from onceq import otel
from tests.parts import wait_until

if TYPE_CHECKING:
    from collections.abc import Generator

    from opentelemetry.sdk.trace import ReadableSpan

TYPE = "messaging.operation.type"
NAME = "messaging.operation.name"
ID = "messaging.message.id"
ATTEMPT = "messaging.onceq.attempt"


class Exported:
    """What was exported in this process."""

    def __init__(self) -> None:
        self.exporter = InMemorySpanExporter()
        self.tracers = TracerProvider()
        self.tracers.add_span_processor(SimpleSpanProcessor(self.exporter))
        self._reader = InMemoryMetricReader()
        self.meters = MeterProvider([self._reader])

    @property
    def spans(self) -> list[ReadableSpan]:
        """All spans that have ended, in that order."""
        return list(self.exporter.get_finished_spans())

    def of(self, name: str, **about: Any) -> list[ReadableSpan]:
        """The spans of an operation of ours, with these attributes: `rid`, or any."""
        wanted = {ID if key == "rid" else key: value for key, value in about.items()}
        return [
            one
            for one in self.spans
            if attributes(one)[NAME] == name and wanted.items() <= attributes(one).items()
        ]

    def one(self, name: str, **about: Any) -> ReadableSpan:
        """The one span of an operation."""
        (found,) = self.of(name, **about)
        return found

    def wait_for(self, name: str, number: int = 1, **about: Any) -> list[ReadableSpan]:
        """Waits for so many spans of an operation."""
        wait_until(lambda: len(self.of(name, **about)) >= number)
        return self.of(name, **about)

    def durations(self) -> dict[str, dict[tuple[str, str | None], int]]:
        """How many were measured: by metric, operation and error."""
        found: dict[str, dict[tuple[str, str | None], int]] = {}
        data = self._reader.get_metrics_data()
        assert data is not None
        for metric in data.resource_metrics[0].scope_metrics[0].metrics:
            points: Any = metric.data.data_points
            assert metric.unit == "s"
            found[metric.name] = {
                (one.attributes[NAME], one.attributes.get("error.type")): one.count
                for one in points
            }
        return found


def attributes(span: ReadableSpan) -> dict[str, Any]:
    return dict(span.attributes or {})


def span_id(span: ReadableSpan) -> int:
    assert span.context is not None
    return int(span.context.span_id)


def trace_id(span: ReadableSpan) -> int:
    assert span.context is not None
    return int(span.context.trace_id)


def linked(span: ReadableSpan) -> list[int]:
    """Returns the spans to which one is linked."""
    return [one.context.span_id for one in span.links]


def parent(span: ReadableSpan) -> int | None:
    return None if span.parent is None else span.parent.span_id


@contextlib.contextmanager
def exporting() -> Generator[Exported]:
    """Switches it on for the time of the block."""
    found = Exported()
    otel.switch_on(tracer_provider=found.tracers, meter_provider=found.meters)
    try:
        yield found
    finally:
        otel.switch_off()
        found.tracers.shutdown()
        found.meters.shutdown()
