"""What must hold at the end: the file, stores, ledger, queue, topic, file of moves and tapes.

Pure. The file of bars is the judge of all others. A mismatch names identities: a feed and a number,
or a stock.
"""

from __future__ import annotations

import collections
import dataclasses
import itertools
from decimal import Decimal
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from examples.exchange.contents import digest
from examples.exchange.database import Booked, Total
from examples.exchange.faults import STORES
from examples.exchange.market import BARS, MOVES, SESSIONS, move_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from examples.exchange.contents import Kept, StreamName
    from examples.exchange.data import Bar
    from examples.exchange.market import Move, Taped

SHOWN = 20


class Read(NamedTuple):
    """A message of the bars that Spark has read from the stores."""

    feed: str
    stream: int
    epoch: int
    number: int
    day: str
    symbol: str


class Told(NamedTuple):
    """Below which numbers each feed has sent all, and was told that all is stable."""

    sent: Mapping[str, int]
    stable: Mapping[str, int]


class Sums(NamedTuple):
    """What bars add up to."""

    bars: int
    close: Decimal
    value: Decimal


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """What the witnesses say.

    bars: of each feed, in the order of their numbers. told: by feeds. moves: of the queue, by
    state. topic, filed: of moves, in order. tapes: one of each life, in the order of its lines.
    kept: what each store has of each stream. damaged: how many places of a store's log cannot be
    read; -1: unknown.
    """

    bars: Mapping[str, Sequence[Bar]]
    told: Told
    booked: Sequence[Booked]
    totals: Sequence[Total]
    moves: Mapping[str, int]
    filed: Sequence[tuple[int, Move]]
    tapes: Sequence[Sequence[Taped]]
    kept: Mapping[str, Mapping[StreamName, Kept]]
    damaged: Mapping[str, int]
    read: Sequence[Read] | None
    topic: Sequence[tuple[int, Move]] | None
    spark: Sums | None


@dataclasses.dataclass(frozen=True, slots=True)
class Mismatch:
    """What is wrong, and of what."""

    what: str
    names: tuple[str, ...]

    def __str__(self) -> str:
        more = f" and {len(self.names) - SHOWN} more" if len(self.names) > SHOWN else ""
        return f"{self.what}: {len(self.names)} ({', '.join(self.names[:SHOWN])}{more})"


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """rows: what, found, expected. mismatches: what differs, by identity."""

    rows: tuple[tuple[str, object, object], ...]
    mismatches: tuple[Mismatch, ...]

    @property
    def agrees(self) -> bool:
        """Whether all is as it must be."""
        return not self.mismatches and all(found == wanted for _, found, wanted in self.rows)


@dataclasses.dataclass(slots=True)
class Findings:
    """What was found so far. rows: what, found, expected. wrong: what, and of what."""

    rows: list[tuple[str, object, object]] = dataclasses.field(
        default_factory=list[tuple[str, object, object]]
    )
    wrong: list[tuple[str, Iterable[object]]] = dataclasses.field(
        default_factory=list[tuple[str, "Iterable[object]"]]
    )


def judge(evidence: Evidence) -> Verdict:
    """Compares the witnesses."""
    sent = {(feed, n): bar for feed, bars in evidence.bars.items() for n, bar in enumerate(bars)}
    file = Sums(
        len(sent),
        sum((Decimal(bar.close) for bar in sent.values()), Decimal(0)),
        sum((Decimal(bar.value) for bar in sent.values()), Decimal(0)),
    )
    moves = collections.Counter(move for bar in sent.values() if (move := move_of(bar)))
    to = Findings()
    _feeds(evidence, sent, to)
    _ledger(evidence, sent, file, to)
    _gaps(evidence, sent, to)
    _moves(evidence, moves, to)
    _stores(evidence, to)
    _streams(evidence, sent, file, to)
    _tapes(evidence, to)
    found = [(what, tuple(sorted(map(str, names)))) for what, names in to.wrong]
    return Verdict(
        rows=tuple(to.rows),
        mismatches=tuple(Mismatch(what, names) for what, names in found if names),
    )


def _feeds(evidence: Evidence, sent: Iterable[tuple[str, int]], to: Findings) -> None:
    """What feeds say of what they have done; each number of the file, or none beyond."""
    for what, below in (("sent", evidence.told.sent), ("stable", evidence.told.stable)):
        wanted = {feed: len(bars) for feed, bars in evidence.bars.items()}
        to.rows.append((f"bars {what}", sum(below.values()), sum(wanted.values())))
        lacks = {(feed, number) for feed, number in sent if number >= below.get(feed, 0)}
        more = {feed for feed, end in below.items() if end > wanted.get(feed, 0)}
        to.wrong += [
            (f"bars that no feed says are {what}", lacks),
            (f"feeds that say that more is {what} than the file has", more),
        ]


def _gaps(evidence: Evidence, sent: Mapping[tuple[str, int], Bar], to: Findings) -> None:
    """Numbers that no store has, or that Spark did not find; and what nobody has sent."""
    kept = evidence.kept.values()
    of = {feed: [has.get((BARS.name, SESSIONS[feed])) for has in kept] for feed in evidence.bars}
    gaps = {
        (feed, number)
        for feed, number in sent
        if not any(one is not None and one.has(number) for one in of[feed])
    }
    phantoms = {(row.feed, row.number) for row in evidence.booked}
    if evidence.read is not None:
        read = {(one.feed, one.number) for one in evidence.read}
        gaps |= sent.keys() - read
        phantoms |= read
    to.rows += [("gaps", len(gaps), 0), ("phantoms", len(phantoms - sent.keys()), 0)]
    to.wrong += [
        ("gaps: sent, and not in the stream", gaps),
        ("phantoms: booked or in the stream, and never sent", phantoms - sent.keys()),
    ]


def _ledger(
    evidence: Evidence,
    sent: Mapping[tuple[str, int], Bar],
    file: Sums,
    to: Findings,
) -> None:
    booked = collections.Counter((row.feed, row.number) for row in evidence.booked)
    doubled = {one for one, count in booked.items() if count > 1}
    lost = sent.keys() - booked.keys()
    altered = [
        (row.feed, row.number)
        for row in evidence.booked
        if (bar := sent.get((row.feed, row.number))) is not None
        and (row.day, row.symbol, row.close, row.value)
        != (bar.day, bar.symbol, Decimal(bar.close), Decimal(bar.value))
    ]
    of: dict[str, list[Bar]] = collections.defaultdict(list)
    for bar in sent.values():
        of[bar.symbol].append(bar)
    totals = {
        Total(
            symbol,
            len(bars),
            sum((Decimal(bar.close) for bar in bars), Decimal(0)),
            sum((Decimal(bar.value) for bar in bars), Decimal(0)),
        )
        for symbol, bars in of.items()
    }
    to.rows += [
        ("bars booked exactly once", sum(n == 1 for n in booked.values()), file.bars),
        ("lost", len(lost), 0),
        ("doubled", len(doubled), 0),
        ("closes in the ledger", sum((r.close for r in evidence.booked), Decimal(0)), file.close),
        ("values in the ledger", sum((r.value for r in evidence.booked), Decimal(0)), file.value),
        (
            f"closes in {len(of)} totals",
            sum((t.close for t in evidence.totals), Decimal(0)),
            file.close,
        ),
    ]
    to.wrong += [
        ("lost: sent, and not booked", lost),
        ("doubled: booked more than once", doubled),
        ("booked otherwise than sent", altered),
        ("stocks with a wrong total", {t.symbol for t in totals ^ set(evidence.totals)}),
    ]


def _moves(
    evidence: Evidence,
    moves: collections.Counter[Move],
    to: Findings,
) -> None:
    wanted = moves.total()
    to.rows += [
        ("moves in the ledger", sum(row.moved for row in evidence.booked), wanted),
        ("moves that the queue has done with", evidence.moves.get("finished", 0), wanted),
        ("moves that the queue has had", sum(evidence.moves.values()), wanted),
        ("moves in the file", len(evidence.filed), wanted),
    ]
    witnesses = {"the file": evidence.filed}
    if evidence.topic is not None:
        witnesses["the topic"] = evidence.topic
    to.rows.append(("moves in the topic", _in_topic(evidence), wanted))
    for where, numbered in witnesses.items():
        had = collections.Counter(move for _, move in numbered)
        to.wrong += [
            (f"moves that {where} lacks", moves - had),
            (f"moves that {where} has too often", had - moves),
        ]
    numbers = [number for number, _ in evidence.filed]
    to.wrong.append(("numbers in the file of moves that do not ascend", _falls(numbers)))


def _in_topic(evidence: Evidence) -> int:
    """How many moves are in the topic: as Spark read them, or else as the store with most has."""
    if evidence.topic is not None:
        return len(evidence.topic)
    name = (MOVES.name, SESSIONS["relay"])
    return max((has[name].count for has in evidence.kept.values() if name in has), default=0)


def _falls(numbers: Sequence[int]) -> list[int]:
    return [after for before, after in itertools.pairwise(numbers) if after <= before]


def _stores(evidence: Evidence, to: Findings) -> None:
    encode = msgspec.json.Encoder().encode
    wanted = {
        (BARS.name, SESSIONS[feed]): (0, len(bars), digest(map(encode, bars)))
        for feed, bars in evidence.bars.items()
    }
    other = [
        f"{store}: {topic} of session {session:#x}"
        for store, streams in evidence.kept.items()
        for (topic, session), whole in wanted.items()
        if (has := streams.get((topic, session))) is None
        or (has.begin, has.end, has.bodies) != whole
    ]
    first = evidence.kept.get(STORES[0])
    same = [store for store in STORES if first and evidence.kept.get(store) == first]
    to.rows.append(("stores that have the same", len(same), len(STORES)))
    to.wrong += [
        ("streams that a store has otherwise than sent", other),
        (f"stores that have something else than {STORES[0]}", set(STORES) - set(same)),
        ("stores with damage", [store for store in STORES if evidence.damaged.get(store) != 0]),
    ]


def _streams(
    evidence: Evidence,
    sent: Mapping[tuple[str, int], Bar],
    file: Sums,
    to: Findings,
) -> None:
    if evidence.read is None or evidence.spark is None:
        return
    read = {(one.feed, one.number): one for one in evidence.read}
    altered = [
        place
        for place, one in read.items()
        if place in sent and (one.day, one.symbol) != (sent[place].day, sent[place].symbol)
    ]
    to.rows += [
        ("bars that are stable, by Spark", evidence.spark.bars, file.bars),
        ("closes, by Spark", evidence.spark.close, file.close),
        ("values, by Spark", evidence.spark.value, file.value),
    ]
    to.wrong.append(("in the stream otherwise than sent", altered))


def _tapes(
    evidence: Evidence,
    to: Findings,
) -> None:
    if evidence.read is not None:
        stable = {(one.stream, one.epoch, one.number): one for one in evidence.read}
        taped: set[tuple[int, int, int]] = set()
        altered: set[tuple[int, int, int]] = set()
        for one in itertools.chain.from_iterable(evidence.tapes):
            identity = (one.stream, one.epoch, one.number)
            taped.add(identity)
            is_of = stable.get(identity)
            if is_of is not None and (is_of.day, is_of.symbol) != (one.day, one.symbol):
                altered.add(identity)
        to.rows.append(("stable identities on the tapes", len(stable.keys() & taped), len(stable)))
        to.wrong.append(("stable, and on no tape", stable.keys() - taped))
        to.wrong.append(("on a tape otherwise than in the stream", altered))
    for life, tape in enumerate(evidence.tapes, start=1):
        to.wrong.append((f"does not ascend on tape {life}", list(_descents(tape))))


def _descents(tape: Sequence[Taped]) -> Iterator[str]:
    """Yields what came before or twice in a life; a number may come again in a later epoch."""
    last: dict[str, tuple[int, int]] = {}
    for one in tape:
        epoch, number = last.get(one.feed, (-1, -1))
        if one.epoch < epoch or (one.number <= number and one.epoch == epoch):
            yield f"{one.feed}: {one.epoch}/{one.number} after {epoch}/{number}"
        last[one.feed] = (one.epoch, one.number)
