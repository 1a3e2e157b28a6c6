"""Behaviours of the bridges: positions move by compare-and-set, and plans end once.

See `proof.conformance.suite`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from onceq import errors
from onceq.manager.program import declare, show
from onceq.model import ops, stream_ops
from onceq.model.element import KillAnswer, RequestOutcome
from onceq.model.queue import Queue
from proof.conformance.ground import TOKEN, declared, refuses, same

if TYPE_CHECKING:
    from uuid import UUID

    from proof.conformance.ground import Connection, Repository

STREAM, OTHER = "00000000000000aa", "00000000000000bb"
OPEN = stream_ops.StreamOpen(name="ledger", topic="bars", session="07e1")


def holder(life: int) -> stream_ops.Holder:
    """Returns who holds the position in this life."""
    return stream_ops.Holder(name="ledger", topic="bars", session="07e1", life=life)


def move(life: int, at: tuple[int, int], to: tuple[int, int]) -> stream_ops.StreamMove:
    """Returns the move of a position, each an epoch and a number."""
    return stream_ops.StreamMove(
        holder=holder(life),
        epoch=at[0],
        number=at[1],
        stream=STREAM,
        to_epoch=to[0],
        to_number=to[1],
        token=TOKEN,
    )


def hold(at: stream_ops.StreamMove) -> stream_ops.StreamHold:
    """Returns what begins the transaction of a move."""
    return stream_ops.StreamHold(holder=at.holder, epoch=at.epoch, number=at.number, token=TOKEN)


def moved(connection: Connection, op: stream_ops.StreamMove) -> None:
    """Moves a position, in a transaction of its own."""
    connection.perform(ops.BeginWork())
    connection.perform(hold(op))
    connection.perform(op)
    connection.perform(ops.Commit())


def refused(connection: Connection, op: stream_ops.StreamMove) -> None:
    """Raises NotConformant unless the transaction of a move is refused, at its end."""
    connection.perform(ops.BeginWork())
    connection.perform(hold(replace(op, epoch=3, number=10, stream=STREAM)))
    refuses(connection, errors.Fenced, op)
    connection.perform(ops.Rollback())


def a_position_moves_from_where_it_is(place: Repository) -> None:
    """By compare-and-set of epoch and number, forward, in its stream, in the newest life."""
    one = declared(place)
    first = one.perform(OPEN)
    same((first.stream, first.epoch, first.number), (None, 0, 0))
    moved(one, move(first.life, (0, 0), (3, 10)))
    for wrong in (
        move(first.life, (0, 0), (3, 10)),
        move(first.life, (2, 10), (3, 20)),
        move(first.life, (3, 9), (3, 20)),
        move(first.life, (3, 10), (3, 10)),
        move(first.life, (3, 10), (2, 20)),
        replace(move(first.life, (3, 10), (3, 20)), stream=OTHER),
    ):
        refused(one, wrong)
    moved(one, move(first.life, (3, 10), (5, 20)))
    again = one.perform(replace(OPEN, life=first.life))
    same((again.life, again.stream, again.epoch, again.number), (first.life, STREAM, 5, 20))


def a_later_life_fences_the_former(place: Repository) -> None:
    """Neither its moves count, nor may it go on; what it had begun is refused at its end."""
    one, other = declared(place), place.session()
    first = one.perform(OPEN)
    at = move(first.life, (0, 0), (3, 10))
    one.perform(ops.BeginWork())
    one.perform(hold(at))
    second = other.perform(OPEN)
    same(second.life, first.life + 1)
    refuses(one, errors.Fenced, at)
    one.perform(ops.Rollback())
    one.perform(ops.BeginWork())
    refuses(one, errors.Fenced, hold(at))
    one.perform(ops.Rollback())
    refuses(one, errors.Fenced, replace(OPEN, life=first.life))
    moved(other, replace(at, holder=holder(second.life)))


def a_move_is_of_the_transaction_that_was_begun(place: Repository) -> None:
    """A handler that ended it is told."""
    one = declared(place)
    at = move(one.perform(OPEN).life, (0, 0), (3, 10))
    one.perform(ops.BeginWork())
    one.perform(hold(at))
    refuses(one, errors.HandlerMisuse, replace(at, token="2"))  # noqa: S106 # no secret
    one.perform(ops.Rollback())
    same(one.perform(replace(OPEN, life=at.holder.life)).number, 0)


def each_name_has_an_error_queue(place: Repository) -> None:
    """Made once; what is put there with a move is there if that commits."""
    one = declared(place)
    life = one.perform(OPEN).life
    one.perform(replace(OPEN, session="07e2"))
    bad = ops.Enqueue(queue="ledger.error", body=b"bad", own_transaction=False)
    for commits in (False, True):
        at = move(life, (0, 0), (3, 1))
        one.perform(ops.BeginWork())
        one.perform(hold(at))
        one.perform(bad)
        one.perform(at)
        if commits:
            one.perform(ops.Commit())
        else:
            one.perform(ops.Rollback())
    same([one.body for one in one.perform(ops.Peek(queue="ledger.error", n=5))], [b"bad"])


# --- relays ---------------------------------------------------------------------------------------

RELAY = stream_ops.RelayOpen(name="out", queue="orders", topic="bars", session="07e1")


def relay_of(place: Repository, bodies: list[bytes]) -> tuple[Connection, list[UUID]]:
    """Returns a session with a relay whose first life has begun, and the elements of its queue."""
    one = declared(place)
    eids = [one.perform(ops.Enqueue(queue="orders", body=body)) for body in bodies]
    one.perform(RELAY)
    begin(one, 5, 0)
    return one, eids


def begin(one: Connection, epoch: int, end: int, *there: int) -> int:
    """Begins a life of the relay."""
    return one.perform(
        stream_ops.RelayBegin(name="out", stream=STREAM, epoch=epoch, end=end, there=[*there])
    )


def plan(
    following: int, n: int = 10, *, epoch: int = 5, bytes_max: int = 100
) -> stream_ops.RelayPlan:
    """Returns the Op that plans from a number on."""
    return stream_ops.RelayPlan(
        name="out", stream=STREAM, epoch=epoch, next=following, n=n, bytes_max=bytes_max
    )


def finish(below: int, *voids: int, epoch: int = 5) -> stream_ops.RelayFinish:
    """Returns the Op that finishes what is below a number."""
    return stream_ops.RelayFinish(name="out", epoch=epoch, below=below, voids=[*voids])


def planned(one: Connection) -> list[tuple[int, bytes]]:
    """Returns the numbers that are planned, and their bodies."""
    found = one.perform(stream_ops.RelayPlanned(name="out"))
    return [(row.number, row.body) for row in found]


def numbers_are_planned_by_compare_and_set(place: Repository) -> None:
    """In the queue's order; for the life, the stream and the next number that the relay has."""
    one, _ = relay_of(place, [b"a", b"b", b"c"])
    urgent = one.perform(ops.Enqueue(queue="orders", body=b"u", priority=9))
    found = one.perform(plan(0, 2))
    same([(row.number, row.body) for row in found], [(0, b"u"), (1, b"a")])
    for wrong in (
        plan(0),
        plan(3),
        plan(2, epoch=4),
        plan(2, epoch=6),
        replace(plan(2), stream=OTHER),
    ):
        refuses(one, errors.Fenced, wrong)
    one.perform(plan(2))
    same(planned(one), [(0, b"u"), (1, b"a"), (2, b"b"), (3, b"c")])
    state = one.perform(RELAY)
    same((state.stream, state.epoch, state.next, state.lowest), (STREAM, 5, 4, 0))
    same(one.perform(ops.Kill(eid=urgent)), KillAnswer.TOO_LATE)
    same(one.perform(plan(4)), [])


def what_is_stable_ends_once(place: Repository) -> None:
    """It is done, and in history; what is void is planned again, under another number."""
    one, eids = relay_of(place, [b"a", b"b", b"c"])
    one.perform(plan(0))
    same(one.perform(finish(2, 1)), 1)
    same(one.perform(finish(2, 1)), 0)
    same(planned(one), [(2, b"c")])
    ended = one.perform(ops.FindRequests())
    same([(row.eid, row.outcome) for row in ended], [(eids[0], RequestOutcome.DONE)])
    same([row.body for row in one.perform(plan(3))], [b"b"])
    same(planned(one), [(2, b"c"), (3, b"b")])
    same(one.perform(finish(4)), 2)
    same((planned(one), one.run(show("orders")).depth), ([], 0))


def a_later_life_of_a_relay_plans_again_what_is_not_there(place: Repository) -> None:
    """And fences the former one: its plans, and its ends, as a number may be another element's."""
    one, _ = relay_of(place, [b"a", b"b", b"c"])
    one.perform(plan(0))
    same(begin(one, 7, 2, 0), 1)
    refuses(one, errors.Fenced, plan(2))
    same([row.body for row in one.perform(plan(2, epoch=7))], [b"b", b"c"])
    refuses(one, errors.Fenced, finish(9))
    for epoch in (6, 7):
        stale = stream_ops.RelayBegin(name="out", stream=STREAM, epoch=epoch, end=9, there=[])
        refuses(one, errors.Fenced, stale)
    same(planned(one), [(2, b"b"), (3, b"c")])
    for stream, end in ((OTHER, 4), (STREAM, 1)):
        other = stream_ops.RelayBegin(name="out", stream=stream, epoch=8, end=end, there=[])
        refuses(one, errors.IllegalState, other)
    same(one.perform(finish(4, epoch=7)), 2)


def what_is_too_large_to_be_sent_fails(place: Repository) -> None:
    """And hides nothing; nor does what has expired, or owes a reply, or waits for its time."""
    queue: Queue[bytes, bytes] = Queue("orders", bytes, bytes)
    one = declared(place, queue)
    one.perform(ops.Enqueue(queue="orders", body=b"x" * 101))
    one.perform(ops.Enqueue(queue="orders", body=b"old", expires_at=place.now()))
    one.perform(
        ops.Enqueue(queue="orders", body=b"late", not_before=place.now().replace(year=2100))
    )
    one.perform(ops.Enqueue(queue="orders", body=b"ok"))
    place.advance(60)
    one.perform(RELAY)
    begin(one, 5, 0)
    same([row.body for row in one.perform(plan(0, 1))], [b"ok"])
    (held,) = one.perform(ops.LookUp(state="held"))
    same((held.queue, held.code), ("orders.error", "TooLarge"))


def who_decides_may_forget_a_name(place: Repository) -> None:
    """What was planned is given back; positions begin anew."""
    one, eids = relay_of(place, [b"a"])
    one.perform(plan(0))
    forget = stream_ops.StreamForget(name="out")
    same([one.perform(forget), one.perform(forget)], [True, False])
    same(one.perform(ops.Kill(eid=eids[0])), KillAnswer.KILLED)
    first = one.perform(OPEN)
    moved(one, move(first.life, (0, 0), (3, 10)))
    same([one.perform(replace(forget, name="ledger")) for _ in range(2)], [True, False])
    same(one.perform(OPEN).number, 0)


def a_relay_is_of_one_durable_queue(place: Repository) -> None:
    """And of one stream: under its name nothing else is relayed."""
    one, _ = relay_of(place, [])
    refuses(one, errors.QueueNotFound, replace(RELAY, name="other", queue="nowhere"))
    one.run(declare(Queue("volatile", bytes, bytes, durable=False)))
    refuses(one, errors.IllegalState, replace(RELAY, name="other", queue="volatile"))
    refuses(one, errors.IllegalState, replace(RELAY, topic="trades"))
    refuses(one, errors.IllegalState, replace(RELAY, session="07e2"))
