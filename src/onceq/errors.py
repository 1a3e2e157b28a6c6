"""Every exception of onceq, in one tree.

    OnceqError
    ├── UsageError                    fix the program; nothing happened
    │   ├── InvalidName               a name outside its alphabet or length
    │   ├── InvalidValue              a value of the wrong type or range
    │   ├── TooLarge                  a body, tag or checkpoint over its limit
    │   ├── IllegalState              a call that is not legal now (BHM90 fig. 1)
    │   │   └── WindowFull            the window is full of outstanding requests
    │   ├── HandlerMisuse             a handler ended or changed its own transaction
    │   ├── QueueNotFound
    │   ├── PeriodicNotFound          there is no periodic request of this name
    │   ├── QueueNotEmpty             a non-empty queue is never destroyed
    │   ├── SettingsDiffer            it exists with other settings
    │   ├── RidReused                 the rid was sent before with other content
    │   ├── StatementRefused          PostgreSQL refused a statement (constraint, type, right)
    │   ├── FileMismatch              a file lacks a column, or is not what it was
    │   └── MissingExtra              an optional dependency is not installed
    ├── OperatingError                the environment; `outcome` says what happened
    │   ├── CannotConnect
    │   ├── ConnectionLost            lost before COMMIT was sent: nothing happened
    │   ├── InDoubt                   COMMIT was sent, without a sure answer: unknown
    │   ├── EnvironmentFault          deadlock, serialization, disk full, cancelled statement
    │   ├── DeadlineExceeded          a wait ran out; nothing happened
    │   │   └── ReceiveTimeout        no reply yet; nothing lost, call again
    │   ├── Fenced                    a newer life of this registrant exists
    │   ├── ClaimLost                 the element is no longer claimed by this incarnation
    │   ├── QueueStopped
    │   ├── QueueFull                 at the queue's limits; nothing happened, send again later
    │   ├── SchemaMissing
    │   ├── SchemaMismatch            of another version, or being destroyed; it says what to do
    │   ├── SchemaTooNew
    │   ├── PostgresTooOld
    │   ├── EncodingRefused           the database is not in UTF-8
    │   ├── PoolerDetected            a transaction pooler is between onceq and PostgreSQL
    │   ├── LedgerRefused             a client's ledger is torn, corrupt or another client's
    │   └── EmbeddedError             the embedded PostgreSQL cannot be used
    │       ├── DirectoryRefused      not ours, another user's, another version
    │       └── EmbeddedStartFailed   PostgreSQL did not start; the log says why
    ├── ReplyError                    instead of a reply's value: why there is none
    │   ├── RequestFailed             it never took effect and never will
    │   ├── Cancelled                 it was killed before it took effect
    │   ├── Expired                   it expired before it took effect
    │   ├── ReplyGone                 it was done; its reply is no longer kept
    │   └── ReplyHeld                 its processing was aborted too often; an error queue has it
    └── HandlerSignal                 raised by handlers to tell the server what to do
        ├── Reject                    one failure reply, no retry
        ├── Retry                     back to the queue, uncharged up to its retry limit
        └── HandlerFailed             any other exception of a handler, as the server sees it

Every error carries `outcome`: NOTHING_HAPPENED, or UNKNOWN when COMMIT had been
sent and its answer was lost, or leaves a doubt. It speaks of the operation that failed:
what a handler had committed itself, or a run over a file had done before, stays.
Messages say what failed, where, and what to do next.
"""

from __future__ import annotations

import enum
import math
from typing import Final

__all__ = [
    "Cancelled",
    "CannotConnect",
    "ClaimLost",
    "ConnectionLost",
    "DeadlineExceeded",
    "DirectoryRefused",
    "EmbeddedError",
    "EmbeddedStartFailed",
    "EncodingRefused",
    "EnvironmentFault",
    "Expired",
    "Fenced",
    "FileMismatch",
    "HandlerFailed",
    "HandlerMisuse",
    "HandlerSignal",
    "IllegalState",
    "InDoubt",
    "InvalidName",
    "InvalidValue",
    "LedgerRefused",
    "MissingExtra",
    "OnceqError",
    "OperatingError",
    "Outcome",
    "PeriodicNotFound",
    "PoolerDetected",
    "PostgresTooOld",
    "QueueFull",
    "QueueNotEmpty",
    "QueueNotFound",
    "QueueStopped",
    "ReceiveTimeout",
    "Reject",
    "ReplyError",
    "ReplyGone",
    "ReplyHeld",
    "RequestFailed",
    "Retry",
    "RidReused",
    "SchemaMismatch",
    "SchemaMissing",
    "SchemaTooNew",
    "SettingsDiffer",
    "StatementRefused",
    "TooLarge",
    "UsageError",
    "WindowFull",
]


_AFTER_S_MAX: Final = 31_536_000.0


class Outcome(enum.Enum):
    """What is known about the effect of the operation that failed."""

    NOTHING_HAPPENED = "nothing happened"
    UNKNOWN = "unknown"


class OnceqError(Exception):
    """The root of every error that onceq raises on purpose."""

    outcome: Outcome = Outcome.NOTHING_HAPPENED


class UsageError(OnceqError):
    """The program asked for something that cannot be; fix the program."""


class InvalidName(UsageError):
    """A name is outside its alphabet or length."""


class InvalidValue(UsageError):
    """A value has the wrong type or is out of range."""


class TooLarge(UsageError):
    """A body, tag or checkpoint is over its limit."""


class IllegalState(UsageError):
    """The state of a client (BHM90 figures 1 and 7), transaction or element forbids this call."""


class WindowFull(IllegalState):
    """The window is full of outstanding requests: receive and acknowledge some.

    room: how many could be sent now.
    """

    def __init__(self, text: str, *, room: int) -> None:
        super().__init__(text)
        self.room = room


class HandlerMisuse(UsageError):
    """A handler ended or reconfigured the transaction it was given, or left it busy.

    What it had committed by then stays.
    """


class QueueNotFound(UsageError):
    """No queue of this name exists in the repository."""


class PeriodicNotFound(UsageError):
    """There is no periodic request of this name."""


class QueueNotEmpty(UsageError):
    """The queue holds elements; destroying it would lose them."""


class SettingsDiffer(UsageError):
    """The queue exists with settings other than those declared."""


class RidReused(UsageError):
    """The rid was sent before with other content."""


class StatementRefused(UsageError):
    """PostgreSQL refused a statement: a constraint, a type, a missing right."""

    def __init__(self, text: str, sqlstate: str | None = None) -> None:
        super().__init__(text)
        self.sqlstate = sqlstate


class FileMismatch(UsageError):
    """A file lacks a column, or is not what it was before. What was done by then stays."""


class MissingExtra(UsageError):
    """An optional dependency is not installed; the message names the extra."""


class OperatingError(OnceqError):
    """The environment failed; `outcome` says what is known of the effect."""


class CannotConnect(OperatingError):
    """The repository cannot be reached."""


class ConnectionLost(OperatingError):
    """The connection was lost before COMMIT was sent: nothing happened."""


class InDoubt(OperatingError):
    """COMMIT was sent; its answer was lost, or leaves a doubt: connect again to learn the truth."""

    outcome = Outcome.UNKNOWN


class EnvironmentFault(OperatingError):
    """A deadlock, serialization failure, full disk or shutdown: try again later."""

    def __init__(self, message: str, sqlstate: str | None = None) -> None:
        super().__init__(message)
        self.sqlstate = sqlstate


class DeadlineExceeded(OperatingError):
    """A wait ran past its deadline; nothing happened."""


class ReceiveTimeout(DeadlineExceeded):
    """No reply arrived in time; nothing is lost, call again."""


class Fenced(OperatingError):
    """A newer life of this registrant has connected; this one is over."""


class ClaimLost(OperatingError):
    """The element is no longer claimed by this incarnation; its work is void."""


class QueueStopped(OperatingError):
    """The queue is stopped for enqueue."""


class QueueFull(OperatingError):
    """The queue is at its limits and takes no more now; nothing happened.

    retry_after_s: in how many seconds it is worth while to send again; infinite if what was sent
    together never fits.
    """

    def __init__(self, text: str, *, retry_after_s: float) -> None:
        super().__init__(text)
        self.retry_after_s = retry_after_s


class SchemaMissing(OperatingError):
    """The repository does not exist in this database; run `onceq init`."""


class SchemaMismatch(OperatingError):
    """The repository is of another version, or being destroyed; the message says what to do."""


class SchemaTooNew(OperatingError):
    """The repository was made by a newer onceq than this one."""


class PostgresTooOld(OperatingError):
    """The PostgreSQL server is older than the oldest supported version."""


class EncodingRefused(OperatingError):
    """The database is not in UTF-8, so it cannot hold every text; use another database."""


class PoolerDetected(OperatingError):
    """A transaction pooler is in between; session locks do not work through it."""


class LedgerRefused(OperatingError):
    """A client's ledger is torn, corrupt, another client's, or of a newer onceq.

    Or its database takes no prepared transactions.
    """


class EmbeddedError(OperatingError):
    """The embedded PostgreSQL cannot be used."""


class DirectoryRefused(EmbeddedError):
    """The directory is not onceq's, belongs to another user, or is of another version."""


class EmbeddedStartFailed(EmbeddedError):
    """The embedded PostgreSQL did not start; the message quotes its log."""


class ReplyError(OnceqError):
    """Why a reply has no value: how the request ended, or that the reply is gone or held.

    attempts: executions that counted, as in a Reply; 0 when there was none, or it is not known.
    """

    def __init__(self, rid: str, code: str, text: str, attempts: int) -> None:
        tried = f" after {attempts} attempt(s)" if attempts else ""
        super().__init__(f"request {rid!r}: {code}{tried}: {text}")
        self.rid = rid
        self.code = code
        self.text = text
        self.attempts = attempts


class RequestFailed(ReplyError):
    """The request took no effect and never will (BHM90 3, a promise)."""


class Cancelled(ReplyError):
    """The request was killed before it took effect."""


class Expired(ReplyError):
    """The request expired before it took effect."""


class ReplyGone(ReplyError):
    """The request was done, and its reply is no longer kept (finding 3)."""


class ReplyHeld(ReplyError):
    """The client's transactions that received the reply aborted too often; the reply is held."""


class HandlerSignal(OnceqError):
    """Raised by a handler to tell the server what to do with its element."""


class Reject(HandlerSignal):
    """Fail the request now: one failure reply, no retry."""


class Retry(HandlerSignal):
    """The environment failed: run it again later, uncharged up to the queue's `retry_limit`.

    after_s: how long to wait before the next attempt, in seconds, from 0 to 365 days; what is
    beyond counts as the nearer of them. None: the queue's back-off. Raises InvalidValue.
    """

    def __init__(self, *args: object, after_s: float | None = None) -> None:
        super().__init__(*args)
        self.after_s = None if after_s is None else _seconds(after_s)


def _seconds(after_s: object) -> float:
    if isinstance(after_s, bool) or not isinstance(after_s, int | float) or math.isnan(after_s):
        raise InvalidValue(f"Retry(after_s=) is a number of seconds, not {after_s!r:.80}")
    return float(min(max(after_s, 0), _AFTER_S_MAX))


class HandlerFailed(HandlerSignal):
    """A handler raised, gave no valid reply, died or hung.

    code: the class of its exception, or another abort code. text: what it said, or what is known.
    """

    def __init__(self, code: str, text: str) -> None:
        super().__init__(f"{code}: {text}")
        self.code = code
        self.text = text
