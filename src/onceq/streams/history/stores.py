"""Judges what stores have in the end, and what they knew when they began."""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Iterator

from onceq.streams.history import kinds
from onceq.streams.history.facts import Store, Stream
from onceq.streams.history.log import Log
from onceq.streams.history.rules import Broken, span


def judge_stores(stream: Stream, log: Log) -> Iterator[Broken]:
    """Yield what is wrong with the stores."""
    for name, store in stream.stores.items():
        found = [*_whole(store), *_sent(store, log)]
        if name not in stream.forgot:
            found += _remembers(store)
        for rule, text in found:
            yield Broken(rule, stream.stream, f"store {name}", text)
    if stream.ended is not None and stream.ended.copies and stream.stores_kept:
        yield from _copies(stream, log, stream.ended.copies)


def _whole(store: Store) -> Iterator[tuple[str, str]]:
    if store.kept is not None and store.kept.begin < store.kept.end:
        for low, high in store.held.gaps(store.kept.begin, store.kept.end - 1):
            yield "whole-log", f"its log has no {span(low, high)}"


def _sent(store: Store, log: Log) -> Iterator[tuple[str, str]]:
    """Yield what it has that nobody sent, or that was sent otherwise."""
    for first, last, (epoch, content, is_void) in store.held:
        if not is_void:
            yield from sent_as(log, (first, last), epoch, content)


def sent_as(log: Log, row: tuple[int, int], epoch: int, content: str) -> Iterator[tuple[str, str]]:
    """Yield what is wrong with numbers that somebody has, or was shown, of an epoch."""
    life, (first, last) = log.lives.get(epoch), row
    if life is None:
        yield "no-phantom", f"{span(first, last)} are of the epoch {epoch}, in which no life sends"
        return
    for low, high in life.sent.gaps(first, last):
        yield "no-phantom", f"{span(low, high)} of life {life.life}, which did not send them"
    for low, high, its in life.sent.over(first, last):
        if content and its and content != its:
            yield "one-content", f"{span(low, high)} are {content}; life {life.life} sent {its}"


def _remembers(store: Store) -> Iterator[tuple[str, str]]:
    before: kinds.Opened | None = None
    for one in sorted(store.opened, key=_life):
        if before is not None:
            for what in ("promised", "admitted"):
                was, now = getattr(before, what), getattr(one, what)
                if now < was:
                    text = f"life {one.life} has {what} the epoch {now}; {was} was before"
                    yield "store-remembers", text
        before = one


def _life(one: kinds.Opened) -> int:
    return one.life


def _copies(stream: Stream, log: Log, copies: int) -> Iterator[Broken]:
    """Yield what is stable, and at too few stores as it was sent."""
    for first, last, content in log.contents(0, log.stable_below - 1):
        lacking: defaultdict[tuple[int, int], list[str]] = defaultdict(list)
        for name, store in stream.stores_kept.items():
            for row in _lacks(store, first, last, content):
                lacking[row].append(name)
        having = len(stream.stores_kept)
        for low, high, names in _together(lacking):
            if having - len(names) < copies:
                text = f"{span(low, high)} are stable, and {', '.join(sorted(names))} lack them"
                yield Broken("stable-kept", stream.stream, "", text)


def _lacks(store: Store, first: int, last: int, content: str) -> Iterator[tuple[int, int]]:
    """Yield which of some numbers a store lacks; what it gave up it does not."""
    begin = max(first, 0 if store.kept is None else store.kept.begin)
    if begin > last:
        return
    yield from store.held.gaps(begin, last)
    for low, high, (_, its, is_void) in store.held.over(begin, last):
        if is_void or (its and content and its != content):
            yield low, high


def _together(
    lacking: dict[tuple[int, int], list[str]],
) -> Iterator[tuple[int, int, list[str]]]:
    """Yield the ranges between all ends of ranges, and who lacks each."""
    cuts = sorted({number for low, high in lacking for number in (low, high + 1)})
    for low, below in itertools.pairwise(cuts):
        names = [
            name
            for (first, last), own in lacking.items()
            if first <= low and below - 1 <= last
            for name in own
        ]
        if names:
            yield low, below - 1, names
