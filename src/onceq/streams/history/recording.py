"""Recorders: a source's, a receiver's and a store's part of a history, each in a file of its life.

They are told what an application is told anyway: before a send, by `on_event`, in a handler. They
change nothing, ask nobody, and cost about a microsecond a message.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from onceq.streams.history import kinds
from onceq.streams.history.files import Journal
from onceq.streams.model import events
from onceq.streams.model.frames import FrameKind, decode
from onceq.streams.receiver import ops
from onceq.streams.receiver.message import Message
from onceq.streams.store.disk_store import DiskStore

CONFIRMED_MAX: Final = 10_000
"""So many numbers in a row are confirmed by one event at most."""
_BESIDE: Final = frozenset({kinds.StableTold, kinds.Confirmed})
"""What a source is told while it sends: the row that is under way goes on."""

Content: TypeAlias = Callable[[bytes, int], str]
"""Returns what tells the messages of a number apart, of a message's bytes and its number."""


def digest(body: bytes, _number: int = 0) -> str:
    """Return a short fingerprint of a message."""
    return hashlib.blake2b(body, digest_size=8).hexdigest()


class SourceRecorder:
    """Records a life of a source. life: a number that no other life of it has.

    Call `sending` before each send, `refused` if it raised, and give `on_event` to the source.
    content: a digest; or what messages say themselves that tell their sender: then many numbers in
    a row are one event.
    """

    def __init__(self, journal: Journal, life: int, *, content: Content = digest) -> None:
        self.journal = journal
        self.life = life
        self._content = content
        self._stream = 0
        self._last: tuple[int, str] = (-1, "")
        self._confirmations: dict[int, tuple[int, int]] = {}

    def sending(self, number: int, body: bytes) -> None:
        """Note that a message is about to be sent. number: what `next_number` says.

        Sending the same again since there was no room is no other event.
        """
        given = (number, self._content(body, number))
        if given != self._last:
            self._last = given
            self._sent(number, number, given[1])

    def refused(self, number: int) -> None:
        """Note that a send raised, and that this number was not sent."""
        self._last = (-1, "")
        self._note(kinds.Refused, number=number)

    def finished(self, number: int) -> None:
        """Note that all is stable, and nothing more is sent. number: what `next_number` says."""
        for session, (first, last) in self._confirmations.items():
            self._note(kinds.Confirmed, first=first, last=last, session=session)
        self._confirmations.clear()
        self._note(kinds.Finished, number=number)

    def on_event(self, event: events.Event) -> None:
        """Note what the source was told; all other events are left out."""
        self._stream = self._stream or event.stream
        match event:
            case events.RegistrationComplete(epoch=epoch, next_number=number):
                self._note(kinds.Began, epoch=epoch, number=number)
            case events.SequenceNumbers(first=first, last=last) if first < last:
                content = self._last[1] if self._last[0] == first else ""
                self._sent(first + 1, last, content)
            case events.Stable(first=first, last=last, store=None):
                self._note(kinds.StableTold, first=first, last=last)
            case events.Reclaimed(forced=forced, unstable=unstable) if forced or unstable:
                how = {"forced": forced, "unstable": unstable}
                self._note(kinds.Reclaimed, first=event.first, last=event.last, **how)
            case events.LossAccepted(first=first, last=last):
                self._note(kinds.Accepted, first=first, last=last)
            case events.Confirmed():
                self._confirmed(event)
            case events.SourceFenced(epoch=epoch):
                self._note(kinds.Fenced, epoch=epoch)
            case _:
                pass

    def _confirmed(self, event: events.Confirmed) -> None:
        """Note confirmations, many in a row as one: some of the last are not, if this life dies."""
        session, first, last = event.receiver, event.first, event.last
        known = self._confirmations.get(session)
        if known is not None and known[1] + 1 == first and last - known[0] < CONFIRMED_MAX:
            first = known[0]
        elif known is not None:
            self._note(kinds.Confirmed, first=known[0], last=known[1], session=session)
        self._confirmations[session] = (first, last)

    def _sent(self, first: int, last: int, content: str) -> None:
        self.journal.go_on(first, last, (content,), self._row)

    def _row(self, first: int, last: int, key: tuple[Any, ...]) -> kinds.Sent:
        (content,) = key
        return kinds.Sent(
            stream=self._stream, life=self.life, first=first, last=last, content=content
        )

    def _note(self, kind: type[kinds.OfSource], **fields: Any) -> None:
        event = kind(stream=self._stream, life=self.life, **fields)
        self.journal.record(event, ends_row=kind not in _BESIDE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Reader:
    """A life of a receiver. life: greater than those before. session: its id, for confirmations."""

    receiver: str
    life: int
    session: int = 0
    is_stable_only: bool = True


class ReceiverRecorder:
    """Records a life of a receiver. content: the same as the source's.

    Call `shown` in the handler, before all else, give `on_event` to the receiver, and call
    `acknowledging` before a token acknowledges, if all are acknowledged by tokens.
    """

    def __init__(self, journal: Journal, reader: Reader, *, content: Content = digest) -> None:
        self.journal = journal
        self.reader = reader
        self._content = content
        self._stream = 0

    def shown(self, one: ops.Message | Message[Any]) -> None:
        """Note what was shown."""
        if isinstance(one, Message):
            self._stream, epoch, number = one.identity
        else:
            self._stream, epoch, number = one.stream, one.epoch, one.number
        key = (epoch, self._content(one.body, number), one.retransmitted)
        self.journal.go_on(one.first, number, key, self._row)

    def acknowledging(self, below: int) -> None:
        """Note that all below a number is about to be acknowledged."""
        self._note(kinds.Acknowledged, below=below)

    def on_event(self, event: events.Event) -> None:
        """Note what the receiver was told; all other events are left out."""
        self._stream = self._stream or event.stream
        reader = self.reader
        match event:
            case events.RegistrationComplete(epoch=epoch, next_number=number):
                self._note(
                    kinds.Entered,
                    number=number,
                    epoch=epoch,
                    session=reader.session,
                    is_stable_only=reader.is_stable_only,
                )
            case events.StoreRegistered(store=store, last=last):
                self._note(kinds.Positioned, store=store, last=last)
            case events.Loss(first=first, last=last, why=why):
                self._note(kinds.Lost, first=first, last=last, why=why.value)
            case events.RolledBack(first=first, last=last):
                self._note(kinds.RolledBack, first=first, last=last)
            case _:
                pass

    def _row(self, first: int, last: int, key: tuple[Any, ...]) -> kinds.Delivered:
        epoch, content, again = key
        return kinds.Delivered(
            stream=self._stream,
            receiver=self.reader.receiver,
            life=self.reader.life,
            first=first,
            last=last,
            epoch=epoch,
            content=content,
            again=again,
        )

    def _note(self, kind: type[kinds.OfReceiver], **fields: Any) -> None:
        reader = self.reader
        self.journal.record(
            kind(stream=self._stream, receiver=reader.receiver, life=reader.life, **fields)
        )


def record_opened(journal: Journal, name: str, life: int, store: DiskStore) -> None:
    """Record what a store knows of its streams as it begins. life: greater than those before."""
    for held in store.catalogue.streams.values():
        journal.record(
            kinds.Opened(
                stream=held.stream,
                store=name,
                life=life,
                promised=held.promised,
                admitted=0 if held.bridge is None else held.bridge.epoch,
                begin=held.begin,
                end=held.end,
            )
        )


def record_kept(
    journal: Journal, name: str, store: DiskStore, *, content: Content = digest
) -> None:
    """Record what a store has, when all has ended. content: the same as the source's."""
    for held in store.catalogue.streams.values():
        journal.record(kinds.Kept(stream=held.stream, store=name, begin=held.begin, end=held.end))
        key: tuple[int, str, bool] | None = None
        first = last = held.begin
        for number, its in _contents(store, held.stream, range(held.begin, held.end), content):
            if key is not None and (its != key or number != last + 1):
                journal.record(_held(name, held.stream, (first, last), key))
            if its != key or number != last + 1:
                first, key = number, its
            last = number
        if key is not None:
            journal.record(_held(name, held.stream, (first, last), key))


def _held(name: str, stream: int, row: tuple[int, int], key: tuple[int, str, bool]) -> kinds.Held:
    epoch, content, is_void = key
    return kinds.Held(
        stream=stream,
        store=name,
        first=row[0],
        last=row[1],
        epoch=epoch,
        content=content,
        is_void=is_void,
    )


def _contents(
    store: DiskStore, stream: int, numbers: range, content: Content
) -> Iterator[tuple[int, tuple[int, str, bool]]]:
    """Yield the numbers of a log, and of each the epoch, the content, and whether it is void.

    What a part of a message has in it, nobody knows.
    """
    for data in store.read(stream, numbers):
        frame = decode(data)
        if frame.kind is FrameKind.VOID or frame.flags:
            key = (frame.epoch, "", frame.kind is FrameKind.VOID)
            of_frame = ((number, key) for number in range(frame.number, frame.end))
        else:
            of_frame = (
                (number, (frame.epoch, content(bytes(body), number), False))
                for number, body in enumerate(frame.messages(), frame.number)
            )
        yield from (one for one in of_frame if one[0] in numbers)
