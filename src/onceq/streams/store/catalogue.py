"""What a store knows of its streams, and what it answers: by the tables of the model. Pure.

An ask is decided, and leaves records; these are appended to the log, and applied. What was applied
may be answered once the log is synced behind it. When a store starts, it applies the snapshot and
what follows it in the log: the same records, by the same code.

A catalogue is not changed by deciding. Its `end` of a stream counts what is appended; what is
appended before a promise is synced with it, so that the answer to a fence has it.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, TypeAlias

import msgspec
from msgspec.structs import replace

from onceq.streams.model import asks, choice, frames, states, tombstones
from onceq.streams.model.choice import Promised
from onceq.streams.model.log import kept_below
from onceq.streams.model.states import Deed, Memory, Standing
from onceq.streams.store import limits, records
from onceq.streams.store.records import Held, Record, Snapshot


class Step(msgspec.Struct, frozen=True, kw_only=True):
    """What an ask leads to: records to append, and the answer once they are synced."""

    records: tuple[Record, ...] = ()
    answer: asks.Answer


class Needs(msgspec.Struct, frozen=True, kw_only=True):
    """What a store must copy before it can be admitted: numbers from `begin` to before `end`.

    copied: the first of them, if they were copied for an admission that came to nothing.
    """

    begin: int
    end: int
    firsts: choice.Firsts
    copied: range = range(0)


class Taken(msgspec.Struct, frozen=True, kw_only=True):
    """What a frame leads to.

    append: whether it goes into the log. compare: it is there already, and must be the same.
    """

    answer: asks.Answer
    append: bool = False
    compare: bool = False


Decided: TypeAlias = Step | Needs

STREAMS_MAX: Final = 10_000
OTHERS_MAX: Final = 16
"""So many of several streams are named to who asks for the one of a topic."""
RECEIVERS_MAX: Final = 4_096
"""Of one stream. With more of either, what a store knows would not fit into its answers."""


class Catalogue:
    """What a store knows of its streams, by their ids."""

    def __init__(self, snapshot: Snapshot | None = None) -> None:
        known = Snapshot() if snapshot is None else snapshot
        self._regid = known.regid
        self.streams: dict[int, Held] = {one.stream: one for one in known.streams}
        self._locals = {one.local: one.stream for one in known.streams}

    def snapshot(self) -> Snapshot:
        """Return everything, for the beginning of a segment."""
        return Snapshot(regid=self._regid, streams=tuple(self.streams.values()))

    def of(self, stream: int) -> Held:
        """Return what is known of a stream; of one that is not, its short number to be."""
        found = self.streams.get(stream)
        local = max(self._locals, default=0) + 1
        return Held(stream=stream, local=local) if found is None else found

    def of_local(self, local: int) -> Held | None:
        """Return what is known of a stream by its short number."""
        stream = self._locals.get(local)
        return None if stream is None else self.streams[stream]

    # what is asked

    def found(self, stream: int) -> Promised:
        """Return what the store has of a stream, as it answers a fence."""
        held = self.of(stream)
        return Promised(
            bridge=held.bridge,
            hints=held.hints,
            begin=held.begin,
            end=held.end,
            stable=held.stable,
            whole=not any(number >= held.stable for number in held.damaged),
            positions=held.positions,
            marks=held.marks,
        )

    def fence(self, ask: asks.Fence) -> Step:
        """Promise an epoch to a life, or say what was promised."""
        held = self.of(ask.stream)
        if held.promised == 0 and len(self.streams) >= STREAMS_MAX:
            return Step(answer=asks.Full(end=0))
        deed = states.FENCE.get(_standing(held, ask.epoch, ask.life), Deed.REFUSE)
        if deed is Deed.REFUSE:
            return Step(answer=asks.Refused(promised=held.promised))
        if self._is_taken(ask):
            return Step(answer=asks.Taken(regid=ask.regid))
        made: tuple[Record, ...] = ()
        if deed is Deed.PROMISE:
            made = (
                records.Promised(
                    stream=ask.stream,
                    epoch=ask.epoch,
                    life=ask.life,
                    own=ask.own,
                    topic=ask.topic,
                    session=ask.session,
                    regid=ask.regid or held.regid or self._regid + 1,
                ),
            )
        answer = asks.Found(
            stream=ask.stream, promised=ask.epoch, life=ask.life, has=self.found(ask.stream)
        )
        return Step(records=made, answer=answer)

    def _is_taken(self, ask: asks.Fence) -> bool:
        """Whether the RegID that a source gives is that of another, whose stream was settled."""
        having = self._with_regid(ask.regid)
        return any(one.stream != ask.stream and one.admitted for one in having)

    def _with_regid(self, regid: int) -> list[Held]:
        """Return the streams whose source has this RegID; more than one while none is settled."""
        return [one for one in self.streams.values() if regid and one.regid == regid]

    def admit(self, ask: asks.Admit, copied: range | None = None) -> Decided:
        """Admit the store to an epoch.

        copied: the numbers of the copies that are appended before the records; None: none is yet.
        Returns what must be copied first, if anything must.
        """
        held, bridge = self.of(ask.stream), ask.bridge
        deed = states.ADMIT.get(
            (_standing(held, bridge.epoch, ask.life), _memory(held)), Deed.REFUSE
        )
        match deed:
            case Deed.REFUSE:
                return Step(answer=asks.Refused(promised=held.promised))
            case Deed.FORGOT:
                return Step(answer=asks.Forgot())
            case Deed.SETTLE if not self.found(ask.stream).whole:
                return Step(answer=asks.Forgot())  # the admission to another epoch copies it
            case Deed.SETTLE if held.bridge is None or bridge.stage >= held.bridge.stage:
                return self._noted(ask, kept=held.end, begin=held.begin, end=held.end)
            case Deed.SETTLE:  # it was asked before the later stage, on a link that has ended
                answer = asks.Holding(epoch=bridge.epoch, end=held.end, regid=held.regid)
                return Step(answer=answer)
            case _:
                return self._admitted(ask, held, copied)

    def _admitted(self, ask: asks.Admit, held: Held, copied: range | None) -> Decided:
        end = ask.log.end
        if (stable := held.in_spite(held.stable, ask.bridge)) > end:
            return Step(answer=asks.Lacking(begin=end, end=stable))
        kept = kept_below(self.found(ask.stream), ask.log, ask.bridge.losses)
        if kept < end:
            if copied is None or copied.stop != end:
                return Needs(begin=kept, end=end, firsts=ask.log.firsts)
            begin = held.begin if copied.start <= kept else copied.start
            return self._noted(ask, kept=kept, begin=max(held.begin, begin), end=end)
        return self._noted(ask, kept=kept, begin=held.begin, end=end)

    def _noted(self, ask: asks.Admit, *, kept: int, begin: int, end: int) -> Step:
        note = records.Admitted(
            stream=ask.stream,
            life=ask.life,
            bridge=ask.bridge,
            kept=kept,
            begin=begin,
            end=end,
            positions=ask.log.positions,
            marks=ask.log.marks,
            address=ask.address,
            late_join=ask.late_join,
        )
        regid = self.of(ask.stream).regid
        answer = asks.Holding(epoch=ask.bridge.epoch, end=end, regid=regid)
        return Step(records=(note,), answer=answer)

    def take(self, frame: frames.Frame, life: int) -> Taken:
        """Decide on a frame of a source's life."""
        held = self.of(frame.stream)
        at = states.where(frame.number, held.end)
        key = (_standing(held, frame.epoch, life), _memory(held), at)
        match states.FRAME.get(key, Deed.REFUSE):
            case Deed.APPEND:
                end = frame.end
                return Taken(
                    answer=asks.Holding(epoch=frame.epoch, end=end), append=frame.count > 0
                )
            case Deed.KNOWN:
                answer = asks.Holding(epoch=frame.epoch, end=held.end)
                return Taken(answer=answer, compare=frame.count > 0)
            case Deed.GAP:
                return Taken(answer=asks.Holding(epoch=frame.epoch, end=held.end))
            case Deed.NOT_ADMITTED:
                return Taken(answer=asks.NotAdmitted())
            case Deed.FORGOT:
                return Taken(answer=asks.Forgot())
            case _:
                return Taken(answer=asks.Refused(promised=held.promised))

    def register(self, ask: asks.Register) -> Step:
        """Note a receiver, in the epoch in which the store is admitted.

        A session keeps the id that it has here. An id that another receiver has is refused.
        """
        held = self.of(ask.stream)
        if ask.epoch == 0 or serving(held) != ask.epoch:
            return Step(answer=asks.NotAdmitted())
        known = next((one for one in held.receivers if records.is_asked(one, ask)), None)
        if known is None and len(held.receivers) >= RECEIVERS_MAX:
            return Step(answer=asks.Full(end=held.end, blocking=limits.slowest(held)[1]))
        regid = (ask.regid or self._regid + 1) if known is None else known.regid
        if known is None and records.receiver(held, regid) is not None:
            return Step(answer=asks.Refused(promised=held.promised))
        key = records.key_of(regid, ask.session)
        mark = max(ask.mark, tombstones.registered(held.known.mark(key)))
        is_known = mark == held.known.mark(key)
        note = records.Registered(
            stream=ask.stream,
            regid=regid,
            topic=ask.topic,
            session=ask.session,
            below=max(ask.below, held.positions.get(key, 0) if is_known else 0),
            mark=mark,
        )
        old = known is not None and is_known
        answer = asks.Registered(epoch=ask.epoch, regid=regid, old=old, below=note.below)
        return Step(records=(note,), answer=answer)

    def acknowledge(self, ask: asks.Acknowledge) -> Step:
        """Note what a receiver has processed: at most what is stable, and only if that is news."""
        held = self.of(ask.stream)
        epoch = serving(held)
        if epoch == 0 or not records.is_registered(held, ask):
            return Step(answer=asks.NotAdmitted())
        below = min(ask.below, held.stable)
        note = records.Acknowledged(stream=ask.stream, regid=ask.regid, below=below)
        known = records.receiver(held, ask.regid)
        is_news = known is None or held.positions.get(known.key, -1) < below
        made = (note,) if is_news else ()
        return Step(records=made, answer=asks.Holding(epoch=epoch, end=below))

    def deregister(self, ask: asks.Deregister) -> Step:
        """Forget a receiver, and keep a tombstone, so that it is not learned from others again.

        One that is asked for by its name has that also where it is not known.
        """
        held = self.of(ask.stream)
        epoch = serving(held)
        if epoch == 0:
            return Step(answer=asks.NotAdmitted())
        known = records.receiver(held, ask.regid) if records.is_registered(held, ask) else None
        key = ask.key if known is None else known.key
        if key not in held.marks and len(held.marks) >= RECEIVERS_MAX:
            return Step(answer=asks.Full(end=held.end))
        made: tuple[Record, ...] = ()
        mark = tombstones.deregistered(max(ask.mark, held.known.mark(key)))
        if key and (key in held.positions or held.known.mark(key) < mark):
            made = (records.Deregistered(stream=ask.stream, key=key, mark=mark),)
        return Step(records=made, answer=asks.Holding(epoch=epoch, end=held.end))

    def look(self, ask: asks.Look) -> asks.Answer:
        """Tell what there is of the stream of a topic and session."""
        its = [one for one in self._with_regid(ask.regid) if one.topic == ask.topic]
        held = _last(its) or self._called(ask.topic, ask.session)
        gone = tuple(one.stream for one in self._named(ask.topic, ask.session) if one.is_gone)
        if held is None:
            return asks.Found(gone=gone)
        return asks.Found(
            stream=held.stream,
            promised=held.promised,
            life=held.life,
            has=self.found(held.stream),
            session=held.session,
            regid=held.regid,
            late_join=held.late_join,
            gone=gone,
        )

    def learn(self, ask: asks.Learn) -> asks.Answer:
        """Tell what a receiver must know of the stream of a topic and session."""
        its = (one for one in self.streams.values() if one.topic == ask.topic and not one.is_gone)
        sessions = sorted({one.session for one in its})
        if ask.session == 0 and len(sessions) > 1:
            return asks.Others(streams=tuple((ask.topic, one) for one in sessions[:OTHERS_MAX]))
        held = self._called(ask.topic, ask.session or next(iter(sessions), 0))
        if held is None or held.bridge is None:
            return asks.Forgot()
        return asks.Information(
            stream=held.stream,
            epoch=serving(held),
            stage=held.bridge.stage,
            firsts=held.bridge.firsts,
            lists=held.bridge.lists,
            address=held.address,
            stable=held.stable,
            session=held.session,
            losses=held.bridge.losses,
            keeps=held.bridge.keeps,
        )

    def _called(self, topic: str, session: int) -> Held | None:
        """Return the last stream that was called by a topic and session, if it is not gone."""
        return _last(one for one in self._named(topic, session) if not one.is_gone)

    def _named(self, topic: str, session: int) -> list[Held]:
        its = self.streams.values()
        return [one for one in its if topic and (one.topic, one.session) == (topic, session)]

    def positions(self, ask: asks.Positions) -> asks.Answer:
        """Tell another store of the same epoch what receivers have acknowledged."""
        held = self.of(ask.stream)
        if ask.epoch == 0 or serving(held) != ask.epoch:
            return asks.NotAdmitted()
        return asks.Known(epoch=ask.epoch, positions=held.positions, marks=held.marks)

    def readable(self, ask: asks.Read) -> range:
        """Return the numbers that may be given: what is stable, or all to who saw the epoch."""
        held = self.of(ask.stream)
        shows_all = ask.epoch != 0 and serving(held) == ask.epoch
        bound = held.end if shows_all else held.stable
        return range(max(ask.begin, held.begin), min(ask.end, bound))

    # what was appended

    def apply(self, record: Record) -> None:
        """Change what is known by a record."""
        if isinstance(record, records.Registered | records.Promised):
            self._regid = max(self._regid, record.regid)
        self._keep(records.after(self.of(record.stream), record))

    def apply_frame(self, frame: frames.Frame) -> None:
        """Change what is known by a frame that was appended, or that only says what is stable."""
        held = self.of(frame.stream)
        end = max(held.end, frame.end) if frame.number == held.end else held.end
        stable = max(held.stable, min(frame.stable, end))
        if (end, stable) != (held.end, held.stable):
            self._keep(replace(held, end=end, stable=stable))

    def note_stable(self, local: int, below: int) -> None:
        """Note that what a stream has below a number is stable, as it was said before."""
        held = self.of_local(local)
        if held is not None and held.stable < min(below, held.end):
            self._keep(replace(held, stable=min(below, held.end)))

    def damage(self, stream: int, numbers: range) -> None:
        """Note that numbers cannot be read; they are not served until they are repaired."""
        held = self.of(stream)
        damaged = tuple(sorted({*held.damaged, *numbers}))
        self._keep(replace(held, damaged=damaged, end=max(held.end, numbers.stop)))

    def repair(self, stream: int, numbers: range) -> None:
        """Note that numbers were fetched from another store, and are whole again."""
        held = self.of(stream)
        damaged = tuple(number for number in held.damaged if number not in numbers)
        self._keep(replace(held, damaged=damaged))

    def _keep(self, held: Held) -> None:
        self.streams[held.stream] = held
        self._locals[held.local] = held.stream


def _last(streams: Iterable[Held]) -> Held | None:
    """Return the stream that the store knows the shortest; None: there is none."""
    return max(streams, key=lambda one: one.local, default=None)


def _standing(held: Held, epoch: int, life: int) -> Standing:
    return states.standing(held.promised, held.life, epoch=epoch, life=life)


def _memory(held: Held) -> Memory:
    return states.memory(held.promised, held.admitted)


def serving(held: Held) -> int:
    """Return the epoch in which receivers are heeded; 0 between a promise and an admission."""
    admitted = held.admitted
    return admitted if admitted == held.promised else 0
