"""What a store does when it is asked, and the states of a source, as tables. Pure.

A store keeps of a stream: the greatest epoch that it has *promised*, with the life of a source that
asked for it, and the epoch in which it was last *admitted* to the stream. It *holds* the stream if
it was ever admitted. `standing` says how an ask stands to the promise, `memory` what the store
knows; together they find the deed in `FENCE`, `ADMIT` and `FRAME`. What is not listed is refused.

A source looks, fences, and admits stores; then it sends. `SOURCE` has its states. Several lives of
one source may do so at once: the tables decide which of them a store heeds.
"""

from __future__ import annotations

import enum
from typing import Final

LOOKS_MAX: Final = 10
"""How often a source looks anew because another life was promised more, before it gives up."""


class Standing(enum.Enum):
    """How the epoch and the life of an ask stand to what a store has promised."""

    FIRST = "the store has promised nothing"
    NEWER = "its epoch is greater than the one promised"
    OWN = "its epoch was promised to its life"
    OTHER = "its epoch was promised to another life"
    OLDER = "a greater epoch was promised"


class Memory(enum.Enum):
    """What a store knows of a stream."""

    NOTHING = "it was never admitted, or has forgotten"
    HOLDS = "it was admitted in an epoch before the one promised"
    ADMITTED = "it was admitted in the epoch promised"


class Deed(enum.Enum):
    """What a store does, and answers when it is synced."""

    PROMISE = "note epoch and life, then answer what it has"
    REPEAT = "answer what it has"
    ADMIT = "copy what it lacks of the chosen log, cut the rest, note the bridge record"
    LATE = "promise and admit in one"
    SETTLE = "note the bridge record anew"
    APPEND = "append"
    KNOWN = "acknowledge: it has that number"
    GAP = "answer its end: numbers before that one are missing"
    NOT_ADMITTED = "answer that it must be admitted first"
    FORGOT = "answer that it knows nothing: it may have promised more to another"
    REFUSE = "answer what it has promised"


class Where(enum.Enum):
    """Where a number lies in the log of a store."""

    BELOW = "it has that number"
    NEXT = "it is the next"
    BEYOND = "numbers before it are missing"


def standing(promised: int, promised_life: int, *, epoch: int, life: int) -> Standing:
    """Return how an ask stands to a promise. promised: 0 if there is none."""
    if promised == 0:
        return Standing.FIRST
    if epoch != promised:
        return Standing.NEWER if epoch > promised else Standing.OLDER
    return Standing.OWN if life == promised_life else Standing.OTHER


def may_copy(epoch: int, copying: int) -> bool:
    """Whether an admission may begin to copy while one to another epoch does, which then ends.

    One stream is copied for one admission at a time. Of the same epoch the later one counts: the
    life has asked again. copying: the epoch of the other.
    """
    return epoch >= copying


def memory(promised: int, admitted: int) -> Memory:
    """Return what a store knows. admitted: 0 if it never was, or its creation was not settled."""
    if admitted == 0:
        return Memory.NOTHING
    return Memory.ADMITTED if admitted == promised else Memory.HOLDS


def where(number: int, end: int) -> Where:
    """Return where a number lies in a log that ends before `end`."""
    if number == end:
        return Where.NEXT
    return Where.BELOW if number < end else Where.BEYOND


_S = Standing
_M = Memory

FENCE: Final[dict[Standing, Deed]] = {
    _S.FIRST: Deed.PROMISE,
    _S.NEWER: Deed.PROMISE,
    _S.OWN: Deed.REPEAT,
}

ADMIT: Final[dict[tuple[Standing, Memory], Deed]] = {
    (_S.OWN, _M.NOTHING): Deed.ADMIT,
    (_S.OWN, _M.HOLDS): Deed.ADMIT,
    (_S.OWN, _M.ADMITTED): Deed.SETTLE,
    (_S.NEWER, _M.HOLDS): Deed.LATE,
    (_S.NEWER, _M.ADMITTED): Deed.LATE,
    (_S.NEWER, _M.NOTHING): Deed.FORGOT,
    (_S.FIRST, _M.NOTHING): Deed.FORGOT,
}

FRAME: Final[dict[tuple[Standing, Memory, Where], Deed]] = {
    (_S.OWN, _M.ADMITTED, Where.NEXT): Deed.APPEND,
    (_S.OWN, _M.ADMITTED, Where.BELOW): Deed.KNOWN,
    (_S.OWN, _M.ADMITTED, Where.BEYOND): Deed.GAP,
    **{(_S.OWN, _M.NOTHING, at): Deed.NOT_ADMITTED for at in Where},
    **{(_S.OWN, _M.HOLDS, at): Deed.NOT_ADMITTED for at in Where},
    **{(_S.NEWER, _M.HOLDS, at): Deed.NOT_ADMITTED for at in Where},
    **{(_S.NEWER, _M.ADMITTED, at): Deed.NOT_ADMITTED for at in Where},
    **{(_S.NEWER, _M.NOTHING, at): Deed.FORGOT for at in Where},
    **{(_S.FIRST, _M.NOTHING, at): Deed.FORGOT for at in Where},
}


class SourceState(enum.Enum):
    """Where a source is between its beginning and its end."""

    LOOKING = "Looking"
    FENCING = "Fencing"
    ADMITTING = "Admitting"
    SENDING = "Sending"
    STARVED = "Starved"
    FENCED = "Fenced"


class Finding(enum.Enum):
    """What a source finds, by which it goes on."""

    ANSWERED = "all answered, or a recover set and the interval is over"
    PROMISED = "a recover set of every list seen has promised"
    OVERTAKEN = "another life was promised more"
    ADMITTED = "a stable set of every list seen holds it, synced"
    UNRESPONSIVE = "no stable set is responsive"
    RESPONSIVE = "a stable set is responsive again"
    BEGIN_EPOCH = "a store forgot, a number is given up, or the list changes"
    SUCCEEDED = "the stores that promised more leave no stable set"


_F = Finding
_T = SourceState

SOURCE: Final[dict[tuple[SourceState, Finding], SourceState]] = {
    (_T.LOOKING, _F.ANSWERED): _T.FENCING,
    (_T.FENCING, _F.PROMISED): _T.ADMITTING,
    (_T.FENCING, _F.OVERTAKEN): _T.LOOKING,
    (_T.ADMITTING, _F.ADMITTED): _T.SENDING,
    (_T.ADMITTING, _F.OVERTAKEN): _T.LOOKING,
    (_T.SENDING, _F.UNRESPONSIVE): _T.STARVED,
    (_T.SENDING, _F.BEGIN_EPOCH): _T.LOOKING,
    (_T.STARVED, _F.RESPONSIVE): _T.SENDING,
    (_T.STARVED, _F.BEGIN_EPOCH): _T.LOOKING,
    **{(state, _F.SUCCEEDED): _T.FENCED for state in _T if state is not _T.FENCED},
}
