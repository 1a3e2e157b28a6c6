"""OpenTelemetry for queues: spans and metrics of what this process sends, receives and processes.

`switch_on()` is all there is to call: once in a process, in the module that `onceq serve` is given
too. Until then nothing of OpenTelemetry is imported, and Programs are run as they are written.
When on, each Program is run within another (`watched`), which has a span for each Op in the table
of `spans`, and adds to what is sent the property `onceq_trace` (`onceq.model.trace`). No request
fails by it: what goes wrong in spans is logged. docs/opentelemetry.md is the guide.
"""

from __future__ import annotations

import functools
import importlib.util
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from onceq.errors import IllegalState, MissingExtra
from onceq.model.ops import Runs, RunsAsync
from onceq.server.server import Server

if TYPE_CHECKING:
    from opentelemetry.metrics import MeterProvider
    from opentelemetry.trace import TracerProvider

__all__ = ["switch_off", "switch_on"]

_RUN: Final = "run"
_plain: dict[type[Any], Callable[..., Any]] = {}
"""The methods as they are written, while others stand in their place: a process has one switch."""
_switching: Final = threading.Lock()


def switch_on(
    *,
    tracer_provider: TracerProvider | None = None,
    meter_provider: MeterProvider | None = None,
) -> None:
    """Switches OpenTelemetry on: for calls of this process from now on, and servers run after that.

    Providers: None: those that were set for the process. Raises MissingExtra (opentelemetry-api is
    not installed), InvalidValue (not a provider), IllegalState (it is on; or no tracer provider was
    set, so that spans would go nowhere): nothing is changed. Without a meter provider there are no
    metrics.
    """
    if importlib.util.find_spec("opentelemetry") is None:
        raise MissingExtra("OpenTelemetry needs opentelemetry-api: pip install 'onceq[otel]'")
    from onceq.otel import spans, watched  # noqa: PLC0415 # only who switches it on has the extra

    with _switching:
        if _plain:
            raise IllegalState("OpenTelemetry is on: switch_off() first, to give other providers")
        teller = spans.teller(tracer_provider, meter_provider)
        for kind in (Runs, RunsAsync):
            _replace(kind, functools.partial(watched.watching, teller))
        _replace(Server, functools.partial(watched.flushing, teller))


def switch_off() -> None:
    """Switches it off again: what runs goes on to be told of, what begins is not. Idempotent."""
    with _switching:
        for kind, plain in _plain.items():
            setattr(kind, _RUN, plain)
        _plain.clear()


def _replace(kind: type[Any], made: Callable[[Callable[..., Any]], Callable[..., Any]]) -> None:
    _plain[kind] = getattr(kind, _RUN)
    setattr(kind, _RUN, functools.wraps(_plain[kind])(made(_plain[kind])))
