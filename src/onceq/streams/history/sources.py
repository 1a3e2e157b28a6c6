"""Judges the lives of a source: their epochs, and what they were told."""

from __future__ import annotations

from collections.abc import Iterator

from onceq.streams.history import kinds
from onceq.streams.history.facts import SourceLife, Stream
from onceq.streams.history.log import Log
from onceq.streams.history.rules import Broken, span
from onceq.streams.history.spans import Spans


def judge_sources(stream: Stream, log: Log) -> Iterator[Broken]:
    """Yield what is wrong with the lives of the source."""
    for epoch, one, other in log.doubles:
        text = f"the epoch {epoch} is of the lives {one} and {other}"
        yield Broken("one-life", stream.stream, "", text)
    told = Spans[int]()
    for life in stream.lives.values():
        for rule, text in (*_sent(life), *_told(life, log), *_stable_once(life, told)):
            yield Broken(rule, stream.stream, f"source, life {life.life}", text)
    yield from _confirmed(stream)


def _sent(life: SourceLife) -> Iterator[tuple[str, str]]:
    for first, last in life.twice:
        yield "one-content", f"sent {span(first, last)} twice, and otherwise"
    for first, last, _ in life.late:
        yield "fence", f"sent {span(first, last)} after it was told of another life"


def _told(life: SourceLife, log: Log) -> Iterator[tuple[str, str]]:
    for first, last, _ in life.stable:
        for low, high in life.sent.gaps(first, last):
            yield "stable-sent", f"was told that {span(low, high)} are stable; it sent others"
        for low, high, _ in life.given_up.over(first, last):
            yield "not-given-up", f"gave {span(low, high)} up, which it was told to be stable"
    if not life.epochs or not life.stable.end:
        return
    cut = log.cut_after(min(life.epochs)[0])
    if cut is not None and cut < life.stable.end:
        last = life.stable.end - 1
        yield "stable-survives", f"was told that {last} is stable, and a later one begins at {cut}"


def _stable_once(life: SourceLife, told: Spans[int]) -> Iterator[tuple[str, str]]:
    """Yield what is stable of two lives. told: whose is stable so far; this one's are added."""
    for first, last, _ in life.stable:
        for low, high, other in told.over(first, last):
            yield "stable-unchanged", f"{span(low, high)} are stable, and were of life {other}"
        told.put(first, last, life.life)


def _confirmed(stream: Stream) -> Iterator[Broken]:
    """Yield confirmations of what no life of that receiver was shown."""
    shown = _shown_to(stream)
    for life in stream.lives.values():
        for told in life.confirmed:
            spans = shown.get(told.session)
            if spans is not None and any(spans.gaps(told.first, told.last)):
                text = f"was told that {told.session} has processed {span(told.first, told.last)}"
                text = f"{text}, which it was not shown"
                yield Broken("confirmed-shown", stream.stream, f"source, life {life.life}", text)


def _shown_to(stream: Stream) -> dict[int, Spans[bool]]:
    """Return what receivers were shown, or were told as lost, by their sessions."""
    shown: dict[int, Spans[bool]] = {}
    for own in (own for lives in stream.readers.values() for own in lives.values()):
        sessions = [one.session for one in own if isinstance(one, kinds.Entered) and one.session]
        for spans in (shown.setdefault(session, Spans[bool]()) for session in sessions):
            for one in own:
                if isinstance(one, kinds.Delivered | kinds.Lost):
                    spans.put(one.first, one.last, value=True)
    return shown
