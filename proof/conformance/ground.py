"""The ground on which behaviours stand: what a driver must offer, and steps that they share.

Private to the conformance suite, but for the protocols.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol, TypeVar
from uuid import UUID

from onceq import errors
from onceq.clerk import program as clerk
from onceq.clerk import receiving
from onceq.clerk.session import Reply, Session
from onceq.manager.program import declare, show
from onceq.model import ops
from onceq.model.element import Charge, Fate
from onceq.model.queue import Queue

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import datetime

    from onceq.model.element import Element

T = TypeVar("T")

ORDERS: Queue[bytes, bytes] = Queue("orders", bytes, bytes, abort_limit=2, backoff_ms=0)
PROCESS = UUID(int=1)
OTHER_PROCESS = UUID(int=2)
NOBODY = UUID(int=3)
TOKEN = "1"  # noqa: S105 # no secret: it tells a transaction from others


class NotConformant(AssertionError):
    """A driver did otherwise than it must."""


class Performer(Protocol):
    """Whatever performs Ops."""

    def perform(self, op: ops.Op[T]) -> T:
        """Performs one Op."""
        ...


class Connection(Performer, Protocol):
    """A session with a repository."""

    def run(self, program: ops.Program[T]) -> T:
        """Runs a Program."""
        ...

    def stop(self) -> None:
        """Lets `Stopping` answer True from now on."""
        ...

    def close(self) -> None:
        """Ends the session; its locks are free when this returns."""
        ...


class Repository(Protocol):
    """An empty repository, whose time only tests move on."""

    def session(
        self, handle: Callable[[Element, Callable[[str], None]], bytes] | None = None
    ) -> Connection:
        """Returns a new session; handle(element, effect) is what `Call` calls."""
        ...

    def now(self) -> datetime:
        """Returns the repository's time."""
        ...

    def advance(self, seconds: float) -> None:
        """Moves the time on."""
        ...

    def trim(self) -> None:
        """Trims from history all that may go; what is in no archive is lost."""
        ...

    def effects(self) -> list[str]:
        """Returns what committed handlers have written by `effect`."""
        ...


def same(actual: object, wanted: object) -> None:
    """Raises NotConformant unless the two are equal."""
    if actual != wanted:
        raise NotConformant(f"{actual!r}, not {wanted!r}")


def refuses(
    connection: Connection, kind: type[errors.OnceqError], op: ops.Op[Any], says: str = ""
) -> None:
    """Raises NotConformant unless the Op raises this error, with this in its text."""
    try:
        answer = connection.perform(op)
    except kind as error:
        if says not in str(error):
            raise NotConformant(f"{op} raises {error!r}, which does not say {says!r}") from error
        return
    raise NotConformant(f"{op} answers {answer!r}, instead of raising {kind.__name__}")


def declared(place: Repository, queue: Queue[Any, Any] = ORDERS) -> Connection:
    """Returns a session of a repository in which the queue is declared."""
    connection = place.session()
    connection.run(declare(queue))
    return connection


def client_of(
    place: Repository, *, thread: str = "", window: int = 1, keep: int = 0
) -> tuple[Connection, Session[Any, Any]]:
    """Returns a connected client and its session."""
    connection = place.session()
    session = Session(name="till-7", thread=thread, queue=ORDERS, window=window, keep=keep)
    connection.run(clerk.connect(session))
    return connection, session


def send(connection: Connection, session: Session[Any, Any], rid: str) -> ops.Sent:
    """Sends a request whose body is its rid."""
    return connection.run(clerk.send(session, ops.Request(rid=rid, body=rid.encode())))


def receive(
    connection: Connection, session: Session[Any, Any], ckpt: bytes | None = None
) -> Reply[Any]:
    """Receives the next reply."""
    receive = receiving.receive(session, ckpt=ckpt, rid=None, limit=1, timeout_s=0.5)
    return connection.run(receive)[0]


def live(connection: Connection, process: UUID = PROCESS) -> ops.Incarnation:
    """Begins an incarnation."""
    return connection.perform(ops.OpenIncarnation(process=process, host="here", pid=1))


def claim(
    connection: Connection, life: ops.Incarnation, turn: int = 1, n: int = 1
) -> list[Element]:
    """Claims from the queue."""
    info = connection.run(show("orders"))
    return connection.perform(
        ops.Claim(incarnation=life.incarnation, queue_id=info.queue_id, n=n, turn=turn, alone=True)
    )


def begin(
    connection: Performer,
    life: ops.Incarnation,
    element: Element,
    *,
    several: bool = False,
    isolation: str = "read committed",
) -> None:
    """Begins the handler's transaction; several: of a batch, whose first this is."""
    seq = -element.seq if several else element.seq
    begin = ops.Begin(slot=life.slot, seq=seq, token=TOKEN, isolation=isolation, alone=False)
    connection.perform(begin)


def finish(
    life: ops.Incarnation, element: Element, token: str = TOKEN, *, n: int = 0
) -> ops.Finish:
    """Returns the Op that finishes an element, and claims n more."""
    return ops.Finish(
        seqs=[element.seq],
        incarnation=life.incarnation,
        replies=[b"done"],
        content_type=None,
        token=token,
        queue_id=element.queue_id,
        n=n,
        turn=1,
        alone=True,
    )


def execute(connection: Connection, life: ops.Incarnation, element: Element) -> None:
    """Executes an element, successfully."""
    begin(connection, life, element)
    connection.perform(finish(life, element))
    connection.perform(ops.Commit())


def abort(
    connection: Connection,
    life: ops.Incarnation,
    element: Element,
    charge: Charge,
    *,
    after_s: float | None = None,
) -> Fate:
    """Ends an execution that failed."""
    op = ops.AbortElement(
        seq=element.seq,
        incarnation=life.incarnation,
        charge=charge,
        code="Bad",
        error="no",
        traceback="line 1",
        after_s=after_s,
    )
    return connection.perform(op)


def where(connection: Connection, rid: str) -> set[tuple[str, str | None]]:
    """Returns the places, as (state, outcome), in which a rid is."""
    return {(row.state, row.outcome) for row in connection.perform(ops.LookUp(rid=rid))}
