"""Collects the replies of a client into a file, each exactly once (spec C8, C11).

A batch is received, written, made durable, and only then acknowledged, with a checkpoint that
says how long the file is, in one transaction. However often it is killed and run again, the file
has every reply once.
"""

from __future__ import annotations

import contextlib
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from onceq.engine.embedded.locate import Located
from onceq.engine.wake.waiting import Wakes
from onceq.errors import FileMismatch, InvalidValue
from onceq.files import parquet, program
from onceq.files.disk import DISK, Disk
from onceq.files.durable import DurableFile, read_checkpoint
from onceq.files.persistent import PersistentClient, client_at, quiet
from onceq.files.program import Life
from onceq.files.replies import Csv, Format, JsonLines, Rows
from onceq.manager.arrow import require_arrow
from onceq.manager.caller import DEFAULT_REPOSITORY
from onceq.model.element import Element

BATCH_REPLIES: Final = 2000
FIRST_REPLIES: Final = 100
BATCH_BYTES: Final = 8_388_608
"""Roughly how many replies and bytes go into one transaction, judging by earlier replies."""
SUFFIXES: Final = (".csv", ".jsonl", ".ndjson", ".parquet")


@dataclass(frozen=True, slots=True, kw_only=True)
class CollectOrder:
    """What to collect. timeout_s: how long to wait for the next reply; None: for ever.

    fields: of the reply, a column each (CSV, Parquet); none: the whole reply, in one column.
    progress: called with (collected, of how many, collected). told: is told what a person may want
    to know. batch_replies: in one transaction; None: up to BATCH_REPLIES, depending on their size.
    """

    client: str
    out: Path
    timeout_s: float | None = None
    fields: tuple[str, ...] = ()
    progress: Callable[[int, int, int], None] = quiet
    told: Callable[[str], None] = quiet
    batch_replies: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CollectSummary:
    """What this run collected. outcomes: how many of each. outstanding: without a reply so far.

    known: whether this client ever connected. bytes: of the file or, for Parquet, of its rows.
    """

    client: str
    out: str
    replies: int
    outcomes: dict[str, int]
    outstanding: int
    known: bool
    bytes: int
    seconds: float


@dataclass(slots=True)
class _Run:
    """One run: what it took, and what is left."""

    order: CollectOrder
    client: PersistentClient
    lines: Format
    outcomes: Counter[str] = field(default_factory=Counter[str])
    known: bool = False
    outstanding: int = 0
    bytes: int = 0
    most: int = FIRST_REPLIES

    def into(self, file: DurableFile) -> None:
        """Collects until nothing is outstanding, or no reply came in time."""
        self.client.run(lambda life: self._life(life, file))
        self.bytes = file.length

    def nothing_more(self) -> None:
        """Refuses to add to a file that is complete and cannot grow. FileMismatch."""
        self.outstanding = self.client.run(self._count)
        if self.outstanding:
            raise FileMismatch(
                f"{self.order.out} is complete, Parquet cannot grow, and {self.outstanding} "
                "more requests are outstanding: give another --out"
            )

    def _count(self, life: Life) -> int:
        self.known = self.known or not life.new
        return self.client.perform(program.outstanding(life))

    def _life(self, life: Life, file: DurableFile) -> None:
        """Collects in one life of the client; begins again if its connection is lost."""
        file.resume(read_checkpoint(life.ckpt))
        self.outstanding = self._count(life)
        while self.outstanding and (took := self._batch(life, file)):
            self.outstanding -= took
            collected = self.outcomes.total()
            self.order.progress(collected, collected + self.outstanding, collected)
            if self.outstanding <= 0:
                self.outstanding = self._count(life)

    def _batch(self, life: Life, file: DurableFile) -> int:
        """Receives, writes, acknowledges; returns how many."""
        most = self.order.batch_replies or min(self.most, BATCH_REPLIES)
        found = self.client.perform(program.take_replies(life, most, self.order.timeout_s))
        if found:
            header = b"" if file.length else self.lines.header()
            file.append(header + self.lines.lines(found))
            rids = [reply.rid for reply in found]
            self.client.perform(program.acknowledge(life, rids, file.checkpoint()))
            file.publish()
            self.outcomes.update(_outcome(reply) for reply in found)
            self.most = _how_many(found)
        return len(found)


def collect(
    order: CollectOrder, located: Located | str | None = None, repository: str = DEFAULT_REPOSITORY
) -> CollectSummary:
    """Collects the replies of a client into a file; see `collect_by`.

    located: a URL as for `onceq.open`, or a queue manager's.
    """
    with client_at(located, repository, order.client, order.told, wakes=Wakes()) as client:
        return collect_by(client, order)


def collect_by(client: PersistentClient, order: CollectOrder, disk: Disk = DISK) -> CollectSummary:
    """Collects until nothing of the client is outstanding, or no reply came in time.

    client: of the order; closed when this returns. disk: for CSV and JSON Lines.

    Raises FileMismatch (the file is not what was collected before), IllegalState (another
    `collect` writes it), Fenced (another life of the client began), InvalidValue, MissingExtra,
    OSError (disk full), and the error of a lost connection that cannot be made again. Run
    again, it goes on where it stopped.
    """
    began = time.monotonic()
    with contextlib.closing(client):
        suffix = _checked_suffix(order)
        if suffix == ".parquet":
            run = _collect_parquet(order, client)
        else:
            csv = suffix == ".csv"
            run = _Run(order, client, Csv(order.fields) if csv else JsonLines())
            with DurableFile(order.out, _layout("csv" if csv else "jsonl", order), disk) as file:
                run.into(file)
    return CollectSummary(
        client=order.client,
        out=str(order.out),
        replies=run.outcomes.total(),
        outcomes=dict(run.outcomes),
        outstanding=run.outstanding,
        known=run.known,
        bytes=run.bytes,
        seconds=round(time.monotonic() - began, 3),
    )


def _collect_parquet(order: CollectOrder, client: PersistentClient) -> _Run:
    """Collects rows beside the file, and makes the file from them once nothing is outstanding."""
    require_arrow()
    rows = order.out.with_name(f"{order.out.name}.rows.jsonl")
    run = _Run(order, client, Rows(order.fields))
    if order.out.exists() and not rows.exists():
        run.nothing_more()
        return run
    with DurableFile(rows, _layout("rows", order)) as file:
        run.into(file)
        if run.bytes and not run.outstanding:
            parquet.convert(rows, order.out, order.fields)
    return run


def _checked_suffix(order: CollectOrder) -> str:
    suffix = order.out.suffix.lower()
    if suffix not in SUFFIXES:
        raise InvalidValue(f"{order.out.name}: its name must end in one of {', '.join(SUFFIXES)}")
    if order.fields and suffix in {".jsonl", ".ndjson"}:
        raise InvalidValue("--fields is for .csv and .parquet: JSON Lines hold the whole reply")
    return suffix


def _layout(kind: str, order: CollectOrder) -> str:
    """Returns what must be the same for lines to be added to a file."""
    return " ".join([kind, *order.fields])


def _how_many(replies: Sequence[Element]) -> int:
    """Returns how many replies to take next: at most twice as many as these."""
    largest = max(len(reply.body) for reply in replies)
    return max(1, min(BATCH_REPLIES, 2 * len(replies), BATCH_BYTES // max(1, largest)))


def _outcome(reply: Element) -> str:
    return "done" if reply.outcome is None else reply.outcome.value
