"""What a history says of one stream: the lives of its source, its receivers, and its stores.

Events are taken in any order of files; those of one life in the order in which they were noted.
Invariant: nothing is judged here but what only the order of a life's own events shows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Final

from onceq.streams.history import kinds
from onceq.streams.history.spans import Spans


class SourceLife:
    """A life of the source. epochs: with what each was to begin, in the order of the life.

    sent: by number the content; twice: numbers that it sent with another content. stable: by number
    that it was told of, the epoch in which it was first. given_up: numbers that it was told to be.
    late: sent though it was fenced.
    lost: numbers that a person accepted as lost when it began. finished: behind the last number,
    all is stable.
    """

    def __init__(self, life: int) -> None:
        self.life = life
        self.epochs: list[tuple[int, int]] = []
        self.sent = Spans[str]()
        self.twice: list[tuple[int, int]] = []
        self.stable = Spans[int]()
        self.given_up = Spans[bool]()
        self.lost = Spans[bool]()
        self.confirmed: list[kinds.Confirmed] = []
        self.late = Spans[bool]()
        self.finished: int | None = None
        self._is_fenced = False

    def began(self, event: kinds.Began) -> None:
        """Take that it may send."""
        self.epochs.append((event.epoch, event.number))

    def sends(self, event: kinds.Sent) -> None:
        """Take what it is about to send."""
        first, last = event.first, event.last
        for known, until, content in self.sent.over(first, last):
            if content != event.content:
                self.twice.append((known, until))
        self.sent.put(first, last, event.content)
        if self._is_fenced:
            self.late.put(first, last, value=True)

    def refused(self, event: kinds.Refused) -> None:
        """Take that nothing was sent from a number on."""
        self.sent.cut(event.number)
        self.late.cut(event.number)

    def told_stable(self, event: kinds.StableTold) -> None:
        """Take what is stable."""
        epoch = self.epochs[-1][0] if self.epochs else 0
        for first, last in [*self.stable.gaps(event.first, event.last)]:
            self.stable.put(first, last, epoch)

    def reclaimed(self, event: kinds.Reclaimed) -> None:
        """Take what is released; only what was given up counts."""
        if event.unstable:
            self.given_up.put(event.first, event.last, value=True)

    def accepts(self, event: kinds.Accepted) -> None:
        """Take what is lost."""
        if event.first <= event.last:
            self.lost.put(event.first, event.last, value=True)

    def is_confirmed(self, event: kinds.Confirmed) -> None:
        """Take what a receiver has processed."""
        self.confirmed.append(event)

    def fenced(self, _event: kinds.Fenced) -> None:
        """Take that another has taken over."""
        self._is_fenced = True

    def finishes(self, event: kinds.Finished) -> None:
        """Take that all is stable."""
        self.finished = event.number


class Store:
    """A store. opened: by its lives; held: by number the epoch, the content, and if it is void."""

    def __init__(self) -> None:
        self.opened: list[kinds.Opened] = []
        self.kept: kinds.Kept | None = None
        self.held = Spans[tuple[int, str, bool]]()

    def opens(self, event: kinds.Opened) -> None:
        """Take what it knew as a life began."""
        self.opened.append(event)

    def keeps(self, event: kinds.Kept) -> None:
        """Take what its log was in the end."""
        self.kept = event

    def has(self, event: kinds.Held) -> None:
        """Take what it has in the end."""
        self.held.put(event.first, event.last, (event.epoch, event.content, event.is_void))


class Stream:
    """All that is known of a stream. readers: the events of each life of each receiver, by name.

    forgot: stores that lost their disks. ended: None: not all had the time to be finished.
    """

    def __init__(self, stream: int) -> None:
        self.stream = stream
        self.lives: dict[int, SourceLife] = {}
        self.readers: dict[str, dict[int, list[kinds.OfReceiver]]] = {}
        self.stores: dict[str, Store] = {}
        self.forgot: set[str] = set()
        self.ended: kinds.Ended | None = None

    def take(self, event: kinds.StreamEvent) -> None:
        """Take an event of this stream."""
        match event:
            case kinds.OfSource(life=life):
                known = self.lives.get(life) or self.lives.setdefault(life, SourceLife(life))
                _OF_SOURCE[type(event)](known, event)
            case kinds.OfReceiver(receiver=name, life=life):
                self.readers.setdefault(name, {}).setdefault(life, []).append(event)
            case kinds.OfStore(store=name):
                store = self.stores.get(name) or self.stores.setdefault(name, Store())
                _OF_STORE[type(event)](store, event)
            case _:
                pass

    def take_of_all(self, event: kinds.Ended | kinds.Forgot) -> None:
        """Take an event that is of all streams."""
        if isinstance(event, kinds.Ended):
            self.ended = event
        else:
            self.forgot.add(event.store)

    @property
    def stores_kept(self) -> dict[str, Store]:
        """The stores whose logs were recorded in the end."""
        return {name: store for name, store in self.stores.items() if store.kept is not None}


_OF_SOURCE: Final[dict[type[Any], Callable[[SourceLife, Any], None]]] = {
    kinds.Began: SourceLife.began,
    kinds.Sent: SourceLife.sends,
    kinds.Refused: SourceLife.refused,
    kinds.StableTold: SourceLife.told_stable,
    kinds.Reclaimed: SourceLife.reclaimed,
    kinds.Accepted: SourceLife.accepts,
    kinds.Confirmed: SourceLife.is_confirmed,
    kinds.Fenced: SourceLife.fenced,
    kinds.Finished: SourceLife.finishes,
}
_OF_STORE: Final[dict[type[Any], Callable[[Store, Any], None]]] = {
    kinds.Opened: Store.opens,
    kinds.Kept: Store.keeps,
    kinds.Held: Store.has,
}


def streams_of(events: Iterable[kinds.StreamEvent]) -> list[Stream]:
    """Return what events say of each stream.

    What a life of a source notes before it knows its stream is of the one that it tells later.
    """
    sorting = _Sorting()
    for event in events:
        sorting.take(event)
    return sorting.done()


class _Sorting:
    """Gives events to their streams. early: of lives that did not know their stream yet."""

    def __init__(self) -> None:
        self._streams: dict[int, Stream] = {}
        self._early: list[kinds.OfSource] = []
        self._of_life: dict[int, int] = {}
        self._of_all: list[kinds.Ended | kinds.Forgot] = []

    def take(self, event: kinds.StreamEvent) -> None:
        """Take an event."""
        match event:
            case kinds.Ended() | kinds.Forgot():
                self._of_all.append(event)
            case kinds.OfSource(stream=0):
                self._early.append(event)
            case kinds.OfSource():
                self._of_life[event.life] = event.stream
                self._of(event.stream).take(event)
            case _:
                self._of(event.stream).take(event)

    def done(self) -> list[Stream]:
        """Return the streams: all was taken."""
        for event in self._early:
            self._of(self._of_life.get(event.life, 0)).take(event)
        for stream in self._streams.values():
            for one in self._of_all:
                stream.take_of_all(one)
        return list(self._streams.values())

    def _of(self, stream: int) -> Stream:
        return self._streams.get(stream) or self._streams.setdefault(stream, Stream(stream))
