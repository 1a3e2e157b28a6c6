"""Spans and metrics in OpenTelemetry's words: the messaging conventions, which are in development.

Used by `watched` alone, and imported only where OpenTelemetry is switched on. It holds names of
queues, rids, counts and codes of errors: never a body, a reply, a tag, an error's text or how a
database is reached.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, TypeVar

from opentelemetry import context as contexts
from opentelemetry import metrics, trace
from opentelemetry.metrics import Histogram, MeterProvider
from opentelemetry.trace import (
    Link,
    ProxyTracerProvider,
    Span,
    SpanKind,
    Status,
    StatusCode,
    TracerProvider,
)
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from onceq import telemetry
from onceq.errors import IllegalState, InvalidValue
from onceq.model.names import shown
from onceq.otel.logged import SpanFailed
from onceq.version import __version__

if TYPE_CHECKING:
    from opentelemetry.context import Context

log = logging.getLogger(__name__)
T = TypeVar("T")

CONVENTIONS: Final = "1.44.0"
"""The version of the semantic conventions whose names these are."""
SCHEMA: Final = f"https://opentelemetry.io/schemas/{CONVENTIONS}"
SYSTEM: Final = "onceq"
BUCKETS_S: Final = (0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1, 2.5, 5, 7.5, 10)
FLUSH_S: Final = 4.0
"""How long the end of a server waits for spans and metrics to be exported."""
CUT_SHORT: Final = "_OTHER"
"""`error.type` of what ended by no error of onceq's, such as a cancelled task."""
TRACEPARENT: Final = "traceparent"
_W3C: Final = TraceContextTextMapPropagator()

ID: Final = "messaging.message.id"
COUNT: Final = "messaging.batch.message_count"
DESTINATION: Final = "messaging.destination.name"
TEMPLATE: Final = "messaging.destination.template"
ERROR: Final = "error.type"
ATTEMPT: Final = "messaging.onceq.attempt"
LAST_ABORT: Final = "messaging.onceq.last_abort"
CHARGE: Final = "messaging.onceq.charge"


@dataclass(frozen=True, slots=True)
class Operation:
    """An operation in the conventions' words. name: ours; type, kind: as they have them."""

    name: str
    type: str
    kind: SpanKind


@dataclass(frozen=True, slots=True)
class Subject:
    """What a span says of one message. rid: None: it is not known. trace: of its send.

    attempt: the execution that a claim leads to, 1 for the first; last_abort: the code of the one
    before.
    """

    rid: str | None
    trace: str | None = None
    attempt: int | None = None
    last_abort: str | None = None

    @property
    def attributes(self) -> dict[str, Any]:
        """What belongs to this message alone."""
        known = {ID: self.rid, ATTEMPT: self.attempt, LAST_ABORT: self.last_abort}
        return {name: value for name, value in known.items() if value is not None}


@dataclass(frozen=True, slots=True)
class Destination:
    """Where a message goes or comes from; None: it is not known.

    template: of names that are too many to tell apart, and stands for them in names and metrics.
    """

    name: str | None
    template: str | None = None

    @property
    def title(self) -> str:
        """How a span's name ends."""
        found = self.template or self.name
        return "" if found is None else f" {found}"

    @property
    def attributes(self) -> dict[str, str]:
        """What a span says of it."""
        known = {DESTINATION: self.name, TEMPLATE: self.template}
        return {name: value for name, value in known.items() if value is not None}

    @property
    def measured(self) -> dict[str, str]:
        """What a metric says of it."""
        known = {DESTINATION: self.name} if self.template is None else {TEMPLATE: self.template}
        return {name: value for name, value in known.items() if value is not None}


NOWHERE: Final = Destination(None)


@dataclass(frozen=True, slots=True)
class Moment:
    """When something began: on the clock that spans have, and on one that nobody sets."""

    at_ns: int = field(default_factory=time.time_ns)
    monotonic: float = field(default_factory=time.monotonic)


class Begun:
    """A span that has begun. began: on the clock that nobody sets."""

    __slots__ = ("_teller", "began", "operation", "span", "where")

    def __init__(
        self, teller: Teller, span: Span, operation: Operation, where: Destination
    ) -> None:
        self._teller = teller
        self.span = span
        self.operation = operation
        self.where = where
        self.began = time.monotonic()

    @property
    def trace(self) -> str | None:
        """Its context as a traceparent; None: there is none, as nobody records spans."""
        carrier: dict[str, str] = {}
        _W3C.inject(carrier, self.context)
        return carrier.get(TRACEPARENT)

    @property
    def context(self) -> Context:
        """The context in which it is the current span."""
        return trace.set_span_in_context(self.span)

    def add(self, name: str, value: str) -> None:
        """Adds what is known by now."""
        self.span.set_attribute(name, value)

    def end(self, error: str | None = None) -> None:
        """Ends it now, with the code of an error, if one ended it."""
        took_s = time.monotonic() - self.began
        if error is not None:
            self.span.set_attribute(ERROR, error)
            self.span.set_status(Status(StatusCode.ERROR))
        self.span.end()
        self._teller.measure(self, took_s, error)


class Teller:
    """Makes spans and metrics, by the providers that were given."""

    def __init__(self, tracers: TracerProvider, meters: MeterProvider) -> None:
        self._providers = (tracers, meters)
        self._tracer = tracers.get_tracer("onceq", __version__, schema_url=SCHEMA)
        meter = meters.get_meter("onceq", __version__, schema_url=SCHEMA)
        self._durations: dict[bool, Histogram] = {
            is_process: meter.create_histogram(
                f"messaging.{what}.duration",
                unit="s",
                description=description,
                explicit_bucket_boundaries_advisory=BUCKETS_S,
            )
            for is_process, what, description in (
                (False, "client.operation", "How long sends, receives and settlements took."),
                (True, "process", "How long handlers took."),
            )
        }
        self._noted: set[tuple[str, str]] = set()

    def begin(
        self,
        operation: Operation,
        destination: Destination,
        subjects: Sequence[Subject],
        *,
        since: Moment | None = None,
        within: Context | None = None,
    ) -> Begun:
        """Begins a span, linked to the sends of its messages.

        since: when it began; None: now. within: the context of its parent; None: the present one.
        """
        alone = subjects[0] if len(subjects) == 1 else None
        about = {COUNT: len(subjects)} if alone is None else alone.attributes
        span = self._tracer.start_span(
            operation.name + destination.title,
            context=within,
            kind=operation.kind,
            attributes={
                **_words(operation),
                **destination.attributes,
                **about,
            },
            links=[link for one in subjects for link in _links(one)],
            start_time=None if since is None else since.at_ns,
        )
        begun = Begun(self, span, operation, destination)
        begun.began = begun.began if since is None else since.monotonic
        return begun

    def measure(self, begun: Begun, took_s: float, error: str | None) -> None:
        """Notes how long an operation took."""
        known = {**_words(begun.operation), **begun.where.measured}
        if error is not None:
            known[ERROR] = error
        duration = self._durations[begun.operation.type == "process"]
        duration.record(took_s, known, context=begun.context)

    def safely(self, doing: str, call: Callable[[], T]) -> T | None:
        """Returns what the call returns; None, and a line in the log, if it raises.

        What a sampler, a processor or an exporter of the user's raises must fail no request.
        """
        try:
            return call()
        except Exception as error:  # noqa: BLE001 # as above
            self.failed(doing, type(error).__name__)
            return None

    def failed(self, doing: str, code: str) -> None:
        """Logs what failed, the first time."""
        if (doing, code) not in self._noted:
            self._noted.add((doing, code))
            telemetry.tell(log, SpanFailed(doing=doing, code=code))

    def flush(self) -> None:
        """Has all be exported that has ended, or as much as FLUSH_S allows."""
        thread = threading.Thread(target=self._flush, name="onceq-otel-flush", daemon=True)
        thread.start()
        thread.join(FLUSH_S)
        if thread.is_alive():
            self.failed("flush", "TimeoutError")

    def _flush(self) -> None:
        for provider in self._providers:
            flush = getattr(provider, "force_flush", None)  # of the SDK's; the API has none
            if flush is not None and self.safely("flush", flush) is False:
                self.failed("flush", "not all was exported")


def _words(operation: Operation) -> dict[str, str]:
    return {
        "messaging.system": SYSTEM,
        "messaging.operation.name": operation.name,
        "messaging.operation.type": operation.type,
    }


def _links(subject: Subject) -> list[Link]:
    """Returns the link to the send of a message; none if it has no context that can be read."""
    if subject.trace is None:
        return []
    found = _W3C.extract({TRACEPARENT: subject.trace}, contexts.Context())
    context = trace.get_current_span(found).get_span_context()
    return [Link(context, subject.attributes)] if context.is_valid else []


def teller(tracers: object | None, meters: object | None) -> Teller:
    """Returns what makes spans by these providers; None: by those of the process.

    InvalidValue, IllegalState.
    """
    found: TracerProvider = _provider(TracerProvider, tracers, trace.get_tracer_provider)
    measured: MeterProvider = _provider(MeterProvider, meters, metrics.get_meter_provider)
    if isinstance(found, ProxyTracerProvider):
        raise IllegalState(
            "no tracer provider is set, so spans would go nowhere: set one before "
            "(opentelemetry.trace.set_tracer_provider), or give switch_on(tracer_provider=...)"
        )
    return Teller(found, measured)


def _provider(kind: type[Any], given: object | None, of_process: Callable[[], Any]) -> Any:
    """Returns what was given, or what the process has. InvalidValue: it is of no such kind."""
    if given is None:
        return of_process()
    if not isinstance(given, kind):
        raise InvalidValue(f"OpenTelemetry's {kind.__name__} is wanted, not {shown(given)}")
    return given
