"""Behaviours of periodic requests: one request a tick, whoever ticks (ADR 39).

See `proof.conformance.suite`.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Final

from onceq import errors
from onceq.manager import ticking
from onceq.model import ops
from onceq.model.element import Charge, Fate
from onceq.model.periodic import Missed, Periodic, PeriodicInfo
from onceq.model.periodic_ops import (
    CreatePeriodic,
    DueTick,
    DueTicks,
    HoldTick,
    ListPeriodics,
    Now,
    Tick,
    Ticked,
    TickState,
)
from onceq.model.queue import Limits, Queue
from proof.conformance.ground import (
    ORDERS,
    PROCESS,
    NotConformant,
    abort,
    claim,
    declared,
    execute,
    live,
    refuses,
    same,
)

if TYPE_CHECKING:
    from proof.conformance.ground import Connection, Repository

HOUR: Final = 3600.0
GONE: Final = Ticked(state=TickState.GONE, error=None, is_news=False)


def _hourly(**how: Any) -> Periodic[bytes]:
    return Periodic("hourly", how.pop("queue", ORDERS), b"x", "0 * * * *", **how)


def _midnight(place: Repository) -> None:
    """Moves the time on until just after midnight."""
    day_s = (place.now() - _at(place, 0)).total_seconds()
    place.advance(24 * HOUR - day_s)


def _declared(place: Repository, **how: Any) -> Connection:
    """Returns a session; the queue and an hourly request are declared, just after midnight."""
    _midnight(place)
    connection = declared(place, how.get("queue", ORDERS))
    _holds(connection.run(ticking.declare(_hourly(**how))))
    return connection


def _holds(found: object) -> None:
    if found is not True:
        raise NotConformant(f"{found!r}, not True")


def _fails(found: object) -> None:
    if found is not False:
        raise NotConformant(f"{found!r}, not False")


def _rids(connection: Connection) -> list[str]:
    return [one.rid for one in connection.perform(ops.Peek(queue="orders", n=1000))]


def _info(connection: Connection) -> PeriodicInfo:
    return connection.run(ticking.show("hourly"))


def _at(place: Repository, hours: int) -> datetime:
    return place.now().replace(hour=0, minute=0, second=0, microsecond=0) + timedelta(hours=hours)


def _op(due: DueTick, *, send: bool = True) -> Tick:
    (first, *_) = due.times.plan(due.next_at, due.now)
    at = first.at if send else None
    return Tick(name=due.name, revision=due.revision, next_at=first.due, tick_at=at, to=first.to)


def a_tick_is_one_request(place: Repository) -> None:
    """Not before its time, once however many look, with a rid that tells it."""
    connection = _declared(place)
    same(connection.run(ticking.tend()), 0)
    same(connection.perform(DueTicks()), [])
    place.advance(HOUR)
    (due,) = connection.perform(DueTicks())
    same(connection.perform(_op(due)).state, TickState.SENT)
    same(connection.perform(_op(due)), GONE)
    same(place.session().run(ticking.tend()), 0)
    same(_rids(connection), [f"hourly@{_at(place, 1):%Y-%m-%dT%H:%M:%SZ}"])
    (sent,) = connection.perform(ops.Peek(queue="orders", n=10))
    same((sent.body, sent.priority, sent.owes_reply), (b"x", 4, False))
    info = _info(connection)
    same((info.ticked_at, info.next_at, info.lag_s), (_at(place, 1), _at(place, 2), 0.0))
    same((info.eid, info.is_under_way, info.error), (sent.eid, True, None))


def _until_tick(connection: Connection, program: ops.Program[int]) -> Tick:
    """Runs a Program until it is about to tick."""
    op: ops.Op[Any] = next(program)
    while not isinstance(op, Tick):
        op = program.send(connection.perform(op))
    return op


def two_who_tend_at_once_send_one(place: Repository) -> None:
    """Both have seen what is due before either ticks."""
    connection, other = _declared(place, overlap=True), place.session()
    place.advance(HOUR)
    programs = (ticking.tend(), ticking.tend())
    first = _until_tick(connection, programs[0])
    second = _until_tick(other, programs[1])
    same(connection.perform(first).state, TickState.SENT)
    same(other.perform(second), GONE)
    same(len(_rids(connection)), 1)


def a_tick_that_failed_to_commit_is_none(place: Repository) -> None:
    """In a transaction that is rolled back: neither the request nor the move is left."""
    connection = _declared(place)
    place.advance(HOUR)
    (due,) = connection.perform(DueTicks())
    connection.perform(ops.BeginWork())
    same(connection.perform(_op(due)).state, TickState.SENT)
    connection.perform(ops.Rollback())
    same(_rids(connection), [])
    same(connection.perform(DueTicks())[0].next_at, due.next_at)
    same(connection.run(ticking.tend()), 1)


def nothing_ticks_before_its_time(place: Repository) -> None:
    """Whatever a process computed: the repository's clock decides."""
    connection = _declared(place)
    place.advance(HOUR)
    (due,) = connection.perform(DueTicks())
    early = Tick(
        name=due.name,
        revision=due.revision,
        next_at=due.next_at,
        tick_at=_at(place, 2),
        to=_at(place, 3),
    )
    same(connection.perform(early), GONE)
    same(connection.run(ticking.tend()), 1)
    place.advance(-HOUR)
    same(connection.run(ticking.tend()), 0)
    place.advance(HOUR)
    same(connection.run(ticking.tend()), 0)
    same(len(_rids(connection)), 1)


def missed_ticks_are_one_all_or_none(place: Repository) -> None:
    """Of five that were missed: the last; each; or, as it is late, none."""
    _midnight(place)
    connection = declared(place)
    policies: tuple[Missed, ...] = ("last", "all", "none")
    for missed in policies:
        one = Periodic(missed, ORDERS, b"x", "0 * * * *", missed=missed, overlap=True)
        _holds(connection.run(ticking.declare(one)))
    place.advance(5.5 * HOUR)
    same(connection.run(ticking.tend()), 6)
    found = sorted(_rids(connection))
    hours = [f"{_at(place, n):%Y-%m-%dT%H:%M:%SZ}" for n in range(1, 6)]
    same(found, [*(f"all@{hour}" for hour in hours), f"last@{hours[-1]}"])
    same({one.next_at for one in connection.perform(ListPeriodics())}, {_at(place, 6)})


def one_waits_for_the_other(place: Repository) -> None:
    """Without overlap none is sent while the last one waits, runs or is given back."""
    connection = _declared(place)
    place.advance(HOUR)
    same(connection.run(ticking.tend()), 1)
    place.advance(3 * HOUR)
    same(connection.perform(DueTicks()), [])
    info = _info(connection)
    forced = Tick(
        name="hourly",
        revision=info.revision,
        next_at=info.next_at,
        tick_at=info.next_at,
        to=_at(place, 9),
    )
    same(connection.perform(forced).state, TickState.UNDER_WAY)
    life = live(connection)
    (element,) = claim(connection, life)
    same(connection.perform(DueTicks()), [])
    same(abort(connection, life, element, Charge.RELEASE), Fate.RETURNED)
    same(connection.run(ticking.tend()), 0)
    (element,) = claim(connection, life)
    execute(connection, life, element)
    same(connection.run(ticking.tend()), 1)
    same(_rids(connection), [f"hourly@{_at(place, 4):%Y-%m-%dT%H:%M:%SZ}"])


def one_that_failed_holds_up_nothing(place: Repository) -> None:
    """It is in an error queue, and that is no reason to wait."""
    once: Queue[Any, Any] = Queue("orders", bytes, bytes, abort_limit=1)
    connection = _declared(place, queue=once)
    place.advance(HOUR)
    same(connection.run(ticking.tend()), 1)
    life = live(connection)
    (element,) = claim(connection, life)
    same(abort(connection, life, element, Charge.CHARGE), Fate.FAILED)
    _fails(_info(connection).is_under_way)
    place.advance(HOUR)
    same(connection.run(ticking.tend()), 1)


def with_overlap_each_is_sent(place: Repository) -> None:
    """Whatever became of the last one."""
    connection = _declared(place, overlap=True)
    for _ in range(3):
        place.advance(HOUR)
        same(connection.run(ticking.tend()), 1)
    same(len(_rids(connection)), 3)


def a_refused_tick_is_not_lost(place: Repository) -> None:
    """A queue that is full, or stopped, gets it later; the reason is noted, and told once."""
    one: Queue[Any, Any] = Queue("orders", bytes, bytes, limits=Limits(depth=1))
    connection = _declared(place, queue=one, overlap=True)
    connection.perform(ops.Enqueue(queue="orders", body=b"in the way"))
    place.advance(HOUR)
    (due,) = connection.perform(DueTicks())
    refused = connection.perform(_op(due))
    same((refused.state, refused.is_news), (TickState.REFUSED, True))
    if "is full" not in (refused.error or ""):
        raise NotConformant(f"{refused} does not say that the queue is full")
    _fails(connection.perform(_op(due)).is_news)
    same(connection.perform(DueTicks()), [])
    info = _info(connection)
    same((info.error, info.next_at), (refused.error, due.next_at))
    place.advance(30)
    _holds(_info(connection).lag_s > 29)
    same(connection.perform(DueTicks())[0].next_at, due.next_at)
    life = live(connection)
    execute(connection, life, claim(connection, life)[0])
    connection.perform(ops.AlterQueue(queue="orders", enqueue_started=False))
    same(connection.run(ticking.tend()), 0)
    if "stopped" not in (_info(connection).error or ""):
        raise NotConformant(f"{_info(connection)} does not say that the queue is stopped")
    connection.perform(ops.AlterQueue(queue="orders", enqueue_started=True))
    place.advance(2)
    same(connection.run(ticking.tend()), 1)
    same(_rids(connection), [f"hourly@{_at(place, 1):%Y-%m-%dT%H:%M:%SZ}"])
    same(_info(connection).error, None)


def what_cannot_be_computed_is_put_off(place: Repository) -> None:
    """By a machine that does not know its zone; another tries it then, in its own time."""
    connection = _declared(place)
    place.advance(HOUR)
    (due,) = connection.perform(DueTicks())
    hold = HoldTick(
        name=due.name, revision=due.revision, next_at=due.next_at, error="no zone", after_s=60.0
    )
    _holds(connection.perform(hold))
    _fails(connection.perform(hold))
    same(_info(connection).error, "no zone")
    same(connection.run(ticking.tend()), 0)
    place.advance(61)
    same(connection.run(ticking.tend()), 1)
    _fails(connection.perform(hold))
    same(_info(connection).error, None)


def paused_ones_send_nothing(place: Repository) -> None:
    """Resumed, it goes on with its next tick; what came meanwhile is not sent."""
    connection = _declared(place, missed="all", overlap=True)
    place.advance(HOUR)
    (due,) = connection.perform(DueTicks())
    _holds(connection.run(ticking.pause("hourly", paused=True)))
    _fails(connection.run(ticking.pause("hourly", paused=True)))
    same(connection.perform(_op(due)), GONE)
    place.advance(HOUR)
    same(connection.run(ticking.tend()), 0)
    same((_info(connection).is_paused, _info(connection).lag_s), (True, 0.0))
    _holds(connection.run(ticking.pause("hourly", paused=False)))
    same(connection.run(ticking.tend()), 0)
    place.advance(HOUR)
    same(connection.run(ticking.tend()), 1)
    same(_rids(connection), [f"hourly@{_at(place, 3):%Y-%m-%dT%H:%M:%SZ}"])


def what_was_sent_is_never_sent_again(place: Repository) -> None:
    """Also if the clock is set back, and it is paused and resumed, or changed, then."""
    connection = _declared(place, overlap=True)
    place.advance(HOUR)
    same(connection.run(ticking.tend()), 1)
    place.advance(-HOUR)
    connection.run(ticking.pause("hourly", paused=True))
    connection.run(ticking.pause("hourly", paused=False))
    same(_info(connection).next_at, _at(place, 2))
    connection.run(ticking.alter(_hourly(overlap=False)))
    same(_info(connection).next_at, _at(place, 2))
    place.advance(HOUR)
    same(connection.run(ticking.tend()), 0)
    same(len(_rids(connection)), 1)


def a_change_counts_from_now(place: Repository) -> None:
    """What was computed before it does nothing any more."""
    connection = _declared(place)
    place.advance(HOUR)
    (due,) = connection.perform(DueTicks())
    daily: Periodic[Any] = Periodic("hourly", ORDERS, b"y", "0 12 * * *", missed="none")
    connection.run(ticking.alter(daily))
    same(connection.perform(_op(due)), GONE)
    same(connection.perform(_op(due, send=False)), GONE)
    info = _info(connection)
    same((info.next_at, info.missed, info.body), (_at(place, 12), "none", b"y"))
    place.advance(11 * HOUR)
    same(connection.run(ticking.tend()), 1)


def a_removed_one_is_gone(place: Repository) -> None:
    """One that is made anew under its name is another one."""
    connection = _declared(place)
    place.advance(HOUR)
    (due,) = connection.perform(DueTicks())
    _holds(connection.perform(ticking.remove_op("hourly")))
    _fails(connection.perform(ticking.remove_op("hourly")))
    same(connection.perform(_op(due)), GONE)
    same(connection.perform(ListPeriodics()), [])
    place.advance(-HOUR)
    _holds(connection.run(ticking.declare(_hourly())))
    place.advance(HOUR)
    same(connection.perform(_op(due)), GONE)
    same(connection.run(ticking.tend()), 1)


def one_is_declared_once(place: Repository) -> None:
    """Again is harmless, otherwise refused; so is a queue that is not there, or not of requests."""
    connection = _declared(place)
    _fails(connection.run(ticking.declare(_hourly())))
    for program in (
        ticking.declare(_hourly(zone="Europe/Berlin")),
        ticking.declare(_hourly(queue=Queue("others", bytes, bytes))),
        ticking.declare(_hourly(queue=Queue("orders.error", bytes, bytes))),
        ticking.alter(_hourly(queue=Queue("others", bytes, bytes))),
        ticking.show("nightly"),
        ticking.pause("nightly", paused=True),
    ):
        try:
            answer = connection.run(program)
        except (
            errors.SettingsDiffer,
            errors.QueueNotFound,
            errors.IllegalState,
            errors.PeriodicNotFound,
        ):
            continue
        raise NotConformant(f"{answer} instead of an error")
    long: dict[str, Any] = {"body": b"x" * (ORDERS.settings.body_bytes_max + 1)}
    now = connection.perform(Now())
    op = CreatePeriodic(name="x", next_at=now, **(_hourly().fields | long))
    refuses(connection, errors.TooLarge, op)
    refuses(connection, errors.QueueNotEmpty, ops.DestroyQueue(queue="orders"), "periodic request")
    connection.perform(ticking.remove_op("hourly"))
    connection.perform(ops.DestroyQueue(queue="orders"))


def a_survey_sees_what_is_due(place: Repository) -> None:
    """And nothing that is not, or waits for its last one."""
    connection = _declared(place)
    survey = ops.Survey(
        process=PROCESS,
        queues=["orders"],
        everything=False,
        tidy=False,
        value=None,
        holders=[],
    )
    _fails(connection.perform(survey).ticks)
    place.advance(HOUR)
    _holds(connection.perform(survey).ticks)
    same(connection.run(ticking.tend()), 1)
    _fails(connection.perform(survey).ticks)
    place.advance(HOUR)
    _fails(connection.perform(survey).ticks)
