"""Judges what the lives of a receiver were shown, one life after the other, event by event."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final

from onceq.streams.history import kinds
from onceq.streams.history.facts import Stream
from onceq.streams.history.log import Log
from onceq.streams.history.rules import Broken, span
from onceq.streams.history.spans import Spans
from onceq.streams.history.stores import sent_as
from onceq.streams.model.events import WhyLost

FOREVER: Final = 1 << 63


class Followed:
    """What the lives of a receiver were shown so far.

    covered: all below was shown to some life, or told as lost; None: nothing was yet. shown: by
    number, the epoch that was shown last, and the content; lost: numbers that were not. before: the
    same of the lives that have ended. positions: the last ones that stores have told. is_by_tokens:
    it tells what it acknowledges; acknowledged: all below, by tokens.
    """

    def __init__(self, name: str, log: Log, ended: kinds.Ended | None, *, forgot: set[str]) -> None:
        self.name = name
        self.log = log
        self.ended = ended
        self.forgot = forgot
        self.found: list[tuple[int, str, str]] = []
        self.covered: int | None = None
        self.shown = Spans[tuple[int, str]]()
        self.lost = Spans[bool]()
        self.before = Spans[int]()
        self.positions: dict[str, int] = {}
        self.is_by_tokens = False
        self.acknowledged = 0
        self.life = 0
        self._entered: kinds.Entered | None = None
        self._expected: int | None = None
        self._view = Spans[int]()
        self._greatest = 0
        self._acknowledged_in = 0
        self._seen_now = Spans[tuple[int, str]]()

    def broken(self, rule: str, text: str) -> None:
        """Note that a rule is broken."""
        self.found.append((self.life, rule, text))

    @property
    def is_stable_only(self) -> bool:
        """Whether this life is shown only what is stable."""
        return self._entered is not None and self._entered.is_stable_only

    def lives(self, lives: dict[int, list[kinds.OfReceiver]]) -> None:
        """Take all lives."""
        events = [event for own in lives.values() for event in own]
        self.is_by_tokens = any(isinstance(one, kinds.Acknowledged) for one in events)
        for life in sorted(lives):
            self._begin(life, lives[life])
            for event in lives[life]:
                _TAKE[type(event)](self, event)
            for first, last, (epoch, _) in self._seen_now:
                self.before.put(first, last, epoch)

    def _begin(self, life: int, own: Iterable[kinds.OfReceiver]) -> None:
        self.life, self._expected, self._greatest = life, None, 0
        self._view, self._seen_now = Spans[int](), Spans[tuple[int, str]]()
        self._entered = next((one for one in own if isinstance(one, kinds.Entered)), None)
        if self._entered is not None:
            self.covered = self._entered.number if self.covered is None else self.covered

    def entered(self, event: kinds.Entered) -> None:
        """Take that it is registered."""

    # what it was shown

    def delivered(self, event: kinds.Delivered) -> None:
        """Take what it was shown."""
        first, last = event.first, event.last
        self._follows(first)
        if any(self._view.over(first, max(self._view.end, first))):
            self.broken("in-order", f"{first} came, and {self._view.end - 1} had been shown")
        self._epoch_is_right(event)
        for rule, text in sent_as(self.log, (first, last), event.epoch, event.content):
            self.broken(rule, text)
        self._is_marked(event)
        self._view.put(first, last, event.epoch)
        self._seen_now.put(first, last, (event.epoch, event.content))
        self.shown.put(first, last, (event.epoch, event.content))
        self.lost.remove(first, last)
        self._goes_on(last)

    def _follows(self, first: int) -> None:
        """Note a gap before a number."""
        expected = self.covered if self._expected is None else self._expected
        if expected is not None and first > expected:
            self.broken("no-gap", f"{first} came, not {expected}")

    def _goes_on(self, last: int) -> None:
        self._expected = max(last + 1, self._expected or 0)
        self.covered = max(last + 1, self.covered or 0)

    def _epoch_is_right(self, event: kinds.Delivered) -> None:
        epoch, last = event.epoch, event.last
        cut = self.log.cut_between(epoch, self._greatest)
        later = self.log.cut_after(epoch) if self.is_stable_only else None
        if cut is not None and last >= cut:
            text = f"{last} of the epoch {epoch} came, and one before was of {self._greatest},"
            self.broken("fence", f"{text} which begins at {cut}")
        elif later is not None and last >= later:
            self.broken(
                "stable-only", f"{last} of the epoch {epoch} came; a later cut it at {later}"
            )
        below = [its for _, _, its in self._view.over(max(0, event.first - 1), event.first - 1)]
        if any(its > epoch for its in below):
            self.broken("in-order", f"{event.first} of the epoch {epoch} came after {below[0]}")
        self._greatest = max(self._greatest, epoch)

    def _is_marked(self, event: kinds.Delivered) -> None:
        if event.again:
            return
        for first, last, epoch in self.before.over(event.first, event.last):
            if epoch == event.epoch:
                text = f"{span(first, last)} came to an earlier life, and are not marked"
                self.broken("marked-again", text)

    # what it was told instead

    def was_lost(self, event: kinds.Lost) -> None:
        """Take that it does not get numbers."""
        self._follows(event.first)
        self._is_right_to_lose(event)
        self.lost.put(event.first, event.last, value=True)
        self._goes_on(event.last)

    def _is_right_to_lose(self, event: kinds.Lost) -> None:
        first, last = event.first, event.last
        is_stable = last < self.log.stable_below and not self.log.is_given_up(first, last)
        match event.why:
            case WhyLost.SKIPPED | WhyLost.UNFINISHED:
                wrong = ""
            case WhyLost.ACKNOWLEDGED:
                wrong = "no earlier life was shown them" if any(self._unseen(first, last)) else ""
            case WhyLost.TRIMMED:
                is_allowed = self.ended is None or self.ended.may_trim
                wrong = "" if is_allowed else "nothing was to be trimmed"
            case _:
                wrong = "they are stable" if is_stable else ""
        if wrong:
            self.broken("not-lost", f"{span(first, last)} are {event.why}: {wrong}")

    def _unseen(self, first: int, last: int) -> Iterator[tuple[int, int]]:
        for low, high in self.shown.gaps(first, last):
            yield from self.lost.gaps(low, high)

    def rolled_back(self, event: kinds.RolledBack) -> None:
        """Take that what it was shown from a number on was in vain."""
        first, last = event.first, event.last
        for low, high in self.log.lost.gaps(first, last) if self.is_stable_only else ():
            self.broken("stable-only", f"was shown {span(low, high)} in vain")
        for low, high in self._view.gaps(first, last):
            self.broken("rolled-back", f"{span(low, high)} were in vain, and were not shown")
        for low, high, epoch in self._view.over(first, last):
            for begin, end, _ in self.log.stays(epoch, low, high):
                for one, other in self.log.lost.gaps(begin, end):
                    self.broken("rolled-back", f"{span(one, other)} were in vain, and are stable")
        for spans in (self._view, self._seen_now, self.shown, self.lost):
            spans.cut(first)
        self._expected = first
        self.covered = min(first, FOREVER if self.covered is None else self.covered)

    # what is acknowledged

    def acknowledges(self, event: kinds.Acknowledged) -> None:
        """Take that its application acknowledges."""
        covered = self.covered or 0
        if event.below < self.acknowledged and event.life == self._acknowledged_in:
            text = f"all below {event.below} is acknowledged, after {self.acknowledged}"
            self.broken("acknowledged-grows", text)
        if event.below > covered:
            text = f"all below {event.below} is acknowledged, and {covered} was not shown"
            self.broken("acknowledged-shown", text)
        self.acknowledged = max(self.acknowledged, event.below)
        self._acknowledged_in = event.life

    def positioned(self, event: kinds.Positioned) -> None:
        """Take what a store has as acknowledged."""
        store, below = event.store, event.last + 1
        before = self.positions.get(store, 0)
        if below < before and store not in self.forgot:
            text = f"store {store} has {below} as acknowledged, after {before}"
            self.broken("acknowledged-grows", text)
        most = self.acknowledged if self.is_by_tokens else self.covered or 0
        most = max(most, 0 if self._entered is None else self._entered.number)
        most = next((last + 1 for _, last, _ in self.lost.over(most, FOREVER)), most)
        if below > most:
            text = f"store {store} has {below} as acknowledged; only what is below {most} was"
            self.broken("acknowledged-shown", text)
        self._is_stable(store, below)
        self.positions[store] = max(before, below)

    def _is_stable(self, store: str, below: int) -> None:
        epoch = 0 if self._entered is None else self._entered.epoch
        cut = self.log.cut_after(epoch) if epoch else None
        if cut is not None and cut < below:
            text = f"store {store} has {below} as acknowledged, and a later life begins at {cut}"
            self.broken("acknowledged-stable", text)


_TAKE: Final[dict[type[Any], Callable[[Followed, Any], None]]] = {
    kinds.Entered: Followed.entered,
    kinds.Positioned: Followed.positioned,
    kinds.Delivered: Followed.delivered,
    kinds.Lost: Followed.was_lost,
    kinds.RolledBack: Followed.rolled_back,
    kinds.Acknowledged: Followed.acknowledges,
}


def judge_readers(stream: Stream, log: Log) -> Iterator[Broken]:
    """Yield what is wrong with what receivers were shown."""
    for name, lives in stream.readers.items():
        reader = Followed(name, log, stream.ended, forgot=stream.forgot)
        reader.lives(lives)
        for life, rule, text in reader.found:
            yield Broken(rule, stream.stream, f"receiver {name}, life {life}", text)
        if stream.ended is not None and name in stream.ended.receivers:
            for text in _lacks(reader, stream.ended.first):
                yield Broken("all-delivered", stream.stream, f"receiver {name}", text)
    if stream.ended is not None and stream.ended.receivers:
        yield from _absent(stream, log, stream.ended)
        yield from _all_is_stable(stream, log)


def _absent(stream: Stream, log: Log, ended: kinds.Ended) -> Iterator[Broken]:
    """Yield who was shown nothing, though there is something."""
    if any(log.contents(ended.first, log.stable_below - 1)):
        for name in sorted(set(ended.receivers) - stream.readers.keys()):
            yield Broken("all-delivered", stream.stream, f"receiver {name}", "saw nothing")


def _lacks(reader: Followed, begin: int) -> Iterator[str]:
    """Yield what a receiver was not shown of what is stable, or otherwise last."""
    log = reader.log
    for first, last, content in log.contents(begin, log.stable_below - 1):
        for low, high in reader.shown.gaps(first, last):
            for one, other in reader.lost.gaps(low, high):
                yield f"was not shown {span(one, other)}"
        for low, high, (_, its) in reader.shown.over(first, last):
            if content and its and content != its:
                yield f"was shown {span(low, high)} of {its} last; {content} stays"


def _all_is_stable(stream: Stream, log: Log) -> Iterator[Broken]:
    """Yield what is not stable of what the last life sent."""
    last = max(stream.lives.values(), key=_last_epoch, default=None)
    if last is not None and last.finished is None:
        yield Broken("all-delivered", stream.stream, f"source, life {last.life}", "is not finished")
    elif last is not None and last.finished is not None and last.finished > log.stable_below:
        text = f"finished at {last.finished}, and all is stable below {log.stable_below} only"
        yield Broken("all-delivered", stream.stream, f"source, life {last.life}", text)


def _last_epoch(life: Any) -> tuple[int, int]:
    return max(life.epochs, default=(0, 0))
