"""What a source tells its receivers, and its application. Pure."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterator
from collections.abc import Set as AbstractSet
from typing import Any, Final

from onceq.streams.errors import (
    FrameRefused,
    NotRegistered,
    NumberConflict,
    RegistrationInUse,
    SourceSucceeded,
)
from onceq.streams.model import asks, events
from onceq.streams.model.frames import Frame, FrameKind, encode
from onceq.streams.model.losses import MARGIN, Acceptance
from onceq.streams.model.low import Consensus, agreed
from onceq.streams.source.epochs import Begun, Short, SourceLife, WhyEnded


def information(life: SourceLife, begun: Begun, stable: int) -> asks.Information:
    """Return what receivers must know of an epoch."""
    return asks.Information(
        stream=begun.stream,
        epoch=begun.epoch,
        stage=begun.bridge.stage,
        firsts=begun.bridge.firsts,
        lists=begun.bridge.lists,
        address=life.address,
        stable=stable,
        session=life.session,
        losses=begun.bridge.losses,
        keeps=begun.bridge.keeps,
    )


def answered(life: SourceLife, ask: asks.Learn, known: asks.Information | None) -> asks.Answer:
    """Return the answer to a receiver: what it must know; nothing before the first epoch.

    Who asks for whatever session sends a topic is told if that is another one. Raises FrameRefused
    for another stream than this one.
    """
    if ask.session == 0:
        if ask.topic != life.topic:
            return asks.Others(streams=((life.topic, life.session),))
        return asks.Forgot() if known is None else known
    if (ask.topic, ask.session) != (life.topic, life.session):
        raise FrameRefused("a receiver of another stream has connected to this source")
    return asks.Forgot() if known is None else known


def registered(begun: Begun, next_number: int, rule: Consensus) -> events.RegistrationComplete:
    """Return the event that an epoch has begun. rule: for the number that is reported."""
    ends = [end - 1 for end in begun.seen.values()]
    return events.RegistrationComplete(
        stream=begun.stream,
        next_number=next_number,
        reported=agreed(ends, rule) if ends else -1,
        epoch=begun.epoch,
    )


def store_registered(
    stream: int, store: str, end: int | None, *, old: bool, regid: int
) -> events.StoreRegistered:
    """Return the event that a store has registered a source. end: of its log; None: it has none."""
    last = -1 if end is None else end - 1
    return events.StoreRegistered(stream=stream, store=store, regid=regid, old=old, last=last)


def full(life: SourceLife, store: str, answer: asks.Full) -> str:
    """Return why a store takes no more, and what to do."""
    if not answer.blocking:
        return "it has no room, and waits for no receiver of this stream: free space on its disk"
    command = shlex.join(
        [
            *("onceq", "stream", "deregister", life.topic, "--source", f"{life.session:#x}"),
            *("--stores", store, "--receiver", f"regid {answer.blocking}"),
        ]
    )
    return (
        "it has no room: give it some. The oldest messages are kept for the receiver that has the"
        f" RegID {answer.blocking} there; if that never comes back: {command}"
    )


_REFUSALS: Final[dict[type[Any], Callable[[SourceLife, str, Any], str]]] = {
    asks.Refused: lambda _, __, ___: "it has promised more to another life of this source",
    asks.Full: full,
    asks.Lacking: lambda _, __, ___: "nobody gave it what it lacks: it is asked again",
}
"""Why a store does not register a source, by what it answers."""


def refused(
    stream: int, life: SourceLife, store: str, answer: asks.Answer | None
) -> Iterator[events.RegistrationError]:
    """Yield that a store has refused to be admitted, if its answer says so."""
    if type(answer) in _REFUSALS:
        why = _REFUSALS[type(answer)](life, store, answer)
        yield events.RegistrationError(stream=stream, store=store, why=f"{store}: {why}")


def changed(life: SourceLife, begun: Begun) -> Iterator[events.OptionsChanged]:
    """Yield the options that stores know otherwise than a life wants them, as it begins."""
    own, known = life.own, begun.log.lists[-1]
    for option, before, now in (
        ("stores", known.text(), own.text()),
        ("retention_intragroup_stability_behavior", known.intragroup, own.intragroup),
        ("retention_intergroup_stability_behavior", known.intergroup, own.intergroup),
    ):
        if before != now:
            yield events.OptionsChanged(stream=begun.stream, option=option, before=before, now=now)
    if begun.late_join not in {None, life.late_join}:
        yield events.OptionsChanged(
            stream=begun.stream,
            option="late_join",
            before=str(begun.late_join),
            now=str(life.late_join),
        )


def list_changed(begun: Begun) -> events.ListChanged:
    """Return the event of how far a change of lists has come."""
    lists = begun.bridge.lists
    return events.ListChanged(
        stream=begun.stream,
        stage=begun.bridge.stage.name.lower(),
        stores=tuple(one.text() for one in lists),
    )


def _name(life: SourceLife) -> str:
    """Return what a source is called, for who gave it that."""
    if not life.regids:
        return f"session {life.session:#x}"
    return "RegIDs " + " ".join(f"{store}/{one}" for store, one in sorted(life.regids.items()))


def refuse_if_over(ended: WhyEnded | None, life: SourceLife) -> None:
    """Raise SourceSucceeded, NumberConflict or RegistrationInUse if a life has ended for good."""
    if ended is WhyEnded.IN_USE:
        raise RegistrationInUse(
            f"the source of topic {life.topic!r}, {_name(life)}, is in use: its stores"
            f" ({life.own.text()}) hear another live program as that. End the other one; or wait"
            " until it is silent for its activity_timeout_ms, and open the source again; or give"
            " this one a session, or RegIDs, of its own"
        )
    if ended is WhyEnded.SUCCEEDED:
        raise SourceSucceeded(
            "a later life of this source sends, or a person has deregistered its stream: end this"
            " one"
        )
    if ended is WhyEnded.CONFLICT:
        raise NumberConflict(
            "a store has a number of this life with another content: end this one, and look for who"
            " else sends as this source"
        )


def lacking(stream: int, short: Short) -> Iterator[events.RegistrationError | events.StoresForgot]:
    """Yield for each store why no epoch can begin, and what is left if something was sent."""
    for store in sorted(short.forgot):
        why = f"{store} holds nothing of this stream, or damaged; too few others answered that do"
        yield events.RegistrationError(stream=stream, store=store, why=why)
    for store in sorted(short.used):
        why = f"{store} hears another live user of this registration: end it, or wait until it ends"
        yield events.RegistrationError(stream=stream, store=store, why=why)
    yield from taken(stream, short.taken)
    for store in sorted(short.silent):
        why = f"{store} does not answer, and without it too few do: start it"
        yield events.RegistrationError(stream=stream, store=store, why=why)
    if short.rest is not None:
        yield events.StoresForgot(
            stream=stream,
            forgot=tuple(sorted(short.forgot)),
            silent=tuple(sorted(short.silent)),
            end=short.rest.end,
            accept_loss=short.rest.with_margin().text(),
        )


def lost(begun: Begun) -> Iterator[events.LossAccepted]:
    """Yield what is lost of a stream as a life begins, since a person accepted that."""
    for one in begun.bridge.losses:
        if one.epoch == begun.epoch or one.below >= begun.log.end:
            yield events.LossAccepted(stream=begun.stream, first=one.first, last=one.below - 1)


def not_registered(rest: Acceptance | None, given: Acceptance | None) -> NotRegistered:
    """Return the error that nothing can be sent now.

    rest: what a person may accept as lost. given: what this life was given, which is not that.
    """
    if rest is None:
        return NotRegistered(
            "no stable set of stores is responsive: wait until enough are back, then send again"
        )
    of_another = "" if given is None else " (the one that was given is of another state)"
    return NotRegistered(
        "too few stores answer that have what was sent: start those that are down, and this source"
        f" goes on. If what they had is lost for ever: all below {rest.end} is left; the last"
        f" number that is known is {rest.below - 1}, and more may have been sent. A source that is"
        f" given accept_loss={rest.with_margin().text()!r}{of_another} goes on with that,"
        f" {MARGIN:,} numbers behind it: if you know of a later one, go on behind that"
    )


def taken(stream: int, stores: AbstractSet[str]) -> Iterator[events.RegistrationError]:
    """Yield for each of some stores that another source has the RegID there."""
    for store in sorted(stores):
        why = f"{store}: another source has this RegID there: give another, or 0 for one of its own"
        yield events.RegistrationError(stream=stream, store=store, why=why)


def empty_frame(stream: int, epoch: int, number: int, stable: int) -> bytes:
    """Return a frame that has no message, and only tells what is stable."""
    return encode(
        Frame(
            kind=FrameKind.MESSAGES,
            stream=stream,
            epoch=epoch,
            number=number,
            stable=stable,
        )
    )
