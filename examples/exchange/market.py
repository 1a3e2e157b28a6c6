"""What the parts of the example agree on: topics, the queue, tables, the files of a run.

A value module: importing it does nothing. Each part is a program of its own.
"""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Final

import msgspec

import onceq
from examples.exchange.data import Bar, is_move
from onceq import streams


class Move(msgspec.Struct, frozen=True, kw_only=True):
    """A stock that moved on a day; prices as written."""

    day: str
    symbol: str
    open: str
    close: str


BARS: Final = streams.Topic("bars", Bar)
MOVES: Final = streams.Topic("moves", Move)
MOVED: Final = onceq.Queue("moves", Move, bytes)
REPOSITORY: Final = "exchange"

LOW_FEED, HIGH_FEED = "feed-a-l", "feed-m-z"
SESSIONS: Final = {LOW_FEED: 0xB1, HIGH_FEED: 0xB2, "relay": 0xB3}
"""Of the sources, the same in each of their lives; and the feeds' names."""
FEEDS: Final = (LOW_FEED, HIGH_FEED)
TAPE_SESSION, FILE_SESSION = 0xC1, 0xC2

# No unique constraint: a bar that was booked twice is to be seen, not prevented.
TABLES: Final = """
create table bar (
    feed   text not null,
    number bigint not null,
    day    date not null,
    symbol text not null,
    close  numeric not null,
    value  numeric not null,
    moved  boolean not null
);
create table total (
    symbol text primary key,
    bars   bigint not null,
    close  numeric not null,
    value  numeric not null
);
"""


def feed_of(bar: Bar) -> str:
    """Return which feed sends a bar: symbols before "M", or the others."""
    return LOW_FEED if bar.symbol < "M" else HIGH_FEED


def move_of(bar: Bar) -> Move | None:
    """Return the move that a bar is, or None."""
    if not is_move(bar):
        return None
    return Move(day=bar.day, symbol=bar.symbol, open=bar.open, close=bar.close)


class Setup(msgspec.Struct, frozen=True, kw_only=True):
    """How a run is set up; the runner writes it, the parts read it.

    stores: their addresses, in order. listens: of each source. rate: bars a second of both feeds
    together; 0: as fast as they go.
    """

    url: str
    stores: tuple[str, ...]
    listens: dict[str, str]
    rate: int

    @property
    def list(self) -> str:
        """The list of stores, as sources are given it: one group."""
        return " ".join(self.stores)


class Taped(msgspec.Struct, frozen=True, array_like=True):
    """A line of a tape: what one of its lives was shown live."""

    feed: str
    stream: int
    epoch: int
    number: int
    day: str
    symbol: str


@dataclasses.dataclass(frozen=True, slots=True)
class RunDirectory:
    """The files of one run."""

    root: Path

    @property
    def database(self) -> Path:
        return self.root / "database"

    @property
    def finished(self) -> Path:
        return self.root / "finished"

    @property
    def report(self) -> Path:
        return self.root / "report.json"

    @property
    def moves(self) -> Path:
        """The file of moves."""
        return self.root / "moves.jsonl"

    @property
    def read(self) -> Path:
        """What Spark has read, and what that adds up to."""
        return self.root / "spark"

    def store(self, number: int) -> Path:
        return self.root / "stores" / f"store-{number}"

    def bars(self, feed: str) -> Path:
        """What a feed sends, a line each."""
        return self.root / "feeds" / f"{feed}.jsonl"

    def latencies(self, feed: str) -> Path:
        """How long it took until messages were stable, in seconds, a line each."""
        return self.root / "feeds" / f"{feed}.stable"

    def tapes(self) -> list[Path]:
        """The tapes, one of each life."""
        return sorted((self.root / "tapes").glob("*.jsonl"))

    def next_tape(self) -> Path:
        return self.root / "tapes" / f"{len(self.tapes()) + 1:03}.jsonl"

    def log(self, name: str) -> Path:
        return self.root / "logs" / f"{name}.log"

    def write_setup(self, setup: Setup) -> None:
        (self.root / "setup.json").write_bytes(msgspec.json.encode(setup))

    def read_setup(self) -> Setup:
        return msgspec.json.decode((self.root / "setup.json").read_bytes(), type=Setup)
