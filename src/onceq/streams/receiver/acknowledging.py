"""Which stores are told how far a receiver has come, and where it must register first. Pure.

Every store of the stream's lists is told: a life begins where most of those that answer say. One
that did not note the receiver when it registered, that forgot it since, or is new in a list, notes
it then. What a store does not know to be stable it does not note: it is told again. Source:
streams.md 7; spec M9, M24; UM, ume_ack_batching_interval.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Final

from onceq.model.ops.base import Program
from onceq.streams.errors import StreamReplaced
from onceq.streams.model import asks
from onceq.streams.model.ending import Gone
from onceq.streams.model.ops import AskStores, WaitUntil
from onceq.streams.model.quorum import are_stable
from onceq.streams.model.uses import InUse, is_receiver_in_use
from onceq.streams.receiver.delivering import Delivering
from onceq.streams.receiver.placing import Registration, Who, has_all, in_use

PAUSE: Final = 10
"""A store that did not answer is left out so many times."""
ROUNDS: Final = 10
REST_S: Final = 0.05
"""At its end a life asks so often, and so soon again, until stores know what is stable."""


class Acknowledging:
    """What stores have noted of a life of a receiver: its ids there, and its positions.

    silent: stores that did not answer when they were asked last; used: those that have another life
    in its place; gone: those at which the stream was deregistered.
    """

    def __init__(self, who: Who, registration: Registration) -> None:
        position = registration.position
        self.who = who
        self._epoch, self._mark = position.epoch, position.mark
        self._regids = dict(registration.regids)
        self._noted = dict.fromkeys(self._regids, registration.below)
        self._left_out: dict[str, int] = {}
        self.silent: set[str] = set()
        self.used: set[str] = set()
        self.gone: set[str] = set()

    @property
    def regids(self) -> dict[str, int]:
        """Its ids at stores."""
        return dict(self._regids)

    def asked(self, core: Delivering, below: int, *, is_beat: bool = False) -> dict[str, asks.Ask]:
        """Return what stores are to be asked now. below: what may be acknowledged.

        is_beat: all are told that the receiver lives.
        """
        asked: dict[str, asks.Ask] = {}
        for store in sorted({store for one in core.lists for store in one.stores}):
            if self._left_out.get(store, 0) > 0:
                self._left_out[store] -= 1
            elif store not in self._regids:
                asked[store] = self._registration(core, below)
            elif is_beat or self._noted.get(store, 0) < below:
                asked[store] = asks.Acknowledge(
                    stream=core.stream,
                    regid=self._regids[store],
                    below=max(below, self._noted.get(store, 0)),
                    session=self.who.session,
                    life=self.who.life,
                    activity_ms=self.who.activity_ms,
                )
        return asked

    def _registration(self, core: Delivering, below: int) -> asks.Register:
        return asks.Register(
            stream=core.stream,
            epoch=core.epoch or self._epoch,
            topic=self.who.topic,
            session=self.who.session,
            regid=self.who.regid,
            below=below,
            life=self.who.life,
            activity_ms=self.who.activity_ms,
            mark=self._mark,
        )

    def heard(self, asked: Mapping[str, asks.Ask], answers: Mapping[str, asks.Answer]) -> None:
        """Take what stores answered, and note which did not."""
        self.silent -= asked.keys() & answers.keys()
        self.used -= asked.keys()
        for store in asked:
            match answers.get(store):
                case asks.Registered(regid=regid, below=below):
                    self._regids[store], self._noted[store] = regid, below
                case asks.Holding(end=below):
                    self._noted[store] = below
                case asks.NotAdmitted():
                    self._regids.pop(store, None)  # it forgot, or is between two epochs
                case Gone():
                    self._left_out[store] = PAUSE
                    self.gone.add(store)
                case InUse():
                    self._left_out[store] = PAUSE
                    self.used.add(store)
                case given:
                    self._left_out[store] = PAUSE
                    self.silent |= {store} if given is None else set()

    def refuse_if_replaced(self, core: Delivering) -> None:
        """Raise RegistrationInUse if another life has come in at too many stores.

        Raises StreamReplaced if the stream was deregistered at a stable set of them.
        """
        if are_stable(core.lists, self.gone):
            raise StreamReplaced(
                f"the stream of topic {self.who.topic!r} was deregistered: nothing comes of it any"
                " more. Begin again, and what its source sends next is received from number 0"
            )
        if is_receiver_in_use(core.lists, self.used):
            raise in_use(self.who, self.used)


def acknowledge(
    one: Acknowledging, core: Delivering, below: int, within_s: float, *, is_beat: bool = False
) -> Program[Mapping[str, asks.Ask]]:
    """Ask stores once; return what they were asked. is_beat: all are asked."""
    asked = one.asked(core, below, is_beat=is_beat)
    if asked:
        answers = yield from AskStores(
            asked=asked, enough=partial(has_all, frozenset(asked)), within_s=within_s
        )
        one.heard(asked, answers)
    return asked


def acknowledge_all(
    one: Acknowledging, core: Delivering, below: int, within_s: float
) -> Program[None]:
    """Ask stores until those that answer have noted all, or for a while: at the end of a life."""
    for _ in range(ROUNDS):
        asked = yield from acknowledge(one, core, below, within_s)
        if not asked:
            return
        yield from WaitUntil(within_s=REST_S)
