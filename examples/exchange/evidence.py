"""Reads what the witnesses of a run have, for `checks` to compare."""

from __future__ import annotations

import subprocess
import sys
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Final

import msgspec
import pyarrow.parquet as pq

from examples.exchange.checks import Evidence, Read, Sums, Told
from examples.exchange.faults import STORES
from examples.exchange.market import Move, RunDirectory
from examples.exchange.mover import Line
from examples.exchange.tape import taped

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from examples.exchange.contents import Kept, StreamName
    from examples.exchange.data import Bar
    from examples.exchange.database import Database

SHARES: Final = {"p50": 0.5, "p95": 0.95, "p99": 0.99, "max": 1.0}
VERIFY_S: Final = 120.0


def gather(
    directory: RunDirectory,
    database: Database,
    bars: Mapping[str, Sequence[Bar]],
    *,
    kept: Mapping[str, Mapping[StreamName, Kept]],
    told: Told,
) -> Evidence:
    """Return what all witnesses have, when all parts have ended.

    kept: what stores had before. told: what feeds said last.
    """
    spark = read_by_spark(directory)
    return Evidence(
        bars=bars,
        told=told,
        booked=database.bars(),
        totals=database.totals(),
        moves=database.moves(),
        filed=list(_filed(directory)),
        tapes=[list(taped(path.read_bytes())) for path in directory.tapes()],
        kept=kept,
        damaged={store: _damaged(directory, n) for n, store in enumerate(STORES, start=1)},
        read=None if spark is None else spark[0],
        topic=None if spark is None else spark[1],
        spark=None if spark is None else spark[2],
    )


def _filed(directory: RunDirectory) -> Iterator[tuple[int, Move]]:
    decode = msgspec.json.Decoder(Line).decode
    if directory.moves.exists():
        for text in directory.moves.read_bytes().splitlines():
            line = decode(text)
            yield line.number, line.move


def _damaged(directory: RunDirectory, number: int) -> int:
    """Return how many places of a store's log cannot be read; -1: nobody could look."""
    store = str(directory.store(number))
    command = [sys.executable, "-m", "onceq.cli.main", "store", "verify", store, "--json"]
    try:
        ran = subprocess.run(command, check=False, capture_output=True, timeout=VERIFY_S)
    except subprocess.TimeoutExpired:
        return -1
    decode = msgspec.json.Decoder(dict[str, Any]).decode
    rows = [decode(line) for line in ran.stdout.splitlines()]
    return sum(row["damaged"] for row in rows) if rows else -1


def read_by_spark(
    directory: RunDirectory,
) -> tuple[list[Read], list[tuple[int, Move]], Sums] | None:
    """Return the bars and moves that Spark has read, and its sums; None: it has read nothing."""
    sums = directory.read / "sums.json"
    if not sums.exists():
        return None
    found = msgspec.json.decode(sums.read_bytes(), type=dict[str, str])
    bars = pq.read_table(directory.read / "bars").to_pylist()
    moves = pq.read_table(directory.read / "moves").to_pylist()
    return (
        list(map(_read, bars)),
        sorted((row["number"], msgspec.json.decode(row["body"], type=Move)) for row in moves),
        Sums(int(found["bars"]), Decimal(found["close"]), Decimal(found["value"])),
    )


def _read(row: Mapping[str, Any]) -> Read:
    """Return a row of what Spark has written; it has the id of a stream in hexadecimal."""
    given: dict[str, Any] = {**row, "stream": int(row["stream"], 16)}
    return Read(**given)


def latencies(directory: RunDirectory) -> dict[str, float]:
    """Return percentiles of the seconds until a message was stable."""
    found = sorted(
        float(line)
        for path in (directory.root / "feeds").glob("*.stable")
        for line in path.read_text().splitlines()
        if line.endswith(tuple("0123456789")) and "." in line
    )
    if not found:
        return {}
    return {
        name: found[min(len(found) - 1, int(share * len(found)))] for name, share in SHARES.items()
    }
