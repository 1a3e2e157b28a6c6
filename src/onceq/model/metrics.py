"""Metrics as text for Prometheus: a table says what is measured, and how it is read. Pure.

The text is what version 0.0.4 of its format says. Stores of streams have such a table, and so have
the queues of a repository.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Final, Generic, TypeAlias, TypeVar

import msgspec

S = TypeVar("S")

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
Labels: TypeAlias = Mapping[str, str]
Reading: TypeAlias = tuple[str, Labels, float]
"""What a name ends with besides that of its metric, as `_sum`; the labels; and the value."""


class Metric(msgspec.Struct, Generic[S], frozen=True, kw_only=True):
    """A row: what is measured of an S, and how it is read.

    kind: gauge, counter, summary or histogram. labels: but for those that Prometheus wants of a
    kind (`le`, `quantile`).
    """

    name: str
    kind: str
    text: str
    read: Callable[[S], Iterable[Reading]]
    labels: tuple[str, ...] = ()


class Sample(msgspec.Struct, frozen=True, kw_only=True):
    """A value at one time: a line of the text."""

    name: str
    labels: Labels
    value: float


def plainly(read: Callable[[S], float]) -> Callable[[S], Iterable[Reading]]:
    """Return how a metric is read that has one value, and no labels."""
    return lambda subject: [("", {}, float(read(subject)))]


def samples_of(metric: Metric[S], subject: S) -> Iterator[Sample]:
    """Yield the values of a metric."""
    for suffix, labels, value in metric.read(subject):
        yield Sample(name=metric.name + suffix, labels=labels, value=value)


def text_of(metrics: Iterable[Metric[S]], subject: S) -> str:
    """Return all metrics of which the subject has something to say."""
    lines: list[str] = []
    for metric in metrics:
        samples = [_line(one) for one in samples_of(metric, subject)]
        if samples:
            lines += [f"# HELP {metric.name} {metric.text}", f"# TYPE {metric.name} {metric.kind}"]
            lines += samples
    return "\n".join(lines) + "\n"


def _line(one: Sample) -> str:
    inner = ",".join(f'{key}="{_escaped(text)}"' for key, text in one.labels.items())
    number = f"{int(one.value)}" if one.value.is_integer() else f"{one.value!r}"
    return f"{one.name}{{{inner}}} {number}" if inner else f"{one.name} {number}"


def _escaped(text: str) -> str:
    return text.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")
