"""Ways to break a valid history, one for each clause of G1 to G8 and G12: the table of corruptions.

Used by the part `history` and by the tests of the checker. Each takes a wreck, changes one thing at
a random place, and returns the guarantee and the rid that must be named. Those about what
connect shows are in `stability`, those about the final state in `ends`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias

from msgspec.structs import replace

from onceq.history import check
from onceq.history import events as ev
from proof.history.clients import invent
from proof.history.ends import ENDS
from proof.history.invention import ABORT_LIMIT
from proof.history.stability import STABILITY
from proof.history.wreck import NoPlaceForIt, Wreck, is_satisfied

if TYPE_CHECKING:
    from collections.abc import Callable

    from onceq.history import Violation

Named: TypeAlias = "tuple[str, str | None]"
Corruption: TypeAlias = "Callable[[Wreck], Named]"

REQUESTS = 120
"""Requests of a history to be corrupted; some have no place for a kind: then the next is used."""
TRIES_MAX = 50


# --- G1: matching -----------------------------------------------------------------------------


def _a_reply_to_what_was_never_sent(wreck: Wreck) -> Named:
    received = wreck.event(ev.Received)
    wreck.after(received, replace(received, rid="never", eid="e-never", answers=None))
    return "G1", "never"


def _the_content_answers_another(wreck: Wreck) -> Named:
    received = wreck.event(ev.Received, lambda one: one.answers is not None)
    wreck.change(received, answers="another")
    return "G1", received.rid


def _a_reply_out_of_turn(wreck: Wreck) -> Named:
    later = wreck.event(ev.Received, lambda one: wreck.is_alone(one.rid))
    old = [one for one in wreck.before(later) if type(one) is ev.Received and one.rid != later.rid]
    earlier = wreck.pick(old)
    wreck.after(later, replace(earlier, epoch=later.epoch))
    return "G1", earlier.rid


def _a_reply_after_it_was_acknowledged(wreck: Wreck) -> Named:
    acknowledged = wreck.event(ev.Acknowledged)
    rid = wreck.pick(acknowledged.rids)
    again = replace(wreck.replies(rid)[0], epoch=acknowledged.epoch)
    wreck.after(acknowledged, again)
    return "G1", rid


def _one_reply_for_two(wreck: Wreck) -> Named:
    later = wreck.event(ev.Received, lambda one: len(wreck.replies(one.rid)) == 1)
    earlier = wreck.pick(
        one for one in wreck.before(later) if type(one) is ev.Received and one.rid != later.rid
    )
    wreck.change(later, eid=earlier.eid)
    return "G1", later.rid


# --- G2, G3: exactly once, and failure is final -----------------------------------------------


def _told_another_outcome(wreck: Wreck) -> Named:
    received = wreck.event(ev.Received, lambda one: one.outcome == "done")
    for one in wreck.replies(received.rid):
        wreck.change(one, outcome="failed")
    return "G2", received.rid


def _done_without_an_execution(wreck: Wreck) -> Named:
    row = wreck.ended("done")
    wreck.drop(lambda one: one.eid == row.eid, ev.Executed, ev.Started, ev.Aborted)
    return "G2" if not row.aborts else "G7", row.rid


def _executed_after_its_failure_was_told(wreck: Wreck) -> Named:
    row = wreck.place(
        lambda one: (
            one.role == "request"
            and one.outcome in {"failed", "expired"}
            and bool(wreck.replies(one.rid))
        )
    )
    _execute(wreck, row, max(one.at for one in wreck.replies(row.rid)), times=1)
    return "G3", row.rid


def _executed_after_it_was_cancelled(wreck: Wreck) -> Named:
    kill = wreck.event(ev.KillAnswered, lambda one: one.answer == "KILLED")
    row = wreck.place(lambda one: one.eid == kill.eid)
    _execute(wreck, row, kill.at, times=2)
    return "G3", kill.rid


def _execute(wreck: Wreck, row: ev.Place, after: int, *, times: int) -> None:
    server = wreck.event(ev.Executed)
    for n in range(1, times + 1):
        who: dict[str, Any] = {
            "actor": server.actor,
            "rid": row.rid,
            "eid": row.eid,
            "at": after + n,
        }
        wreck.history.files[server.actor] += [ev.Started(**who), ev.Executed(**who)]


def _a_request_redriven_as_itself(wreck: Wreck) -> Named:
    redriven = wreck.event(ev.Redriven, lambda one: one.new_eid != one.eid)
    wreck.change(redriven, new_eid=redriven.eid, new_rid=redriven.rid)
    return "G3", redriven.rid


def _redriven_twice(wreck: Wreck) -> Named:
    redriven = wreck.event(ev.Redriven, lambda one: one.new_eid != one.eid)
    wreck.after(redriven, redriven)
    return "G3", redriven.rid


def _redriven_though_done(wreck: Wreck) -> Named:
    row, other = wreck.ended("done"), wreck.event(ev.Redriven)
    wreck.after(other, replace(other, rid=row.rid, eid=row.eid, new_rid="n", new_eid="n"))
    return "G3", row.rid


def _redriven_out_of_nothing(wreck: Wreck) -> Named:
    other = wreck.event(ev.Redriven)
    wreck.after(other, replace(other, rid="none", eid="e-none"))
    return "G3", "none"


def _a_datagram_redriven_as_another(wreck: Wreck) -> Named:
    redriven = wreck.event(ev.Redriven, lambda one: one.new_eid == one.eid)
    wreck.change(redriven, new_eid="e-other")
    return "G3", redriven.rid


# --- G4, G5: conservation, and the reply is kept ----------------------------------------------


def _sent_as_another_element(wreck: Wreck) -> Named:
    sent = wreck.event(ev.SendOk)
    wreck.change(sent, eid="another")
    return "G4", sent.rid


def _a_refused_send_took_effect(wreck: Wreck) -> Named:
    row, begun = wreck.ended("expired"), wreck.event(ev.SendBegun)
    news = replace(begun, rid="refused", epoch=0)
    failed = ev.SendFailed(
        registrant=begun.registrant, thread=begun.thread, epoch=0, rid="refused", unknown=False
    )
    wreck.at_end(begun, news, failed)
    who = {"registrant": begun.registrant, "thread": begun.thread, "rid": "refused"}
    wreck.add(row, eid="e-refused", **who)
    return "G4", "refused"


def _received_again_it_differs(wreck: Wreck) -> Named:
    again = wreck.event(ev.Rereceived)
    wreck.change(again, digest="other")
    return "G5", again.rid


def _never_handed_out(wreck: Wreck) -> Named:
    received = wreck.event(ev.Received, lambda one: is_satisfied(wreck, one))
    wreck.drop(lambda one: one.rid == received.rid, ev.Received, ev.Rereceived)
    return "G5", received.rid


def _gone_before_it_was_acknowledged(wreck: Wreck) -> Named:
    received = wreck.event(ev.Received)
    who: dict[str, Any] = {
        "registrant": received.registrant,
        "thread": received.thread,
        "epoch": received.epoch,
    }
    wreck.after(received, ev.ReplyMissing(rid=received.rid, **who))
    return "G5", received.rid


# --- G7: the abort limit ----------------------------------------------------------------------


def _an_innocent_is_convicted(wreck: Wreck) -> Named:
    row = wreck.ended("failed")
    wreck.change(wreck.event(ev.SendBegun, lambda one: one.rid == row.rid), expects="done")
    for one in wreck.all(ev.SendBegun):
        if one.rid == row.rid:
            wreck.change(one, expects="done")
    return "G7", row.rid


def _a_poison_is_done(wreck: Wreck) -> Named:
    row = wreck.ended("done")
    for one in wreck.all(ev.SendBegun):
        if one.rid == row.rid:
            wreck.change(one, expects="failed")
    return "G7", row.rid


def _executed_beyond_the_limit(wreck: Wreck) -> Named:
    executed = wreck.event(ev.Executed)
    wreck.change(executed, attempt=ABORT_LIMIT + 1)
    return "G7", executed.rid


def _executed_for_ever(wreck: Wreck) -> Named:
    executed = wreck.event(ev.Executed)
    wreck.after(executed, *[executed] * (len(wreck.all(ev.Fault)) + 25))
    return "G7", executed.rid


def _a_charge_that_nothing_started(wreck: Wreck) -> Named:
    row = wreck.place(lambda one: one.state == "finished" and one.aborts > 0)
    wreck.drop(lambda one: one.eid == row.eid, ev.Started)
    return "G7", row.rid


def _an_exception_that_was_not_charged(wreck: Wreck) -> Named:
    row = wreck.ended("done")
    extra = len(wreck.all(ev.Fault)) + row.aborts + 1
    executed = wreck.event(ev.Executed, lambda one: one.eid == row.eid)
    raised = ev.Aborted(actor=executed.actor, rid=row.rid, eid=row.eid, code="ValueError")
    wreck.after(executed, *[raised] * extra)
    return "G7", row.rid


def _tried_again_beyond_the_limit(wreck: Wreck) -> Named:
    row = wreck.ended("done")
    executed = wreck.event(ev.Executed, lambda one: one.eid == row.eid)
    retried = ev.Aborted(
        actor=executed.actor, rid=row.rid, eid=row.eid, code=ev.RETRY, excused=True
    )
    wreck.after(executed, *[retried] * (len(wreck.all(ev.Fault)) + 12))
    return "G7", row.rid


# --- G8: kill ---------------------------------------------------------------------------------


def _a_kill_says_too_late(wreck: Wreck) -> Named:
    kill = wreck.event(ev.KillAnswered, lambda one: one.answer == "KILLED")
    wreck.change(kill, answer="TOO_LATE")
    return "G8", kill.rid


def _a_kill_says_killed(wreck: Wreck) -> Named:
    kill = wreck.event(ev.KillAnswered, lambda one: one.answer == "TOO_LATE")
    wreck.change(kill, answer="KILLED")
    return "G8", kill.rid


def _a_kill_does_not_find(wreck: Wreck) -> Named:
    sent = {one.rid: one.at for one in wreck.all(ev.SendOk)}
    begun = wreck.event(ev.KillBegun, lambda one: sent.get(one.rid, one.at) < one.at)
    kill = wreck.event(ev.KillAnswered, lambda one: one.rid == begun.rid and one.at > begun.at)
    wreck.change(kill, answer="NOT_FOUND")
    return "G8", kill.rid


def _cancelled_by_nobody(wreck: Wreck) -> Named:
    row = wreck.ended("cancelled")
    wreck.drop(lambda one: one.eid == row.eid, ev.KillBegun, ev.KillAnswered)
    return "G8", row.rid


def _cancelled_by_a_kill_that_raised(wreck: Wreck) -> Named:
    row = wreck.ended("cancelled")
    for one in wreck.all(ev.KillAnswered):
        if one.eid == row.eid:
            fields: dict[str, Any] = {
                "at": one.at,
                "actor": one.actor,
                "rid": one.rid,
                "eid": one.eid,
            }
            wreck.after(one, ev.KillFailed(unknown=False, **fields))
    wreck.drop(lambda one: one.eid == row.eid, ev.KillAnswered)
    return "G8", row.rid


CORRUPTIONS: dict[str, Corruption] = {
    made.__name__.strip("_").replace("_", " "): made
    for made in (
        _a_reply_to_what_was_never_sent,
        _the_content_answers_another,
        _a_reply_out_of_turn,
        _a_reply_after_it_was_acknowledged,
        _one_reply_for_two,
        _told_another_outcome,
        _done_without_an_execution,
        _executed_after_its_failure_was_told,
        _executed_after_it_was_cancelled,
        _a_request_redriven_as_itself,
        _redriven_twice,
        _redriven_though_done,
        _redriven_out_of_nothing,
        _a_datagram_redriven_as_another,
        _sent_as_another_element,
        _a_refused_send_took_effect,
        _received_again_it_differs,
        _never_handed_out,
        _gone_before_it_was_acknowledged,
        _an_innocent_is_convicted,
        _a_poison_is_done,
        _executed_beyond_the_limit,
        _executed_for_ever,
        _a_charge_that_nothing_started,
        _an_exception_that_was_not_charged,
        _tried_again_beyond_the_limit,
        _a_kill_says_too_late,
        _a_kill_says_killed,
        _a_kill_does_not_find,
        _cancelled_by_nobody,
        _cancelled_by_a_kill_that_raised,
        *STABILITY,
        *ENDS,
    )
}
"""Every way, by its name."""


def corrupted(name: str, seed: int | str) -> tuple[Named, list[Violation], list[Violation]]:
    """Returns what had to be found, what was found before the corruption, and what after it."""
    for turn in range(TRIES_MAX):
        history = invent(seed, REQUESTS, f"t{turn}-", effects_each=2)
        before = check(history.events(), history.final())
        try:
            wanted = CORRUPTIONS[name](Wreck(history, f"{seed} {turn} {name}"))
        except NoPlaceForIt:
            continue
        return wanted, before, check(history.events(), history.final())
    raise NoPlaceForIt(name)
