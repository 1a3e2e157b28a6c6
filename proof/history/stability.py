"""Ways to break what a connect shows, and what an older life does (G6); see `corruptions`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias

from msgspec.structs import replace

from onceq.history import events as ev
from proof.history.wreck import NoPlaceForIt, Wreck, is_satisfied

if TYPE_CHECKING:
    from collections.abc import Callable

Named: TypeAlias = "tuple[str, str | None]"


def _connect_forgets_the_send(wreck: Wreck) -> Named:
    connected = wreck.event(ev.Connected, lambda one: _shows_what_was_acked(wreck, one))
    wreck.change(connected, s_rid=None)
    return "G6", None


def _shows_what_was_acked(wreck: Wreck, connected: ev.Connected) -> bool:
    before = wreck.before(connected)
    return any(type(one) is ev.SendOk and one.rid == connected.s_rid for one in before)


def _connect_shows_an_older_send(wreck: Wreck) -> Named:
    connected = wreck.event(ev.Connected, lambda one: one.s_rid is not None)
    older = [
        one.rid
        for one in wreck.before(connected)
        if type(one) is ev.SendOk and one.rid != connected.s_rid
    ]
    rid = wreck.pick(older[:-1])  # the last may be shown after a doubt
    wreck.change(connected, s_rid=rid)
    return "G6", rid


def _connect_shows_what_was_never_received(wreck: Wreck) -> Named:
    connected = wreck.event(ev.Connected)
    wreck.change(connected, r_rid="never")
    return "G6", "never"


def _connect_forgets_the_checkpoint(wreck: Wreck) -> Named:
    connected = wreck.event(ev.Connected, lambda one: _shows_a_checkpoint(wreck, one))
    wreck.change(connected, ckpt=b"another")
    return "G6", connected.r_rid


def _connect_forgets_the_receive(wreck: Wreck) -> Named:
    connected = wreck.event(ev.Connected, lambda one: _shows_a_checkpoint(wreck, one))
    wreck.change(connected, r_rid=None, ckpt=None)
    return "G6", None


def _shows_a_checkpoint(wreck: Wreck, connected: ev.Connected) -> bool:
    """Whether the last that happened before was a receive with a checkpoint."""
    before = wreck.before(connected)
    last = before[-1] if before else None
    return type(last) is ev.Received and last.ckpt is not None and last.rid == connected.r_rid


def _an_epoch_twice(wreck: Wreck) -> Named:
    connected = wreck.event(ev.Connected)
    wreck.after(connected, replace(connected, was="connected"))
    return "G6", None


def _new_again(wreck: Wreck) -> Named:
    wreck.change(wreck.event(ev.Connected, lambda one: one.epoch > 1), was="new")
    return "G6", None


def _disconnected_without_cause(wreck: Wreck) -> Named:
    connected = wreck.event(ev.Connected, lambda one: one.was == "connected")
    wreck.change(connected, was="disconnected")
    return "G6", None


def _no_tombstone(wreck: Wreck) -> Named:
    ended = wreck.event(ev.Disconnected)
    connected = wreck.following(ended)[0]
    if type(connected) is not ev.Connected:
        raise NoPlaceForIt
    wreck.change(connected, was="connected")
    return "G6", None


def _an_older_life_reads(wreck: Wreck) -> Named:
    connected = wreck.event(ev.Connected, lambda one: one.epoch > 1)
    own = [one for one in wreck.before(connected) if type(one) is ev.Received]
    last = wreck.pick(own[-1:])
    epoch = wreck.before(connected)[-1].epoch
    wreck.after(connected, *[replace(last, epoch=epoch)] * 2)
    return "G6", last.rid


def _a_send_that_was_shown_not_to_be(wreck: Wreck) -> Named:
    row = wreck.ended("expired")
    begun = wreck.event(ev.SendBegun, lambda one: one.alone and is_satisfied(wreck, one))
    own = [*wreck.before(begun), begun, *wreck.following(begun)]
    shown = [one for one in own if type(one) is ev.SendOk][-1].rid
    who: dict[str, Any] = {"registrant": begun.registrant, "thread": begun.thread}
    life = ev.Connected(epoch=1, was="connected", s_rid=shown, r_rid=None, ckpt=None, **who)
    wreck.at_end(begun, replace(begun, rid="void", epoch=0), life)
    wreck.add(row, eid="e-void", rid="void", **who)
    return "G6", "void"


STABILITY: tuple[Callable[[Wreck], Named], ...] = (
    _connect_forgets_the_send,
    _connect_shows_an_older_send,
    _connect_shows_what_was_never_received,
    _connect_forgets_the_checkpoint,
    _connect_forgets_the_receive,
    _an_epoch_twice,
    _new_again,
    _disconnected_without_cause,
    _no_tombstone,
    _an_older_life_reads,
    _a_send_that_was_shown_not_to_be,
)
"""Every way to break what is stable."""
