"""The Programs of a client with a ledger: connect, send, finish a reply, resubmit, discard.

Run by a clerk that has one. Transactions 0, 1 and 3 of BN09 figure 4.6, in the three
ways in which a ledger and a repository can be joined (`Joint`). The repository decides: a rid that
it knows was sent, whatever the ledger says, and a reply that the ledger has as dequeued was
processed, whatever the reply queue holds. Source: BN09 4.3, CSEP 9.2.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar

from msgspec.structs import replace

from onceq import errors
from onceq.clerk import program, receiving
from onceq.clerk.ledger import whole
from onceq.clerk.session import Session, check
from onceq.model import admin_ops, ledger_ops, names, ops
from onceq.model.client_state import Call
from onceq.model.ledger import Entry, Joint, LastRequest, Owner, rid_digest
from onceq.model.recovery import NONE, Move, after

T = TypeVar("T")

TAKES_MAX: Final = 50
"""How often to ask for a ledger that a dying life still holds; each time it waits a little."""
UNSENT: Final = ("A", "E")
OPEN: Final = ("B", "C")
SENT: Final = "s"
PROCESSED: Final = "d"


@dataclass(slots=True, kw_only=True)
class Unit:
    """What one transaction is to do. request: to send; done: the rid whose reply was processed."""

    request: ops.Request | None = None
    done: str | None = None


@dataclass(slots=True, kw_only=True)
class Kept:
    """What a clerk knows of its session and of its ledger. Only Programs change it.

    letter: one of the states A to E, or NONE without a request; None until `recover` has looked.
    is_working: a transaction is open; or a call was cut short, or ended with its effect unknown, so
    nothing is known of the ledger until the next connect.
    """

    session: Session[Any, Any]
    joint: Joint
    repository: str
    letter: str | None = None
    entry: Entry = field(default_factory=Entry)
    repository_hex: str = ""
    is_working: bool = False

    @property
    def gid_prefix(self) -> str:
        """How the names of this client's prepared transactions begin."""
        return f"onceq:{self.repository_hex}:{self.session.who.registrant_id}:"

    def gid(self, unit: Unit) -> str:
        """Returns the name of a prepared transaction: it says what its outcome depends on."""
        kind, rid = (SENT, unit.request.rid) if unit.request else (PROCESSED, unit.done or "")
        return f"{self.gid_prefix}{self.session.who.epoch}:{kind}:{rid_digest(rid)}"


def kept_beside(session: Session[Any, Any], joint: Joint, repository: str) -> Kept:
    """Returns what a client with a ledger knows before it connects.

    InvalidValue: it has a window, or keeps replies (C4).
    """
    names.check_range("window, with a ledger,", session.window, 1, 1)
    names.check_range("keep, with a ledger,", session.keep, 0, 0)
    return Kept(session=session, joint=joint, repository=repository)


def connect(kept: Kept, life: str) -> ops.Program[None]:
    """Begins a new life in the repository, then on the ledger; ends what was left prepared.

    The order matters: when the repository's connect returns, whatever a former life was still
    running there has ended, so the registration says for good what was decided.
    """
    kept.letter, kept.is_working = None, True
    yield from _connect(kept, life)  # if it fails, the ledger is not this life's
    kept.is_working = False


def _connect(kept: Kept, life: str) -> ops.Program[None]:
    session = kept.session
    yield from program.connect(session)
    identity = yield from admin_ops.Identify()
    kept.repository_hex = identity.hex
    owner = Owner(
        repository=kept.repository,
        repository_id=identity,
        registrant=session.name,
        thread=session.thread,
    )
    take = ledger_ops.TakeLedger(owner=owner, who=session.who, life=life)
    for number in range(1, TAKES_MAX + 1):
        yield from _end_prepared(kept)
        try:
            kept.entry = yield from take
        except errors.DeadlineExceeded:
            if number == TAKES_MAX:
                raise
        else:
            return


def _end_prepared(kept: Kept) -> ops.Program[None]:
    """Ends the transactions that a former life left prepared, as the repository decided."""
    session = kept.session
    for gid in (yield from ledger_ops.ListPrepared(prefix=kept.gid_prefix)):
        kind, digest = gid.split(":")[-2:]
        rid = session.s_rid or ""
        is_last = rid_digest(rid) == digest
        freed = rid not in session.outstanding and rid not in session.received
        yield from ledger_ops.EndPrepared(gid=gid, commit=is_last and (kind == SENT or freed))


def ready(kept: Kept) -> str:
    """Returns the state of the last request. Raises IllegalState before `recover`."""
    if kept.letter is None:
        raise errors.IllegalState("a client with a ledger calls recover() first, in each life")
    return kept.letter


def may_send(kept: Kept) -> None:
    """Raises IllegalState when a request is outstanding or still has to be decided about."""
    letter = ready(kept)
    last = kept.entry.last_request
    if letter in UNSENT and last is not None:
        raise errors.IllegalState(
            f"request {last.rid!r} is in state {letter}: resubmit() or discard() it first"
        )
    if letter in OPEN and kept.session.received:
        letter = after("C", Move.PROCESSED)
    after(letter, Move.CONSTRUCTED)


def may_finish(kept: Kept, rid: str) -> None:
    """Raises IllegalState for a reply that was not received, or that is acknowledged already."""
    ready(kept)
    if rid not in kept.session.received:
        raise errors.IllegalState(f"the reply to {rid!r} was not received in this session")


def send(kept: Kept, request: ops.Request) -> ops.Program[ops.Sent]:
    """Sends a request: transaction 0, then transaction 1. Acknowledges the previous reply (C17)."""
    may_send(kept)
    before = kept.entry
    unit = Unit(request=request, done=kept.session.handed_out_last)
    if kept.joint is not Joint.ORDERED:
        yield from _write(kept, _begun(before, unit))
        kept.letter = "A"
    yield from ledger_ops.BeginLedger()
    try:
        sent = yield from _conclude(kept, unit)
    except errors.UsageError:  # the repository will never take it: no request, as before
        yield from _write(kept, replace(before, last_dequeued=kept.entry.last_dequeued))
        kept.letter = after("A", Move.DISCARDED) if before.last_request is None else "D"
        raise
    if sent is None:
        raise LookupError("a transaction with a request sends it")
    return sent


def finish(kept: Kept, rid: str) -> ops.Program[None]:
    """Notes that a reply was processed: transaction 3."""
    may_finish(kept, rid)
    yield from ledger_ops.BeginLedger()
    yield from _conclude(kept, Unit(done=rid))


def resubmit(kept: Kept) -> ops.Program[None]:
    """Sends the ledger's request as it was constructed. IllegalState except in A and E.

    IllegalState too if another request is outstanding that came back (E): receive that one first.
    """
    letter = ready(kept)
    after(letter, Move.SUBMITTED)
    last = kept.entry.last_request
    request = None if last is None else last.request
    if request is None:
        raise errors.IllegalState("the ledger does not have the request: discard() it")
    check(kept.session, Call.SEND)
    if letter == "E":  # what the repository has lost no longer counts
        yield from _write(kept, Entry(last_request=last, last_dequeued=_in_hand(kept)))
    yield from ledger_ops.BeginLedger()
    yield from _conclude(kept, Unit(request=request))


def discard(kept: Kept) -> ops.Program[None]:
    """Gives up the request in the ledger: it was not submitted, or a person has decided so (E).

    The processed reply before it stays noted while that reply is in the reply queue. After E only
    `recover` knows what the repository, as it is now, has outstanding.
    """
    letter = ready(kept)
    following = after(letter, Move.DISCARDED)
    yield from _write(kept, Entry(last_dequeued=_in_hand(kept)))
    kept.letter = None if letter == "E" else following


def _in_hand(kept: Kept) -> str | None:
    """Returns the rid that the ledger has as processed, if its reply is not acknowledged yet."""
    rid = kept.entry.last_dequeued
    return rid if rid in kept.session.received else None


def open_block(kept: Kept) -> ops.Program[None]:
    """Begins the transaction that the client's own work joins; `close_block` ends it."""
    kept.is_working = True
    yield from whole.known_if_it_failed(kept, iter(ledger_ops.BeginLedger()))


def close_block(kept: Kept, unit: Unit | None) -> ops.Program[None]:
    """Commits the transaction with what is to be done in it; None: rolls it back.

    If the rollback fails, the transaction may still be open: only a connect may follow.
    """
    if unit is None:
        yield from ledger_ops.RollbackLedger()
    else:
        yield from whole.known_if_it_failed(kept, _conclude(kept, unit))
    kept.is_working = False


def _conclude(kept: Kept, unit: Unit) -> ops.Program[ops.Sent | None]:
    """Commits the transaction, with its work in the repository, joined in the ledger's way.

    Returns what the repository answered to the request, if there was one.
    """
    if unit.request is not None and unit.done is None:
        unit.done = kept.session.handed_out_last
    return (yield from CONCLUDED[kept.joint](kept, unit))


def _begun(entry: Entry, unit: Unit) -> Entry:
    """Transaction 0, and the reply that was processed before it."""
    last = entry.last_request if unit.request is None else LastRequest.of(unit.request)
    return replace(entry, last_request=last, last_dequeued=unit.done or entry.last_dequeued)


def _ended(entry: Entry, unit: Unit) -> Entry:
    """Transaction 1 or 3, whole."""
    begun = _begun(entry, unit)
    return begun if unit.request is None else replace(begun, last_enqueued=unit.request.rid)


def _write(kept: Kept, entry: Entry) -> ops.Program[None]:
    if entry != kept.entry:
        yield from ledger_ops.WriteLedger(entry=entry)
        kept.entry = entry


def _in_repository(kept: Kept, unit: Unit) -> ops.Program[ops.Sent | None]:
    """Sends, or frees the reply; a send itself frees the previous reply."""
    if unit.request is not None:
        own = kept.joint is not Joint.TOGETHER
        return (yield from program.send(kept.session, unit.request, own_transaction=own))
    if unit.done is not None:
        yield from receiving.acknowledge(kept.session, [unit.done], None)
    return None


def _moved(kept: Kept, unit: Unit) -> None:
    """Notes what has committed."""
    letter = kept.letter or NONE
    if unit.done is not None and unit.done == kept.session.unsettled:
        kept.session.unsettled = None
    if unit.done is not None and letter in OPEN:
        letter = after("C", Move.PROCESSED)
    if unit.request is not None:
        if letter not in UNSENT:
            letter = after(letter, Move.CONSTRUCTED)
        letter = after(letter, Move.SUBMITTED)
    kept.letter = letter


def _ordered(kept: Kept, unit: Unit) -> ops.Program[ops.Sent | None]:
    """Local first, then the repository, then local again. The next send frees the reply."""
    yield from _undone_on_failure(_write_and_commit(kept, _begun(kept.entry, unit)))
    _moved(kept, Unit(done=unit.done))
    if unit.request is None:
        return None
    kept.letter = "A"
    sent = yield from _in_repository(kept, unit)
    _moved(kept, unit)
    yield from _write(kept, _ended(kept.entry, unit))
    return sent


def _write_and_commit(kept: Kept, entry: Entry) -> ops.Program[None]:
    if entry != kept.entry:
        yield from ledger_ops.WriteLedger(entry=entry)
    yield from ledger_ops.CommitLedger()
    kept.entry = entry


def _together(kept: Kept, unit: Unit) -> ops.Program[ops.Sent | None]:
    """One transaction of the repository's database."""

    def steps() -> ops.Program[ops.Sent | None]:
        yield from ledger_ops.WriteLedger(entry=entry)  # first: it sees whether this is still open
        sent = yield from _in_repository(kept, unit)
        kept.session.sure = False  # until the commit confirms it
        yield from ledger_ops.CommitLedger()
        kept.session.sure = True
        return sent

    entry = _ended(kept.entry, unit)

    sent = yield from _undone_on_failure(steps())
    kept.entry = entry
    _moved(kept, unit)
    return sent


def _two_phase(kept: Kept, unit: Unit) -> ops.Program[ops.Sent | None]:
    """The ledger's database prepares; the repository's commit, in one phase, is the decision.

    It leaves the record of the decision behind: the rid of the last send, or that the reply
    to it is gone. A next life reads it (`_end_prepared`); without it, nothing was decided.
    """
    entry = _ended(kept.entry, unit)
    if unit == Unit():
        yield from _undone_on_failure(_write_and_commit(kept, entry))
        return None
    gid = kept.gid(unit)

    def prepared() -> ops.Program[None]:
        yield from ledger_ops.WriteLedger(entry=entry)
        yield from ledger_ops.PrepareLedger(gid=gid)

    sure, kept.session.sure = kept.session.sure, False  # a next life must end what is prepared
    yield from _undone_on_failure(prepared())
    kept.session.sure = sure
    try:
        sent = yield from _in_repository(kept, unit)
    except errors.OnceqError as error:
        if error.outcome is errors.Outcome.NOTHING_HAPPENED:
            kept.session.sure = False
            yield from ledger_ops.EndPrepared(gid=gid, commit=False)
            kept.session.sure = sure
        raise
    kept.session.sure = False
    yield from ledger_ops.EndPrepared(gid=gid, commit=True)
    kept.session.sure = True
    kept.entry = entry
    _moved(kept, unit)
    return sent


def _undone_on_failure(steps: ops.Program[T]) -> ops.Program[T]:
    try:
        return (yield from steps)
    except errors.OnceqError as error:
        if error.outcome is errors.Outcome.NOTHING_HAPPENED:
            yield from ledger_ops.RollbackLedger()
        raise


CONCLUDED: Final[dict[Joint, Callable[[Kept, Unit], ops.Program[ops.Sent | None]]]] = {
    Joint.ORDERED: _ordered,
    Joint.TOGETHER: _together,
    Joint.TWO_PHASE: _two_phase,
}
