"""What the tests of spans serve in processes of their own, by what `onceq serve` is given.

The first execution of a request is killed with its process, if its file says so. Spans are
exported into a file: at once, or, as batches of the SDK's are, some time after they have ended.
"""

from __future__ import annotations

import os
import signal
from pathlib import Path

from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import (
    BatchSpanProcessor,
    ConsoleSpanExporter,
    SimpleSpanProcessor,
)

import onceq
from onceq import otel

ORDERS = onceq.Queue("orders", str, str, backoff_ms=0)
VARIABLE = "ONCEQ_TEST_SPANS"
"""Environment variable: `at-once FILE`, or `in-batches FILE`."""


def handle(request: str, _: onceq.Context) -> str:
    """Kills its process if the file that the request names is not there yet."""
    if request and not Path(request).exists():
        Path(request).touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return request


if VARIABLE in os.environ:
    kind, file = os.environ[VARIABLE].split()
    exporter = ConsoleSpanExporter(
        out=Path(file).open("a", encoding="utf-8"),  # noqa: SIM115 - as long as the process
        formatter=lambda span: span.to_json(indent=None) + "\n",
    )
    tracers = TracerProvider()
    tracers.add_span_processor(
        SimpleSpanProcessor(exporter) if kind == "at-once" else BatchSpanProcessor(exporter)
    )
    otel.switch_on(tracer_provider=tracers)

server = onceq.Server([ORDERS.handled_by(handle)])
