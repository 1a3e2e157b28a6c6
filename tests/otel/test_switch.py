"""Switching OpenTelemetry on and off: what is refused, what it costs, and that it fails nothing."""

from __future__ import annotations

import importlib.util
import os
import threading
from typing import TYPE_CHECKING, Any

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import SpanProcessor, TracerProvider
from opentelemetry.semconv import schemas
from opentelemetry.semconv._incubating.attributes import messaging_attributes
from opentelemetry.semconv._incubating.metrics import messaging_metrics
from opentelemetry.trace import NoOpTracerProvider

import onceq
from onceq import otel
from onceq.errors import IllegalState, InvalidValue, MissingExtra
from onceq.model import ops
from onceq.model.trace import KEY, parted, with_trace
from onceq.otel import logged, spans, steps, watched
from tests.events import emits
from tests.lives import living
from tests.otel.parts import ID, Exported, attributes, exporting, linked
from tests.parts import LIMIT_S, scalar, serving
from tests.programs import run_python
from tests.tidy.source_tree import ROOT

if TYPE_CHECKING:
    from collections.abc import Generator

    from opentelemetry.context import Context
    from opentelemetry.sdk.trace import ReadableSpan, Span

    from tests.events import Events

ORDERS = onceq.Queue("orders", str, str)
UNTOUCHED = [vars(kind)["run"] for kind in (ops.Runs, ops.RunsAsync, onceq.Server)]


@pytest.fixture(autouse=True)
def _off() -> Generator[None]:
    yield
    otel.switch_off()


def methods() -> list[Any]:
    return [vars(kind)["run"] for kind in (ops.Runs, ops.RunsAsync, onceq.Server)]


def test_off_nothing_is_there_of_it(qm: onceq.QueueManager, conninfo: str) -> None:
    """Methods are those that are written, and what is sent has no property more."""
    with exporting():
        assert all(one is not plain for one, plain in zip(methods(), UNTOUCHED, strict=True))
    assert methods() == UNTOUCHED
    qm.declare(ORDERS)
    qm.enqueue(ORDERS, "x")
    qm.enqueue_many(ORDERS, ["x"])
    with qm.clerk("till", ORDERS) as clerk:
        clerk.send("1", "x")
    query = f"select count(*) from {qm.repository}.element where properties is not null"
    assert scalar(conninfo, query) == 0


def test_nothing_imports_it_unless_it_is_switched_on() -> None:
    program = (
        "import sys, onceq, onceq.cli.main, onceq.server.child, onceq.otel\n"
        "print([name for name in sys.modules if name.startswith('opentelemetry')])"
    )
    done = run_python(["-c", program], cwd=ROOT, env={**os.environ, "PYTHONPATH": "src"})
    assert (done.returncode, done.stdout) == (0, "[]\n"), done.stderr


def test_without_the_extra_switching_on_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    found = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name: None if name == "opentelemetry" else found(name)
    )
    with pytest.raises(MissingExtra, match=r"pip install 'onceq\[otel\]'"):
        otel.switch_on()
    assert methods() == UNTOUCHED


def test_what_would_tell_nobody_anything_is_refused(exported: Exported) -> None:
    with pytest.raises(IllegalState, match="switch_off"):
        otel.switch_on(tracer_provider=exported.tracers)
    otel.switch_off()
    assert isinstance(trace.get_tracer_provider(), trace.ProxyTracerProvider)
    with pytest.raises(IllegalState, match="no tracer provider is set"):
        otel.switch_on()
    wrong: Any = exported.tracers
    with pytest.raises(InvalidValue, match="MeterProvider is wanted, not a value of class Tracer"):
        otel.switch_on(tracer_provider=exported.tracers, meter_provider=wrong)
    wrong = "console"
    with pytest.raises(InvalidValue, match="TracerProvider is wanted, not 'console'"):
        otel.switch_on(tracer_provider=wrong)
    assert methods() == UNTOUCHED


def test_where_nobody_records_spans_nothing_travels(qm: onceq.QueueManager) -> None:
    otel.switch_on(tracer_provider=NoOpTracerProvider())
    qm.declare(ORDERS)
    element = qm.read(qm.enqueue(ORDERS, "x"))
    assert element is not None
    assert (element.properties, element.trace) == (None, None)


class Failing(SpanProcessor):
    """A processor of the user's that has a bug."""

    def on_start(self, span: Span, parent_context: Context | None = None) -> None:
        raise ZeroDivisionError(f"secret {span.name} {parent_context}")

    def on_end(self, span: ReadableSpan) -> None:
        raise LookupError(f"secret {span.name}")


class FailingLater(Failing):
    """One whose bug shows when spans end."""

    def on_start(self, span: Span, parent_context: Context | None = None) -> None:
        """Is fine."""


@emits(logged.SpanFailed)
@pytest.mark.parametrize("kind", [Failing, FailingLater])
def test_what_fails_in_spans_fails_no_request(
    qm: onceq.QueueManager, conninfo: str, events: Events, kind: type[SpanProcessor]
) -> None:
    providers = TracerProvider()
    providers.add_span_processor(kind())
    otel.switch_on(tracer_provider=providers)
    with (
        serving(conninfo, qm.repository, ORDERS.handled_by(lambda request, _: request)),
        qm.clerk("till", ORDERS) as clerk,
    ):
        for rid in ("1", "2"):
            assert clerk.transceive(rid, "x", timeout_s=LIMIT_S).value == "x"
    told = [(one["doing"], one["code"]) for one in events.of(logged.SpanFailed)]
    assert len(told) == len(set(told)), "each is told once"
    verb, code = ("begin", "ZeroDivisionError") if kind is Failing else ("end", "LookupError")
    assert {(f"{verb} Send", code), (f"{verb} Call", code), (f"{verb} Finish", code)} <= {*told}
    assert not [line for line in events.lines if "secret" in line]


class Unexported(TracerProvider):
    """One that does not export what it was given: it says so, or does not return."""

    def __init__(self, until: threading.Event | None) -> None:
        super().__init__()
        self._until = until

    def force_flush(self, timeout_millis: int = 30_000) -> bool:
        if self._until is not None:
            self._until.wait(timeout_millis / 1_000)
        return False


@emits(logged.SpanFailed)
@pytest.mark.parametrize(
    ("hangs", "code"), [(False, "not all was exported"), (True, "TimeoutError")]
)
def test_what_cannot_be_exported_does_not_keep_a_server(
    events: Events, monkeypatch: pytest.MonkeyPatch, *, hangs: bool, code: str
) -> None:
    monkeypatch.setattr(spans, "FLUSH_S", 0.2 if hangs else LIMIT_S)
    until = threading.Event()
    made = spans.teller(Unexported(until if hangs else None), None)
    try:
        assert watched.flushing(made, lambda server: server)("served") == "served"
        assert events.of(logged.SpanFailed) == [{"doing": "flush", "code": code}]
    finally:
        until.set()


def test_a_context_that_cannot_be_read_is_none(
    exported: Exported, qm: onceq.QueueManager, conninfo: str
) -> None:
    """As others may have written it, by SQL."""
    qm.declare(ORDERS)
    eids = [str(one) for one in qm.enqueue_many(ORDERS, ["x"] * 3)]
    for eid, text in zip(eids, ('"rubbish"', "7", '"00-0-0-00"'), strict=True):
        change = f"update {qm.repository}.element set properties = jsonb_build_object('{KEY}', "
        scalar(conninfo, f"{change}'{text}'::jsonb) where eid = '{eid}' returning 1")
    with serving(conninfo, qm.repository, ORDERS.handled_by(lambda request, _: request)):
        exported.wait_for("process", 3)
    assert {attributes(one)[ID] for one in exported.of("process")} == set(eids)
    assert [linked(one) for one in exported.of("process")] == [[]] * 3


def test_the_property_is_not_the_users(qm: onceq.QueueManager) -> None:
    """It is refused from them, and what they gave stays what it was."""
    qm.declare(ORDERS)
    with pytest.raises(InvalidValue, match="the queue manager's own"):
        qm.enqueue(ORDERS, "x", properties={KEY: "x"})
    with (
        qm.clerk("till", ORDERS) as clerk,
        pytest.raises(InvalidValue, match="the queue manager's own"),
    ):
        clerk.send("1", "x", properties={KEY: "x"})
    assert parted(with_trace(None, "x")) == (None, "x")
    assert parted(with_trace({"a": 1}, "x")) == ({"a": 1}, "x")
    assert parted({"a": 1}) == ({"a": 1}, None)
    assert parted([KEY]) == ([KEY], None)


def test_reply_queues_are_called_as_they_are(
    exported: Exported, qm: onceq.QueueManager, conninfo: str
) -> None:
    qm.declare(ORDERS)
    with living(conninfo, qm.repository) as life, qm.clerk("till", ORDERS) as clerk:
        clerk.send("1", "x")
        life.run(life.claim_one("orders"), b'"x"')
        clerk.receive(timeout_s=LIMIT_S)
    received = attributes(exported.one("receive"))
    names = f"select name from {qm.repository}.queue where kind = 'reply'"
    assert received["messaging.destination.name"] == scalar(conninfo, names)


def test_the_names_are_those_of_the_conventions() -> None:
    """Of the version that is said; what is ours alone is under our own name."""
    theirs = {value for name, value in vars(messaging_attributes).items() if name.isupper()}
    used = {
        value
        for value in vars(spans).values()
        if isinstance(value, str) and value.startswith("messaging.")
    }
    assert {one for one in used if not one.startswith("messaging.onceq.")} <= theirs
    assert schemas.Schemas.V1_44_0.value == spans.SCHEMA
    measured = {value for name, value in vars(messaging_metrics).items() if name.isupper()}
    assert {"messaging.client.operation.duration", "messaging.process.duration"} <= measured
    types = {one.value for one in messaging_attributes.MessagingOperationTypeValues}
    operations = [one for one in vars(steps).values() if isinstance(one, spans.Operation)]
    assert {one.type for one in operations} <= types
