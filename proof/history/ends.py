"""Ways to break the final state of a valid history; see `proof.history.corruptions`."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

from msgspec.structs import replace

from onceq.history import events as ev
from proof.history.invention import ABORT_LIMIT

if TYPE_CHECKING:
    from onceq.history.events import Effect, Place
    from proof.history.wreck import Wreck

Named: TypeAlias = "tuple[str, str | None]"


# --- G2: the ledger ---------------------------------------------------------------------------


def _an_effect(wreck: Wreck) -> Effect:
    return wreck.pick(wreck.history.effects)


def _an_effect_twice(wreck: Wreck) -> Named:
    effect = _an_effect(wreck)
    wreck.history.effects.append(effect)
    return "G2", effect.rid


def _no_effect(wreck: Wreck) -> Named:
    rid = _an_effect(wreck).rid
    wreck.history.effects[:] = [one for one in wreck.history.effects if one.rid != rid]
    return "G2", rid


def _half_of_its_effects(wreck: Wreck) -> Named:
    effect = _an_effect(wreck)
    wreck.history.effects.remove(effect)
    return "G2", effect.rid


def _effects_of_two_transactions(wreck: Wreck) -> Named:
    effect = _an_effect(wreck)
    wreck.history.effects[wreck.history.effects.index(effect)] = replace(effect, xid="another")
    return "G2", effect.rid


def _an_effect_of_what_failed(wreck: Wreck) -> Named:
    row = wreck.ended("failed", "expired")
    wreck.effect(row)
    return "G2", row.rid


def _an_effect_of_nothing(wreck: Wreck) -> Named:
    wreck.history.effects.append(ev.Effect(key="booked", rid="none", eid="e-none"))
    return "G2", "none"


def _an_effect_of_what_was_killed(wreck: Wreck) -> Named:
    row = wreck.ended("cancelled")
    wreck.effect(row)
    return "G8", row.rid


# --- G3, G4: places ---------------------------------------------------------------------------


def _redriven_without_a_link(wreck: Wreck) -> Named:
    row = wreck.place(lambda one: one.correlation_id is not None)
    redriven = wreck.event(ev.Redriven, lambda one: one.new_eid == row.eid)
    wreck.turn(row, correlation_id=None)
    return "G3", redriven.rid


def _acknowledged_and_lost(wreck: Wreck) -> Named:
    row = wreck.ended("done", "failed", "cancelled", "expired")
    wreck.remove(lambda one: one.rid == row.rid)
    return "G4", row.rid


def _a_datagram_lost(wreck: Wreck) -> Named:
    row = wreck.place(lambda one: one.role == "datagram" and one.correlation_id is None)
    wreck.remove(lambda one: one.rid == row.rid)
    return "G4", row.rid


def _finished_twice(wreck: Wreck) -> Named:
    row = wreck.ended("done", "expired")
    wreck.add(row)
    return "G4", row.rid


def _finished_and_still_there(wreck: Wreck) -> Named:
    row = wreck.ended("done", "failed", "cancelled", "expired")
    wreck.add(row, state="queued", outcome=None)
    return "G4", row.rid


def _one_rid_two_elements(wreck: Wreck) -> Named:
    row = wreck.ended("done", "expired")
    wreck.add(row, eid="e-other")
    return "G4", row.rid


def _two_replies_wait(wreck: Wreck) -> Named:
    row = wreck.place(lambda one: one.role == "reply")
    wreck.add(row, eid="e-other")
    return "G4", row.rid


def _replied_without_a_history_row(wreck: Wreck) -> Named:
    reply = wreck.place(lambda one: one.role == "reply")
    wreck.remove(lambda one: one.rid == reply.rid and one.role == "request")
    return "G4", reply.rid


def _there_and_never_sent(wreck: Wreck) -> Named:
    wreck.add(wreck.ended("expired"), rid="stranger", eid="e-stranger")
    return "G4", "stranger"


def _there_of_a_client_that_never_was(wreck: Wreck) -> Named:
    wreck.add(wreck.ended("expired"), registrant="nobody", rid="stranger", eid="e-stranger")
    return "G4", "stranger"


def _a_datagram_that_nobody_enqueued(wreck: Wreck) -> Named:
    wreck.add(
        wreck.ended("expired"), registrant=None, thread=None, rid="d", eid="e", role="datagram"
    )
    return "G4", "d"


def _failed_and_not_in_its_error_queue(wreck: Wreck) -> Named:
    held = wreck.place(lambda one: one.state == "held")
    wreck.remove(lambda one: one is held)
    return "G4", held.rid


def _done_and_in_an_error_queue(wreck: Wreck) -> Named:
    row = wreck.ended("done", "cancelled", "expired")
    wreck.add(row, role="failed", state="held", outcome=None)
    return "G4", row.rid


def _in_two_error_queues(wreck: Wreck) -> Named:
    held = wreck.place(lambda one: one.state == "held")
    wreck.add(held)
    return "G4", held.rid


def _held_and_never_failed(wreck: Wreck) -> Named:
    held = wreck.place(lambda one: one.state == "held")
    wreck.add(held, rid="none", eid="e-none")
    return "G4", "none"


def _a_reply_to_nobody(wreck: Wreck) -> Named:
    reply = wreck.place(lambda one: one.role == "reply")
    wreck.turn(reply, registrant=None, thread=None)
    return "G4", reply.rid


def _redriven_and_still_held(wreck: Wreck) -> Named:
    redriven = wreck.event(ev.Redriven, lambda one: one.new_eid != one.eid)
    row = wreck.place(lambda one: one.eid == redriven.eid)
    wreck.add(row, role="failed", state="held", outcome=None)
    return "G4", redriven.rid


def _executed_and_nowhere(wreck: Wreck) -> Named:
    executed = wreck.event(ev.Executed)
    wreck.after(executed, replace(executed, rid="none", eid="e-none"))
    return "G4", "none"


# --- G2, G5: the reply ------------------------------------------------------------------------


def _a_reply_that_history_denies(wreck: Wreck) -> Named:
    row = wreck.place(lambda one: one.role == "reply" and one.outcome == "done")
    wreck.turn(row, outcome="failed")
    return "G2", row.rid


def _replied_and_not_finished(wreck: Wreck) -> Named:
    reply = wreck.place(lambda one: one.role == "reply")
    row = wreck.place(lambda one: one.rid == reply.rid and one.role == "request")
    wreck.turn(row, state="executing", outcome=None)
    return "G2", row.rid


def _its_reply_is_gone(wreck: Wreck) -> Named:
    row = wreck.place(lambda one: one.role == "reply")
    wreck.remove(lambda one: one is row)
    return "G5", row.rid


def _another_reply_is_kept(wreck: Wreck) -> Named:
    row = wreck.place(lambda one: one.role == "reply")
    wreck.turn(row, eid="e-other")
    return "G5", row.rid


# --- G7, G12 ----------------------------------------------------------------------------------


def _failed_before_the_limit(wreck: Wreck) -> Named:
    row = wreck.place(_is_counted)
    wreck.turn(row, aborts=ABORT_LIMIT - 1)
    return "G7", row.rid


def _is_counted(row: Place) -> bool:
    failed = row.state == "finished" and row.outcome == "failed"
    return failed and row.code == "ValueError" and row.role == "request"


def _charged_beyond_the_limit(wreck: Wreck) -> Named:
    row = wreck.place(_is_counted)
    wreck.turn(row, aborts=ABORT_LIMIT + 1)
    return "G7", row.rid


def _charged_for_nothing(wreck: Wreck) -> Named:
    row = wreck.ended("done")
    wreck.turn(row, aborts=row.aborts + 1 + len(wreck.all(ev.Fault)))
    return "G7", row.rid


def _an_abort_forgotten(wreck: Wreck) -> Named:
    row = wreck.place(
        lambda one: one.state == "finished" and one.aborts > 0 and one.code != "Reject"
    )
    wreck.turn(row, aborts=row.aborts - 1)
    return "G7", row.rid


def _never_finished(wreck: Wreck) -> Named:
    row = wreck.ended("done", "expired", "cancelled")
    wreck.turn(row, state="executing", outcome=None)
    return "G12", row.rid


def _a_datagram_never_finished(wreck: Wreck) -> Named:
    row = wreck.ended("done", "expired", role="datagram")
    wreck.turn(row, state="queued", outcome=None)
    return "G12", row.rid


ENDS = (
    _an_effect_twice,
    _no_effect,
    _half_of_its_effects,
    _effects_of_two_transactions,
    _an_effect_of_what_failed,
    _an_effect_of_nothing,
    _an_effect_of_what_was_killed,
    _redriven_without_a_link,
    _acknowledged_and_lost,
    _a_datagram_lost,
    _finished_twice,
    _finished_and_still_there,
    _one_rid_two_elements,
    _two_replies_wait,
    _replied_without_a_history_row,
    _there_and_never_sent,
    _there_of_a_client_that_never_was,
    _a_datagram_that_nobody_enqueued,
    _failed_and_not_in_its_error_queue,
    _done_and_in_an_error_queue,
    _in_two_error_queues,
    _redriven_and_still_held,
    _held_and_never_failed,
    _a_reply_to_nobody,
    _executed_and_nowhere,
    _a_reply_that_history_denies,
    _replied_and_not_finished,
    _its_reply_is_gone,
    _another_reply_is_kept,
    _failed_before_the_limit,
    _charged_beyond_the_limit,
    _charged_for_nothing,
    _an_abort_forgotten,
    _never_finished,
    _a_datagram_never_finished,
)
"""Every way to break a final state."""
