"""The oracle's answers to the bridges between streams and queues: positions and relays.

Private to the oracle; the twin of `stream.sql` and `relay.sql`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from onceq.errors import Fenced, HandlerMisuse, IllegalState
from onceq.model import stream_ops
from onceq.model.element import Charge, Lane, RequestOutcome
from onceq.model.queue import QueueKind, QueueSettings
from proof.oracle.ends import conclude, expire, return_element
from proof.oracle.rows import ElementRow, Failure, PositionRow, QueueRow, RelayRow
from proof.oracle.state import (
    find_queue,
    is_open,
    queue_of,
)

if TYPE_CHECKING:
    from collections.abc import Iterable

    from proof.oracle.rows import Transaction
    from proof.oracle.state import State

BYTES_PER_PLAN = 8 << 20


def stream_open(
    state: State, tx: Transaction, op: stream_ops.StreamOpen
) -> stream_ops.StreamPosition:
    """Answers StreamOpen."""
    name = f"{op.name}.error"
    if not any(row.name == name and not row.destroyed for row in state.queues.seen(tx)):
        key = state.queues.new_key()
        made = QueueRow(
            queue_id=key,
            name=name,
            kind=QueueKind.ERROR,
            settings=QueueSettings(),
            created_at=state.now(),
        )
        state.queues.put(tx, key, made)
    row = _position(state, tx, (op.name, op.topic, op.session))
    if op.life not in {None, row.life}:
        raise Fenced(f"a later life of {op.name!r} has taken over")
    row = replace(row, life=row.life + (op.life is None))
    state.positions.put(tx, row.key, row)
    return stream_ops.StreamPosition(
        life=row.life, stream=row.stream, epoch=row.epoch, number=row.number
    )


def _position(state: State, tx: Transaction, whose: tuple[str, str, str]) -> PositionRow:
    found = [row for row in state.positions.seen(tx) if row.whose == whose]
    return found[0] if found else PositionRow(key=state.positions.new_key(), whose=whose)


def _held(
    state: State, tx: Transaction, op: stream_ops.StreamHold | stream_ops.StreamMove
) -> PositionRow:
    """Returns the position of this life, where it says. Raises Fenced."""
    holder = op.holder
    row = _position(state, tx, (holder.name, holder.topic, holder.session))
    if (row.life, row.epoch, row.number) != (holder.life, op.epoch, op.number):
        raise Fenced(f"a later life of {holder.name!r} has taken over, or the position was moved")
    return row


def stream_hold(state: State, tx: Transaction, op: stream_ops.StreamHold) -> bool:
    """Answers StreamHold."""
    _held(state, tx, op)
    tx.token = op.token
    return True


def stream_move(state: State, tx: Transaction, op: stream_ops.StreamMove) -> bool:
    """Answers StreamMove."""
    if tx.token != op.token:
        raise HandlerMisuse(f"the handler of {op.holder.name!r} ended its transaction")
    row = _held(state, tx, op)
    goes_on = op.to_number > row.number and op.to_epoch >= row.epoch
    if row.stream not in {None, op.stream} or not goes_on:
        raise Fenced(f"the position of {op.holder.name!r} was moved")
    moved = replace(row, stream=op.stream, epoch=op.to_epoch, number=op.to_number)
    state.positions.put(tx, row.key, moved)
    return True


def stream_forget(state: State, tx: Transaction, op: stream_ops.StreamForget) -> bool:
    """Answers StreamForget."""
    relays = [row for row in state.relays.seen(tx) if row.name == op.name]
    for relay in relays:
        _give_back(state, tx, relay, relay.planned)
        state.relays.put(tx, relay.key, None)
    positions = [row for row in state.positions.seen(tx) if row.whose[0] == op.name]
    for position in positions:
        state.positions.put(tx, position.key, None)
    return bool(relays or positions)


# --- relays ---------------------------------------------------------------------------------------


def _relay(state: State, tx: Transaction, name: str, epoch: int | None = None) -> RelayRow:
    """Returns a relay, locked. epoch: of the life that asks; None: of any. Raises Fenced."""
    row = next(row for row in state.relays.seen(tx) if row.name == name)
    state.relays.put(tx, row.key, row)
    if epoch not in {None, row.epoch}:
        raise Fenced(f"a later life of relay {name!r} has taken over")
    return row


def relay_open(state: State, tx: Transaction, op: stream_ops.RelayOpen) -> stream_ops.RelayState:
    """Answers RelayOpen."""
    queue = find_queue(state, tx, op.queue)
    if queue.kind is QueueKind.REPLY:
        raise IllegalState(f"queue {op.queue!r} is of the replies to a client")
    if not queue.settings.durable:
        raise IllegalState(f"queue {op.queue!r} is volatile")
    if not any(row.name == op.name for row in state.relays.seen(tx)):
        key = state.relays.new_key()
        made = RelayRow(
            key=key,
            name=op.name,
            queue_id=queue.queue_id,
            whose=(op.topic, op.session),
            claim=state.next_incarnation(),
        )
        state.relays.put(tx, key, made)
    row = _relay(state, tx, op.name)
    if (row.queue_id, row.whose) != (queue.queue_id, (op.topic, op.session)):
        raise IllegalState(f"relay {op.name!r} is of another queue, topic or session")
    return stream_ops.RelayState(
        stream=row.stream, epoch=row.epoch, next=row.next, lowest=min(row.planned, default=row.next)
    )


def relay_planned(
    state: State, tx: Transaction, op: stream_ops.RelayPlanned
) -> list[stream_ops.Planned]:
    """Answers RelayPlanned."""
    row = _relay(state, tx, op.name)
    return [
        stream_ops.Planned(number=number, body=_own(state, tx, seq).body)
        for number, seq in sorted(row.planned.items())
    ]


def _own(state: State, tx: Transaction, seq: int) -> ElementRow:
    """Returns a planned element: nobody else ends it."""
    element = state.elements.get(tx, seq)
    if element is None:
        raise LookupError(seq)
    return element


def relay_begin(state: State, tx: Transaction, op: stream_ops.RelayBegin) -> int:
    """Answers RelayBegin."""
    row = _relay(state, tx, op.name)
    if row.epoch >= op.epoch:
        raise Fenced(f"a later life of relay {op.name!r} has taken over")
    if row.stream not in {None, op.stream} or op.end < min(row.planned, default=row.next):
        raise IllegalState(f"the stream of relay {op.name!r} was replaced")
    there = row.planned.keys() & op.there
    _conclude(state, tx, row, there)
    _give_back(state, tx, row, row.planned.keys() - there)
    begun = replace(row, stream=op.stream, epoch=op.epoch, next=op.end, planned={})
    state.relays.put(tx, row.key, begun)
    return len(there)


def _conclude(state: State, tx: Transaction, relay: RelayRow, numbers: Iterable[int]) -> None:
    for seq in sorted(relay.planned[number] for number in numbers):
        element = _own(state, tx, seq)
        state.elements.put(tx, seq, None)
        conclude(state, tx, element, RequestOutcome.DONE)


def _give_back(state: State, tx: Transaction, relay: RelayRow, numbers: Iterable[int]) -> None:
    for number in sorted(numbers):
        element = _own(state, tx, relay.planned[number])
        return_element(state, tx, element, Charge.RELEASE, failure=Failure(None, None))


def relay_plan(state: State, tx: Transaction, op: stream_ops.RelayPlan) -> list[stream_ops.Planned]:
    """Answers RelayPlan."""
    row = _relay(state, tx, op.name, op.epoch)
    if (row.stream, row.next) != (op.stream, op.next):
        raise Fenced(f"relay {op.name!r} plans {row.next} next, and not {op.next}")
    sound: list[ElementRow] = []
    while not sound and (picked := _picked(state, tx, row, op.n)):
        sound = [one for one in picked if _is_sound(state, tx, one, op.bytes_max)]
    planned = dict(row.planned)
    for number, element in enumerate(sound, op.next):
        state.elements.put(tx, element.seq, replace(element, claimed_by=row.claim))
        planned[number] = element.seq
    moved = replace(row, next=op.next + len(sound), planned=planned)
    state.relays.put(tx, row.key, moved)
    return [
        stream_ops.Planned(number=number, body=one.body)
        for number, one in enumerate(sound, op.next)
    ]


def _picked(state: State, tx: Transaction, relay: RelayRow, n: int) -> list[ElementRow]:
    """The next datagrams of the queue, in its order."""
    queue = queue_of(state, tx, relay.queue_id)
    waiting = [
        row
        for row in state.elements.seen(tx)
        if row.queue_id == relay.queue_id
        and row.claimed_by is None
        and row.reply_queue_id is None
        and row.lane <= Lane.SUSPECT
        and (row.not_before is None or row.lane <= Lane.FRESH or row.not_before <= state.now())
        and not state.elements.is_locked(tx, row.seq)
    ]
    if not is_open(state, queue):
        return []
    waiting.sort(key=_turn)
    picked: list[ElementRow] = []
    size = 0
    for one in waiting[:n]:
        if size >= BYTES_PER_PLAN:
            break
        picked.append(one)
        size += len(one.body)
    return picked


def _turn(row: ElementRow) -> tuple[int, float, int]:
    """What came back goes first, in the order of its time; then what is fresh, by priority."""
    if row.lane <= Lane.FRESH:
        return row.lane, 0.0, row.seq
    when = row.not_before.timestamp() if row.not_before is not None else 0.0
    return row.lane - Lane.SUSPECT - 1, when, row.seq


def _is_sound(state: State, tx: Transaction, row: ElementRow, bytes_max: int) -> bool:
    """Whether an element can be sent; if not, it fails, expires or is gone, as for the database."""
    if len(row.body) > bytes_max:
        failure = Failure("TooLarge", f"the body has {len(row.body)} bytes")
        return_element(state, tx, row, Charge.REJECT, failure=failure)
    elif row.life is not None and row.life < state.current_life(tx):
        state.elements.put(tx, row.seq, None)
    elif row.expires_at is not None and row.expires_at <= state.now():
        expire(state, tx, row)
    else:
        return True
    return False


def relay_finish(state: State, tx: Transaction, op: stream_ops.RelayFinish) -> int:
    """Answers RelayFinish."""
    row = _relay(state, tx, op.name, op.epoch)
    voids = row.planned.keys() & op.voids
    _give_back(state, tx, row, voids)
    ended = {number for number in row.planned.keys() - voids if number < op.below}
    _conclude(state, tx, row, ended)
    left = {number: seq for number, seq in row.planned.items() if number not in ended | voids}
    state.relays.put(tx, row.key, replace(row, planned=left))
    return len(ended)
