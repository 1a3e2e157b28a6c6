"""What a life of a receiver shows, and in which order: a core without links or a clock. Pure.

It gets frames from its source, as they are sent, and from stores, in ranges. What it shows ascends,
each number once, and no number is left out untold: until an epoch begins that cut what it had seen,
which it tells. With `is_stable_only` it shows only what is stable, and tells that only of what was
lost, when a person accepted that.
Source: streams.md 3 and 7; spec M9, M23, M27, M40.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Iterator, Mapping

import msgspec

from onceq.streams.errors import FrameRefused
from onceq.streams.model import asks, encoding, frames, losses
from onceq.streams.model.choice import Firsts, replaces
from onceq.streams.model.events import Loss, RolledBack, WhyLost
from onceq.streams.model.frames import Frame, FrameKind
from onceq.streams.model.log import epoch_at, in_vain
from onceq.streams.model.quorum import StoreList, are_recovered, are_stable
from onceq.streams.receiver.assembling import Assembling
from onceq.streams.receiver.ops import Message, Shown

AHEAD_BYTES_MAX = 4 << 20
"""Frames of the source that are kept while what lies before them is fetched."""


class Delivering:
    """One life of a receiver of a stream. begin: the first number that it is to be shown.

    next: the number that comes next. stable: everything below is, for all it knows. told: what it
    must know of the epoch that it follows. lists: of stores, while it was told of none. is_behind:
    it has heard of a later epoch. late_join: False: what came before it was there is not asked for.
    acknowledged: below it, earlier lives had acknowledged all, as some store says.
    """

    def __init__(
        self,
        stream: int,
        begin: int,
        lists: tuple[StoreList, ...],
        *,
        is_stable_only: bool,
        acknowledged: int = 0,
    ) -> None:
        self.stream = stream
        self.begin = self.next = begin
        self.is_stable_only = is_stable_only
        self.acknowledged = acknowledged
        self.stable = 0
        self.told: asks.Information | None = None
        self.is_behind = False
        self._lists = lists
        self._losses: list[tuple[int, int]] = []
        self._runs: list[_Run] = []
        self._last_shown = 0
        self._gone: dict[str, int] = {}
        self._harmed: dict[str, int] = {}
        self._noting: set[str] = set()
        self._ahead: list[_Ahead] = []
        self._ahead_bytes = 0
        self._assembling = Assembling(stream)

    @property
    def lists(self) -> tuple[StoreList, ...]:
        """The lists of the stores that keep the stream."""
        return self._lists if self.told is None else self.told.lists

    @property
    def governs(self) -> tuple[StoreList, ...]:
        """The lists of which a recover set must say that numbers are lost."""
        return self._lists if self.told is None else self.told.governs

    @property
    def epoch(self) -> int:
        """The epoch that it follows; 0: it was told of none."""
        return 0 if self.told is None else self.told.epoch

    @property
    def _shown_of(self) -> int:
        """The last epoch of which something was shown."""
        return self._last_shown

    @property
    def last_epoch(self) -> int:
        """The last epoch that it was told of, or was shown something of; 0: there is none."""
        return max(self.epoch, self._last_shown)

    @property
    def sure(self) -> int:
        """Below this everything was shown, and is stable: what may be acknowledged to stores."""
        kept = self._assembling.first
        shown = self.next if kept is None else kept
        return shown if self.is_stable_only else max(self.begin, min(self.stable, shown))

    @property
    def lacks(self) -> bool:
        """Whether it knows of a number that it lacks: stores must be asked."""
        is_known = self.next < self.stable and not self._is_source_alone
        return is_known or self._is_gap

    @property
    def _is_gap(self) -> bool:
        """Whether the source has sent what comes later, and not what comes next."""
        return bool(self._ahead) and self._ahead[0].number > self.next

    @property
    def _is_source_alone(self) -> bool:
        """Whether the source gives what comes next, or nobody: no store keeps messages."""
        told = self.told
        return told is not None and not told.keeps and bool(told.address)

    # epochs

    def inform(self, known: asks.Information) -> list[Shown]:
        """Follow an epoch; return what is to be shown.

        known: as the source says, or stores of which a stable set was admitted (`confirmed`).
        The last stage of an epoch counts. One before the one followed is ignored, and so is one
        before any of which something was shown: stores show what is stable of later epochs than
        this life was told of, and the log of a former one does not have that.
        """
        if known.stream != self.stream or known.epoch < max(self.epoch, self._shown_of):
            return []
        shown: list[Shown] = []
        told = self.told
        if told is None or known.epoch > told.epoch:
            shown = list(self._compare(known))
            self.is_behind = False
            self._ahead, self._ahead_bytes = [], 0
            self._gone.clear()
            self._harmed.clear()
        if told is None or replaces((known.epoch, known.stage), (told.epoch, told.stage)):
            self.told = known
        self.stable = max(self.stable, known.stable)
        return shown

    def _compare(self, known: asks.Information) -> Iterator[Shown]:
        """Go back to where the later epoch cut what was seen, or where what was stable is lost."""
        cut, began = self._cut_at(known.firsts), self.begin
        lost = [one.first for one in known.losses if one.epoch > self.last_epoch]
        if self.told is not None and lost and min(lost) < self.next:
            cut = min(lost if cut is None else [*lost, cut])
            self.begin = min(self.begin, cut)
        if cut is None:
            return
        first, unseen = self._assembling.back(cut, self.next)
        vain = in_vain(max(first, began), self.next, [*self._losses, *unseen])
        self._losses = [(one, min(below, first)) for one, below in self._losses if one < first]
        self._runs = [run for run in self._runs if run.begin < first]
        self.next = first
        if vain is not None:
            yield RolledBack(stream=self.stream, first=vain[0], last=vain[1] - 1)

    def _cut_at(self, firsts: Firsts) -> int | None:
        """Return the first number that a log has of another epoch than was shown; None: none."""
        bounds = [run.begin for run in self._runs]
        for run, end in zip(self._runs, [*bounds, self.next][1:], strict=True):
            inner = [first for _, first in firsts if run.begin < first < end]
            for number in (run.begin, *sorted(inner)):
                epoch = epoch_at(firsts, number)
                if epoch > run.epoch or (epoch < run.epoch and not run.is_lost):
                    return number
        return None

    def _note(self, epoch: int, *, is_lost: bool = False) -> None:
        """Note of which epoch the numbers from `next` on are; what is stable is cut no more."""
        self._last_shown = max(self._last_shown, 0 if is_lost else epoch)
        last = self._runs[-1] if self._runs else None
        if last is None or (last.epoch, last.is_lost) != (epoch, is_lost):
            self._runs.append(_Run(begin=self.next, epoch=epoch, is_lost=is_lost))
            while len(self._runs) > 1 and self._runs[1].begin <= self.stable:
                self._runs.pop(0)
            self._losses = [one for one in self._losses if one[1] > self.stable]
            self._assembling.forget(self.stable)

    # frames

    def heard(self, data: bytes) -> list[Shown]:
        """Take what the source sent: frames, or what must be known of it. Raises FrameRefused."""
        frame = frames.decode(data)
        match frame.kind:
            case FrameKind.MESSAGES | FrameKind.VOID:
                return self._live(frame)
            case FrameKind.ANSWER:
                answer = encoding.answer_of(frame.body)
                return self.inform(answer) if isinstance(answer, asks.Information) else []
            case _:
                raise FrameRefused("a source asked its receiver something")

    def live(self, data: bytes) -> list[Shown]:
        """Take frames from the source; return what is to be shown. Raises FrameRefused."""
        return self._live(frames.decode(data))

    def _live(self, frame: Frame) -> list[Shown]:
        if frame.stream != self.stream or frame.epoch < self.epoch:
            return []  # a former life still sends
        if frame.epoch > self.epoch:
            self.is_behind = True
            return []
        self.stable = max(self.stable, frame.stable)
        if frame.count and frame.end > self.next:
            size = len(frame.body)
            if self._ahead_bytes + size <= AHEAD_BYTES_MAX or frame.number <= self.next:
                one = _Ahead(number=frame.number, frame=frame, bodies=_bodies(frame))
                insort(self._ahead, one, key=_number)
                self._ahead_bytes += size
        return list(self._drain())

    def _drain(self) -> Iterator[Shown]:
        """Show what follows of the frames that are kept."""
        while self._ahead and self._ahead[0].number <= self.next:
            one = self._ahead[0]
            frame = one.frame
            below = min(frame.end, self.stable) if self.is_stable_only else frame.end
            yield from self._take(frame, one.bodies, below, is_again=False)
            if self.next < frame.end:
                return
            self._ahead.pop(0)
            self._ahead_bytes -= len(frame.body)

    def given(self, store: str, answer: asks.Answer | None, data: tuple[bytes, ...]) -> list[Shown]:
        """Take what a store gave from `next` on; return what is to be shown."""
        if isinstance(answer, asks.Noted):
            self._noting.add(store)
        if not isinstance(answer, asks.Range) or self._must_learn(answer):
            return []
        if answer.begin > self.next:
            return [*self._trimmed(store, answer.begin), *self._drain()]
        self._gone.pop(store, None)
        shown: list[Shown] = []
        for one in data:
            try:
                frame = frames.decode(one)
                bodies = _bodies(frame)
            except FrameRefused:
                break  # it was harmed on its way: another store may give it
            if frame.number > self.next or not self._is_of_log(frame):
                break
            shown += self._take(frame, bodies, min(frame.end, answer.end), is_again=True)
        if answer.missing and answer.end == self.next:
            self._harmed[store] = self.next
            shown += self._lose()
        return shown + list(self._drain())

    def _trimmed(self, store: str, begin: int) -> Iterator[Shown]:
        """Take that a store has nothing before a number."""
        if self._is_gap or not self._is_source_alone:  # else it may be on its way
            self._gone[store] = begin
            yield from self._lose()

    def _must_learn(self, answer: asks.Range) -> bool:
        """Whether what was stable was lost, in an epoch that this life was not told of."""
        self.is_behind = self.is_behind or answer.lost > self.epoch
        return answer.lost > self.epoch

    def _is_of_log(self, frame: Frame) -> bool:
        """Whether a frame of a store is of the log that this life follows.

        What is stable always is, and stores show nothing else to who has seen no epoch; but one
        that was given up, and is back, may show what was lost.
        """
        told = self.told
        if self.is_stable_only and (told is None or frame.epoch > told.epoch):
            return True
        if told is None:
            return False
        self.is_behind = self.is_behind or frame.epoch > told.epoch
        return epoch_at(told.firsts, max(frame.number, self.next)) == frame.epoch

    def _take(
        self, frame: Frame, bodies: list[bytes], below: int, *, is_again: bool
    ) -> Iterator[Shown]:
        """Show the messages of a frame from `next` to before a number. bodies: all of them."""
        if below <= self.next:
            return
        self._note(frame.epoch)
        if frame.kind is FrameKind.VOID:
            is_lost = self.told is not None and losses.is_lost(self.next, self.told.losses)
            why = WhyLost.LOST if is_lost else WhyLost.RECLAIMED
            first = self._assembling.lost(self.next, why)
            self.next = below
            self._losses.append((first, below))
            yield Loss(stream=self.stream, first=first, last=below - 1, why=why)
            return
        is_plain = not frame.flags and self._assembling.is_plain()
        for number in range(self.next, below):
            self.next = number + 1
            body = bodies[number - frame.number]
            if is_plain:
                yield Message(
                    stream=self.stream,
                    epoch=frame.epoch,
                    number=number,
                    body=body,
                    retransmitted=is_again,
                )
            else:
                yield from self._part(frame, number, body, is_again=is_again)

    def _part(self, frame: Frame, number: int, body: bytes, *, is_again: bool) -> Iterator[Shown]:
        """Take what may be a part of a message; show what that completes, or leaves out."""
        for one in self._assembling.came(frame, number, body, is_again=is_again):
            if isinstance(one, Loss):
                self._losses.append((one.first, one.last + 1))
            yield one

    # what nobody gives

    def _lose(self) -> Iterator[Shown]:
        """Go on behind what no store can give any more, if enough of them have said so.

        Those that keep no messages are not waited for.
        """
        stores = {store for one in self.lists for store in one.stores} - self._noting
        gone = {one: begin for one, begin in self._gone.items() if begin > self.next}
        harmed = {one for one, number in self._harmed.items() if number == self.next}
        if gone and are_recovered(self.governs, gone.keys()):
            ahead = [one.number for one in self._ahead]
            yield from self._lost(min([*gone.values(), *ahead]), WhyLost.TRIMMED)
        elif stores <= gone.keys() | harmed:
            yield from self._lost(self.next + 1, WhyLost.LOST)

    def _lost(self, below: int, why: WhyLost) -> Iterator[Shown]:
        self._note(self.epoch, is_lost=True)
        first = self._assembling.lost(self.next, why)
        self.next = below
        self._losses.append((first, below))
        known = min(below, self.acknowledged)
        if why is WhyLost.TRIMMED and first < known:
            yield Loss(stream=self.stream, first=first, last=known - 1, why=WhyLost.ACKNOWLEDGED)
            first = known
        if first < below:
            yield Loss(stream=self.stream, first=first, last=below - 1, why=why)


class _Run(msgspec.Struct, frozen=True, kw_only=True):
    """Numbers in a row that were shown of one epoch, or told as lost while that was followed."""

    begin: int
    epoch: int
    is_lost: bool


class _Ahead(msgspec.Struct, frozen=True, kw_only=True):
    """A frame of the source that is kept, with its messages."""

    number: int
    frame: Frame
    bodies: list[bytes]


def _number(one: _Ahead) -> int:
    return one.number


def _bodies(frame: Frame) -> list[bytes]:
    """Return the messages of a frame. Raises FrameRefused if it has not what its header says."""
    return [bytes(one) for one in frame.messages()]


def confirmed(told: Mapping[str, asks.Information]) -> asks.Information | None:
    """Return what stores tell of the last epoch that a stable set of its lists was admitted to.

    None: there is none. What one store alone was admitted to may have come to nothing. Of several
    stages of an epoch the last one counts.
    """
    admitted = {store: one.firsts[-1][0] for store, one in told.items() if one.firsts}
    for epoch in sorted(set(admitted.values()), reverse=True):
        stores = {store for store, its in admitted.items() if its == epoch}
        for store in sorted(stores, key=lambda one: (-told[one].stage, one)):
            if are_stable(told[store].lists, stores):
                stable = max(told[one].stable for one in stores)
                return _at_epoch(told[store], epoch, stable)
    return None


def _at_epoch(one: asks.Information, epoch: int, stable: int) -> asks.Information:
    return asks.Information(
        stream=one.stream,
        epoch=epoch,
        stage=one.stage,
        firsts=one.firsts,
        lists=one.lists,
        address=one.address,
        stable=stable,
        session=one.session,
        losses=one.losses,
        keeps=one.keeps,
    )
