"""What a store does with what comes: a core without connections, threads or a clock of its own.

`step` takes what happened and returns what is to be done. What was asked is decided by the store's
catalogue, one row of `ASKS` for each kind; what takes several steps is a Program, whose Ops the
store performs itself, or has performed elsewhere. An answer leaves when the disk has what it says.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any, Final

from msgspec.structs import replace

from onceq.streams.errors import FrameRefused, StoreFull, WhyRefused
from onceq.streams.model import asks, encoding, frames, uses
from onceq.streams.model.ending import EndStream, Gone
from onceq.streams.model.frames import Frame, FrameKind
from onceq.streams.net.wire import TO_FRAMES, answer_frame
from onceq.streams.store import acts, ending, lifetimes, limits, listing
from onceq.streams.store.acts import Act, Given
from onceq.streams.store.answering import Answers, Waiting
from onceq.streams.store.catalogue import Catalogue, Step, serving
from onceq.streams.store.lifetimes import Who
from onceq.streams.store.presence import SOURCE, Presence
from onceq.streams.store.programs import Programs
from onceq.streams.store.ranging import RANGE_BYTES, ranged
from onceq.streams.store.records import key_of
from onceq.streams.store.store import Store

UNSYNCED_BYTES_MAX: Final = 32 << 20
"""With more on its way to the disk, a store takes nothing until some of it is there."""
TRIM_TICKS: Final = 10
"""After so many ticks a store looks again for what it may give up."""
FORGET_TICKS: Final = 100
"""After so many it looks which receivers it has not heard for too long."""
WAITING_MAX: Final = 1_024
"""Answers that may wait on one link: whoever asks more without hearing is no friend."""


class Serving:
    """A store, and who is connected to it. own: its address, as the lists of stores have it.

    range_bytes: so many bytes of frames, about, are in one answer. refused: links that were closed
    for what came on them, by why.
    """

    def __init__(self, store: Store, own: str, *, range_bytes: int = RANGE_BYTES) -> None:
        self.store = store
        self.range_bytes = range_bytes
        self.refused: Counter[WhyRefused] = Counter()
        self.programs = Programs(store, own)
        self.presence = Presence(store.now_s)
        self._answers = Answers(store.synced)
        self._lives: dict[int, dict[int, int]] = {}
        self._receivers: dict[int, set[Who]] = {}
        self._ticks = 0

    @property
    def is_pressed(self) -> bool:
        """Whether nothing should be taken until more is synced."""
        return self.store.end - self.store.synced > UNSYNCED_BYTES_MAX

    @property
    def links(self) -> int:
        """How many are connected."""
        return len(self._lives)

    def step(self, given: Given) -> list[Act]:
        """Take what happened; return what is to be done, in order."""
        made = list(self._steps(given))
        if self.store.end > self.store.synced:
            made.append(acts.Commit())
        return made

    def _steps(self, given: Given) -> Iterator[Act]:
        match given:
            case acts.Opened(link=link):
                self._lives[link] = {}
            case acts.Gone(link=link):
                self._lives.pop(link, None)
                self._receivers.pop(link, None)
                self.presence.close(link)
                self._answers.forget(link)
                yield from self.programs.forget(link)
            case acts.Came(link=link, data=data):
                yield from self._came(link, data)
            case acts.Synced(position=position):
                for link, data in self._answers.sync(position):
                    yield acts.Send(link=link, data=data)
            case acts.Answered(program=program, answer=answer):
                yield from self._run(self.programs.go_on(program, answer))
            case acts.Ticked():
                yield from self._ticked()

    def _came(self, link: int, data: bytes) -> Iterator[Act]:
        if link not in self._lives:
            return
        try:
            yield from self._take(link, data)
        except FrameRefused as error:
            self.count(error)
            yield acts.Refuse(link=link, why=str(error))

    def _ticked(self) -> Iterator[Act]:
        self._ticks += 1
        self.store.tend()
        if self._ticks == 1:
            yield from self._run(self.programs.scrub())
        if self._ticks % TRIM_TICKS == 0:
            yield from self._run(self.programs.begin_trims())
        if self._ticks % FORGET_TICKS == 0:
            self.store.forget_silent({who for ones in self._receivers.values() for who in ones})

    def count(self, error: FrameRefused) -> None:
        """Count a link that is closed for what came on it."""
        self.refused[error.why] += 1

    # frames and asks

    def _take(self, link: int, data: bytes) -> Iterator[Act]:
        frame = frames.decode(data)
        match frame.kind:
            case FrameKind.MESSAGES | FrameKind.VOID:
                yield from self._frame(link, frame, data)
            case FrameKind.ASK:
                yield from self._asked(link, frame.number, encoding.ask_of(frame.body))
            case _:
                raise FrameRefused(
                    "an answer came to a store, which had asked nothing on this link"
                )

    def _frame(self, link: int, frame: Frame, data: bytes) -> Iterator[Act]:
        life = self._lives[link].get(frame.stream, 0)
        try:
            answer, position = self.store.take(frame, data, life)
        except StoreFull:
            answer, position = limits.full(self.store.catalogue.of(frame.stream)), self.store.end
        if isinstance(answer, asks.Holding | asks.Noted):
            self.presence.hear((frame.stream, SOURCE), life)
        one = Waiting(position=position, stream=frame.stream, tag=TO_FRAMES, answer=answer)
        yield from self._answer(link, one)

    def _asked(self, link: int, tag: int, ask: asks.Ask) -> Iterator[Act]:
        waiting = self._answers.waiting(link) + self.programs.running(link)
        if tag == TO_FRAMES or waiting >= WAITING_MAX:
            raise FrameRefused("an ask without a tag, or too many that were not answered yet")
        if not isinstance(ask, EndStream) and (gone := ending.refused(self.store.catalogue, ask)):
            yield from self._told(link, tag, gone)
            return
        match ask:
            case EndStream():
                yield from self._end_stream(link, tag, ask)
            case asks.Read() | asks.Fetch():
                yield from self._ranged(link, tag, ask)
            case asks.Admit():
                yield from self._run(self.programs.admit(link, tag, ask))
            case asks.Register() | asks.Acknowledge():
                yield from self._of_receiver(link, tag, ask)
            case uses.Leave():
                left = self._left(ask)
                one = Waiting(position=self.store.end, stream=ask.stream, tag=tag, answer=left)
                yield from self._answer(link, one)
            case _:
                yield from self._decided(link, tag, ask)

    def _told(self, link: int, tag: int, answer: Gone | uses.InUse) -> Iterator[Act]:
        """Answer with what is known, once all that is appended is synced."""
        one = Waiting(position=self.store.end, stream=0, tag=tag, answer=answer)
        yield from self._answer(link, one)

    def _end_stream(self, link: int, tag: int, ask: EndStream) -> Iterator[Act]:
        """Deregister a stream, unless a life of its source is live."""
        used = self.presence.other((ask.stream, SOURCE), 0)
        if used is not None:
            yield from self._told(link, tag, used)
            return
        yield from self._decided(link, tag, ask)
        yield from self._run(self.programs.overtake(ask.stream))

    def _decided(self, link: int, tag: int, ask: asks.Ask) -> Iterator[Act]:
        """Do what is one step: decide, append, and answer when it is synced."""
        answer, position = self._done(ask)
        if isinstance(ask, asks.Look) and isinstance(answer, asks.Found):
            answer = replace(answer, used=self.presence.other((answer.stream, SOURCE), 0))
        stream = getattr(ask, "stream", 0)
        one = Waiting(position=position, stream=stream, tag=tag, answer=answer)
        yield from self._answer(link, one)
        if isinstance(ask, asks.Fence) and isinstance(answer, asks.Found):
            self._lives[link][stream] = ask.life
            yield from self._run(self.programs.overtake(stream))

    def _done(self, ask: asks.Ask) -> tuple[asks.Answer, int]:
        """Do what an ask leads to; return the answer, and the position for it."""
        decided = ASKS[type(ask)](self.store.catalogue, ask)
        step = decided if isinstance(decided, Step) else Step(answer=decided)
        try:
            return step.answer, self.store.do(step)
        except StoreFull:
            held = self.store.catalogue.of(getattr(ask, "stream", 0))
            return limits.full(held), self.store.end

    def _of_receiver(
        self, link: int, tag: int, ask: asks.Register | asks.Acknowledge
    ) -> Iterator[Act]:
        """Do what a receiver asks, unless another life of it is live; note on which link it is."""
        who = lifetimes.who(self.store.catalogue.of(ask.stream), ask)
        used = self.presence.other(who, ask.life) if who is not None and ask.life else None
        answer, position = (used, self.store.end) if used is not None else self._done(ask)
        if isinstance(answer, asks.Registered):
            who = ask.stream, key_of(answer.regid, ask.session)
        if who is not None and isinstance(answer, asks.Registered | asks.Holding):
            self.store.hear(who)
            self._receivers.setdefault(link, set()).add(who)
            self._note_user(link, who, ask)
        elif who is not None:
            self.presence.see(who, ask.life)  # between two epochs it is there all the same
        one = Waiting(position=position, stream=ask.stream, tag=tag, answer=answer)
        yield from self._answer(link, one)

    def _note_user(self, link: int, who: Who, ask: asks.Register | asks.Acknowledge) -> None:
        """Note the user of a receiver's registration, if it says which life it is."""
        if ask.life:
            self.presence.use(who, ask.life, link=link, activity_ms=ask.activity_ms)
            if isinstance(ask, asks.Acknowledge):
                self.presence.hear(who, ask.life)

    def _left(self, ask: uses.Leave) -> asks.Answer:
        """Note that a life of a receiver has not come in."""
        held = self.store.catalogue.of(ask.stream)
        self.presence.leave((ask.stream, ask.key), ask.life)
        return asks.Holding(epoch=serving(held), end=held.end)

    def _ranged(self, link: int, tag: int, ask: asks.Read | asks.Fetch) -> Iterator[Act]:
        """Give what is there of some numbers, behind the answer that says how much that is.

        It waits for nothing: what is read is synced.
        """
        answer, given = ranged(self.store, ask, self.range_bytes)
        yield acts.Send(link=link, data=b"".join((answer_frame(ask.stream, tag, answer), *given)))

    def _answer(self, link: int, one: Waiting) -> Iterator[Act]:
        for to, data in self._answers.add(link, one):
            yield acts.Send(link=to, data=data)

    def _run(self, made: Iterator[Any]) -> Iterator[Act]:
        """Pass on what Programs want performed, and answer for those that ended."""
        for one in made:
            if isinstance(one, acts.Ask | acts.Drop):
                yield one
            elif one.link in self._lives:
                waiting = one.waiting
                if isinstance(waiting.answer, asks.Holding | asks.Noted):
                    self._lives[one.link][waiting.stream] = one.life
                    who, ms = (waiting.stream, SOURCE), one.activity_ms
                    self.presence.use(who, one.life, link=one.link, activity_ms=ms)
                yield from self._answer(one.link, waiting)


ASKS: Final[dict[type[Any], Callable[[Catalogue, Any], Step | asks.Answer]]] = {
    asks.Look: Catalogue.look,
    asks.Streams: listing.streams,
    asks.Learn: Catalogue.learn,
    asks.Fence: Catalogue.fence,
    asks.Register: Catalogue.register,
    asks.Acknowledge: Catalogue.acknowledge,
    asks.Deregister: Catalogue.deregister,
    asks.Positions: Catalogue.positions,
    EndStream: ending.deregister,
}
"""What is decided in one step, and by what."""
