"""A scan: the elements of a queue, in its order, by key pages (spec Q11). Pure.

A key page says where elements stand, the place of the last of them is where the next page begins:
so the millionth page costs what the first does, and nothing is open between two. Elements only ever
move forward in their queue, as an abort puts off what it gives back: one that was there all the
time is always met, and some are met twice. `Seen` tells which. Source: BHM90 4; spec Q11.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from onceq.model.element import Element, ElementState
from onceq.model.ops.base import Integer, Op
from onceq.model.queue import QueueKind

KEYS: Final = 1000
"""Places in a key page, besides those that share the last one's."""
ELEMENTS: Final = 100
"""Elements that are read, or locked, at once, at most ..."""
BODY_BYTES: Final = 1 << 20
"""... and the bytes of their bodies together, unless the first has more."""
BEGINNING: Final = (0, -(1 << 63))
"""The place before all others: lane and turn."""
_WIDTH: Final = 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class Scanned(Element):
    """An element as a scan met it. state: where it was then, never FINISHED or KEPT."""

    state: ElementState


@dataclass(frozen=True, slots=True, kw_only=True)
class ScanOpened:
    """A scan that begins. last: what has a greater seq came later, and is not seen."""

    queue_id: int
    kind: QueueKind
    last: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ScanKey:
    """Where an element stands: in a lane, by its turn. body_bytes: of its body."""

    seq: int
    lane: int
    turn: int
    body_bytes: int


class OpenScan(Op[ScanOpened]):
    """Begins a scan of a queue. QueueNotFound.

    locked: in this transaction, which must be READ COMMITTED, and not of a client's reply queue:
    IllegalState.
    """

    queue: str
    locked: bool


class ScanKeys(Op[list[ScanKey]]):
    """The next n places after (lane, turn), and all that share the last one's lane and turn.

    Fewer than n: there are no more. It reads no bodies, and nothing that a client has only kept.
    """

    queue_id: Integer
    lane: Integer
    turn: int
    last: int
    n: Integer


class ScanElements(Op[list[Scanned]]):
    """Those of some elements that are in the queue now, in the order of seqs.

    locked: only those that are unclaimed and that nobody else has locked; they stay locked until
    this transaction ends. It waits for nobody.
    """

    queue_id: Integer
    seqs: list[int]
    locked: bool


class Seen:
    """The seqs that were met: a bit for each, and little more where they are close together."""

    __slots__ = ("_bits",)

    def __init__(self) -> None:
        self._bits: dict[int, int] = {}

    def is_new(self, seq: int) -> bool:
        """Notes a seq; returns whether it was not there."""
        where, bit = seq // _WIDTH, 1 << seq % _WIDTH
        before = self._bits.get(where, 0)
        self._bits[where] = before | bit
        return not before & bit


@dataclass(slots=True)
class Scan:
    """How far a scan is.

    keys: met, and not read yet. is_over: there are no more of them. page: how many are met at once.
    """

    queue: str
    locked: bool
    opened: ScanOpened | None = None
    place: tuple[int, int] = BEGINNING
    keys: list[ScanKey] = field(default_factory=list[ScanKey])
    seen: Seen = field(default_factory=Seen)
    is_over: bool = False
    page: int = KEYS

    def met(self, keys: list[ScanKey]) -> None:
        """Notes a key page."""
        self.is_over = len(keys) < self.page
        if keys:
            self.place = (keys[-1].lane, keys[-1].turn)
        self.keys = [one for one in reversed(keys) if self.seen.is_new(one.seq)]

    def taken(self) -> list[int]:
        """Takes the seqs of what is to be read next from the keys."""
        seqs: list[int] = []
        body_bytes = 0
        while self.keys and len(seqs) < ELEMENTS:
            body_bytes += self.keys[-1].body_bytes
            if seqs and body_bytes > BODY_BYTES:
                break
            seqs.append(self.keys.pop().seq)
        return seqs
