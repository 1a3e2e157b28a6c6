"""A history to be corrupted: finding a place for it by chance, and changing what is there.

Private to the corruptions. Raises `NoPlaceForIt` where the history has nothing of the kind.
"""

from __future__ import annotations

import dataclasses
import random
from typing import TYPE_CHECKING, Any, TypeVar

from msgspec.structs import replace

from onceq.history import events as ev
from onceq.history.events import Place

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from proof.history.invention import History

T = TypeVar("T")
E = TypeVar("E", bound=ev.Event)
C = TypeVar("C", bound=ev.ClientEvent)


class NoPlaceForIt(LookupError):
    """This history has nothing that could be corrupted like this."""


class Wreck:
    """A history, and the chance that decides where it is corrupted."""

    def __init__(self, history: History, seed: str) -> None:
        self.history = history
        self._chance = random.Random(seed)
        for events in history.files.values():
            events.sort(key=lambda event: event.at)

    def pick(self, choices: Iterable[T]) -> T:
        """Returns one of some, or raises NoPlaceForIt."""
        every = list(choices)
        if not every:
            raise NoPlaceForIt
        return every[int(self._chance.random() * len(every))]

    # --- events -------------------------------------------------------------------------------

    def all(self, kind: type[E]) -> list[E]:
        """Returns all events of a kind."""
        return [
            one for events in self.history.files.values() for one in events if type(one) is kind
        ]

    def event(self, kind: type[E], where: Callable[[E], bool] = lambda _: True) -> E:
        """Returns some event of a kind."""
        return self.pick(one for one in self.all(kind) if where(one))

    def change(self, event: ev.Event, **fields: Any) -> None:
        """Changes an event where it stands."""
        events = self._file(event)
        events[_index(events, event)] = replace(event, **fields)

    def drop(self, where: Callable[[Any], bool], *kinds: type[ev.Event]) -> None:
        """Drops all events of some kinds for which something is true."""
        for name, events in self.history.files.items():
            self.history.files[name] = [
                one for one in events if type(one) not in kinds or not where(one)
            ]

    def after(self, event: ev.Event, *news: ev.Event) -> None:
        """Puts events right after another, in its file, at its time and a little later."""
        events = self._file(event)
        at = _index(events, event) + 1
        events[at:at] = [replace(new, at=event.at + n) for n, new in enumerate(news, 1)]

    def at_end(self, client: ev.ClientEvent, *news: ev.ClientEvent) -> None:
        """Puts events of a client after all that it recorded, in its last epoch or later ones."""
        own = [one for one in self._file(client) if isinstance(one, ev.ClientEvent)]
        last = own[-1]
        self.after(last, *(replace(one, epoch=last.epoch + one.epoch) for one in news))

    def before(self, event: ev.ClientEvent) -> list[ev.ClientEvent]:
        """Returns what its client recorded before an event."""
        own = [one for one in self._file(event) if isinstance(one, ev.ClientEvent)]
        return own[: _index(own, event)]

    def following(self, event: ev.ClientEvent) -> list[ev.ClientEvent]:
        """Returns what its client recorded after an event."""
        own = [one for one in self._file(event) if isinstance(one, ev.ClientEvent)]
        return own[_index(own, event) + 1 :]

    def _file(self, event: ev.Event) -> list[ev.Event]:
        for events in self.history.files.values():
            if any(one is event for one in events):
                return events
        raise NoPlaceForIt

    def replies(self, rid: str) -> list[ev.ReplyEvent]:
        """Returns the events that hand out the reply to a rid."""
        every: list[ev.ReplyEvent] = [*self.all(ev.Received), *self.all(ev.Rereceived)]
        return [one for one in every if one.rid == rid]

    def is_alone(self, rid: str) -> bool:
        """Returns whether a rid was sent by a client with one outstanding request at a time."""
        return any(one.rid == rid and one.alone for one in self.all(ev.SendBegun))

    # --- the final state ----------------------------------------------------------------------

    def place(self, where: Callable[[Place], bool]) -> Place:
        """Returns some row of the requests view."""
        return self.pick(one for one in self.history.places if where(one))

    def ended(self, *outcomes: str, role: str = "request") -> Place:
        """Returns some row of history that ended so."""
        return self.place(
            lambda one: one.state == "finished" and one.outcome in outcomes and one.role == role
        )

    def turn(self, row: Place, **fields: Any) -> None:
        """Changes a row."""
        rows = self.history.places
        rows[rows.index(row)] = dataclasses.replace(row, **fields)

    def add(self, row: Place, **fields: Any) -> None:
        """Adds a row like another."""
        self.history.places.append(dataclasses.replace(row, **fields))

    def remove(self, where: Callable[[Place], bool]) -> None:
        """Removes rows."""
        self.history.places[:] = [one for one in self.history.places if not where(one)]

    def effect(self, row: Place, **fields: Any) -> None:
        """Adds an effect of a row's element."""
        fields = {"key": "booked", "xid": "x", "rid": row.rid, "eid": row.eid, **fields}
        self.history.effects.append(ev.Effect(**fields))


def _index(events: list[T], event: ev.Event) -> int:
    return next(n for n, one in enumerate(events) if one is event)


def is_satisfied(wreck: Wreck, one: ev.ClientEvent) -> bool:
    """Returns whether a client has said that all its replies came."""
    return any(other.client == one.client for other in wreck.all(ev.Satisfied))
