"""Two repositories, PostgreSQL's and the oracle's, given the same Ops at the same time.

Every answer is compared: ids by a bijection that grows as they appear, times exactly.
"""

from __future__ import annotations

import dataclasses
import enum
import random
from typing import TYPE_CHECKING, Any
from uuid import UUID

from onceq.errors import OnceqError
from onceq.model import ops
from proof.oracle import Blocked, Oracle
from proof.oracle.memory import MemoryClock, MemoryDriver

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.conformance.drivers import PostgresRepository, SyncSession

NUMBERED = frozenset({"seq", "registrant_id", "incarnation", "queue_id", "slot", "xid"})
KINDS = {"numbers": "queue_id"}
"""Fields that hold ids of another name."""
IGNORED = frozenset({"backend_pid", "created_at", "error", "received_at", "seen"})
"""Given by PostgreSQL's own clock or processes, or words for people; or of low-water marks."""

SURVEYED: dict[str, Any] = {
    "queues": ["q", "r", "v", "none"],
    "everything": True,
    "tidy": False,
    "value": None,
    "holders": [],
}
"""What a survey looks at, whoever makes it."""

BLOCKED = object()
IN_ERROR = 3


@dataclasses.dataclass(frozen=True)
class Ref:
    """One id, as each side has it: (PostgreSQL's, the oracle's)."""

    sides: tuple[Any, Any]


class Failed:
    """An error as an answer."""

    def __init__(self, error: OnceqError) -> None:
        self.kind = type(error)
        self.error = error

    def __repr__(self) -> str:
        return f"{self.kind.__name__}({self.error})"


_AS_NEW = """
    rollback; select pg_advisory_unlock_all(), set_config('onceq_setting.taken_over', '', false)
"""
"""What a session still knows of the example before: its locks, and what it took over untold."""


class Twin:
    """A session with each."""

    def __init__(self, theirs: SyncSession, ours: MemoryDriver) -> None:
        self.theirs = theirs
        self.ours = ours
        self.life: Ref | None = None
        self.slot: Ref | None = None

    @property
    def is_inside(self) -> bool:
        """Whether a transaction is open."""
        return self.ours.session.transaction is not None


class Twins:
    """A repository in PostgreSQL and one in memory."""

    def __init__(self, place: PostgresRepository) -> None:
        for session in place.open:
            session.connection.execute(_AS_NEW)
        place.truncate()
        self.place = place
        self._spare: list[SyncSession] = list(place.open)
        chance = random.Random(0)
        self.oracle = Oracle(place.now, lambda: UUID(int=chance.getrandbits(128)))
        self.pairs: dict[tuple[str, Any], Any] = {}
        self.backs: dict[tuple[str, Any], Any] = {}
        self.log: list[str] = []
        self._seen = ops.Observation(value=0, holders=[])

    def session(self) -> Twin:
        """Opens a session with each."""
        theirs = self._spare.pop() if self._spare else self.place.session()
        return Twin(theirs, MemoryDriver(self.oracle, MemoryClock()))

    def drop(self, twin: Twin) -> None:
        """Ends both sessions, as the death of their process does."""
        twin.theirs.close()
        self.place.open.remove(twin.theirs)
        twin.ours.end()

    def both(self, twin: Twin, kind: type[Any], **fields: Any) -> Any:
        """Gives both the Op; returns the answer of PostgreSQL as Refs, BLOCKED, or Failed."""
        theirs, ours = (kind(**{name: _side(v, n) for name, v in fields.items()}) for n in (0, 1))
        self.place.advance(0.001)
        try:
            wanted = _answer(lambda: twin.ours.perform_once(ours))
        except Blocked:
            return BLOCKED
        self._set_time(twin)
        given = _answer(lambda: twin.theirs.driver.perform(theirs))
        self.log.append(f"{theirs} -> {given!r}")
        if kind in {ops.LookUp, ops.ListQueues} and isinstance(given, list):
            given, wanted = sorted(given, key=self._key(0)), sorted(wanted, key=self._key(1))
        self.match(given, wanted, kind.__name__)
        return _paired(given, wanted)

    def sweep(self, twin: Twin, queue_id: Ref) -> None:
        """Moves the marks of a queue in PostgreSQL; the oracle has none."""
        ids = [queue_id.sides[0]]
        for _ in range(2):  # the second moves them up to what the first observed
            swept = ops.Sweep(queue_ids=ids, value=self._seen.value, holders=self._seen.holders)
            self._seen = twin.theirs.driver.perform(swept)
            self.log.append(f"{swept} -> {self._seen!r}")

    def _set_time(self, twin: Twin) -> None:
        connection = twin.theirs.connection
        if connection.info.transaction_status != IN_ERROR:
            now = self.place.now().isoformat()
            connection.execute("select set_config('onceq_setting.now', %s, false)", (now,))

    def _key(self, side: int) -> Callable[[Any], tuple[str, ...]]:
        def key(row: Any) -> tuple[str, ...]:
            rid = str(getattr(row, "rid", None) or row.name)
            told = self._translated(rid) if side == 0 else rid
            fields = ("state", "enqueued_at", "finished_at", "outcome")
            return (told, *(str(getattr(row, name, "")) for name in fields))

        return key

    def _translated(self, text: str) -> str:
        try:
            return str(self.pairs.get(("eid", UUID(text)), text))
        except ValueError:
            return text

    def match(self, given: Any, wanted: Any, name: str) -> None:
        """Fails unless both sides say the same."""
        where = f"{name}: PostgreSQL says {given!r}, the oracle {wanted!r}"
        if isinstance(given, Failed) or isinstance(wanted, Failed):
            kinds = (getattr(given, "kind", None), getattr(wanted, "kind", None))
            self._agree(kinds[0] is kinds[1], where)
        elif dataclasses.is_dataclass(given):
            self._agree(type(given) is type(wanted), where)
            for field in dataclasses.fields(given):
                if field.name not in IGNORED:
                    pair = getattr(given, field.name), getattr(wanted, field.name)
                    self.match(*pair, field.name)
        elif isinstance(given, (list, tuple)):
            self._agree(len(given) == len(wanted), where)
            for one, other in zip(given, wanted, strict=True):
                self.match(one, other, name)
        else:
            self._agree(self._equal(given, wanted, name), where)

    def _equal(self, given: Any, wanted: Any, name: str) -> bool:
        if isinstance(given, UUID) and isinstance(wanted, UUID) and name != "process":
            return self._bound("eid", given, wanted)
        name = KINDS.get(name, name)
        if (
            isinstance(given, int)
            and isinstance(wanted, int)
            and name in {*NUMBERED, "Take", "TakeReply"}
        ):
            return self._bound(name, given, wanted)
        if isinstance(given, str) and not isinstance(given, enum.Enum):
            given = self._translated(given)
        agreed: bool = given == wanted
        return agreed

    def _bound(self, kind: str, given: Any, wanted: Any) -> bool:
        forth = self.pairs.setdefault((kind, given), wanted)
        back = self.backs.setdefault((kind, wanted), given)
        return bool(forth == wanted and back == given)

    def _agree(self, agreed: bool, where: str) -> None:  # noqa: FBT001 # a verdict
        assert agreed, "\n".join([*self.log[-25:], where])


def _answer(perform: Callable[[], Any]) -> Any:
    try:
        return perform()
    except OnceqError as error:
        return Failed(error)


def _side(value: Any, side: int) -> Any:
    if isinstance(value, Ref):
        return value.sides[side]
    if isinstance(value, list):
        return [_side(one, side) for one in value]
    return value


def _paired(given: Any, wanted: Any) -> Any:
    """Returns an answer with every id as a Ref; values of dataclasses as dicts of their fields."""
    if isinstance(given, list):
        return [_paired(one, other) for one, other in zip(given, wanted, strict=True)]
    if dataclasses.is_dataclass(given) and not isinstance(given, type):
        return {
            field.name: _paired(getattr(given, field.name), getattr(wanted, field.name))
            for field in dataclasses.fields(given)
            if field.name not in IGNORED
        }
    if isinstance(given, tuple):
        return tuple(_paired(one, other) for one, other in zip(given, wanted, strict=True))
    return Ref((given, wanted)) if isinstance(given, (UUID, int)) else given


def who_in(answer: dict[str, Any]) -> dict[str, Ref]:
    """Returns who asks from now on, as a field of Ops: a registrant and its epoch, of each side."""
    sides = zip(answer["registrant_id"].sides, answer["epoch"].sides, strict=True)
    theirs, ours = (ops.Identity(registrant_id=number, epoch=epoch) for number, epoch in sides)
    return {"who": Ref((theirs, ours))}
