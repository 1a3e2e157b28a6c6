"""Submits a file: every row one request, exactly once, however often it is run (spec C11).

A row's rid comes from the row or from its place in the file, so that a second run sends the same
rids and is answered what became of the first. Replies are for `collect`.
"""

from __future__ import annotations

import contextlib
import itertools
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec

from onceq.engine.connection import Link
from onceq.errors import FileMismatch, InvalidValue
from onceq.files import program, readers
from onceq.files.persistent import PersistentClient
from onceq.files.rows import LINE, BadRow, Checker, Record, Row, by_column, by_line, file_prefix
from onceq.model import names

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from onceq.engine.locate import Located
    from onceq.files.program import Life

BATCH_ROWS: Final = 500
BATCH_BYTES: Final = 4_194_304
"""Rows and bytes of one transaction, about."""
_NAME_BYTES_MAX: Final = 240
"""What is left of a file name's 255 bytes beside `.rejects.jsonl`."""


def _quiet(*_: Any) -> None:
    """Tells nobody."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SubmitOrder:
    """What is to be submitted. rid: a column, or `line`. client: None: `file:` and the file's name.

    rejects: where bad rows go; None: beside the file. progress: called with (position, total).
    batch_rows: of one transaction; None: BATCH_ROWS.
    """

    path: Path
    queue: str
    rid: str
    client: str | None = None
    rejects: Path | None = None
    progress: Callable[[int, int], None] = _quiet
    told: Callable[[str], None] = _quiet
    batch_rows: int | None = None

    @property
    def client_name(self) -> str:
        """The registrant that sends, and to which the replies go."""
        return self.client or f"file:{file_prefix(self.path.name)[:-1]}"

    @property
    def rejects_path(self) -> Path:
        """Where bad rows go."""
        cut = self.path.name.encode()[:_NAME_BYTES_MAX].decode("utf-8", "ignore")
        return self.rejects or self.path.with_name(f"{cut}.rejects.jsonl")


@dataclass(frozen=True, slots=True, kw_only=True)
class SubmitSummary:
    """What became of a file's rows: sent now, or known from an earlier run, or rejected.

    queued, replied, done: where those known from before stand. rejects: the file with the bad
    rows; None when there are none.
    """

    file: str
    sha256: str
    queue: str
    client: str
    rows: int
    sent: int
    queued: int
    replied: int
    done: int
    rejected: int
    rejects: str | None
    seconds: float


class Rejects:
    """The file with the bad rows: made when there is one, removed when a new run has none."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file: Any = None
        self.count = 0

    def add(self, bad: BadRow) -> None:
        """Appends a row."""
        if self._file is None:
            self._file = self._path.open("wb")
        self._file.write(msgspec.json.encode({"row": bad.number, "reason": bad.reason}) + b"\n")
        self.count += 1

    def close(self) -> None:
        """Ends the file; without any row, removes what an earlier run left."""
        if self._file is not None:
            self._file.close()

    def forget_former(self) -> None:
        """Removes the rejects of an earlier run."""
        if self._file is None:
            self._path.unlink(missing_ok=True)


@dataclass(slots=True)
class _Run:
    """One run over a file."""

    order: SubmitOrder
    client: PersistentClient
    sha256: str
    rejects: Rejects
    states: Counter[str] = field(default_factory=Counter[str])
    rows: int = 0

    def send(self, batch: list[Row]) -> None:
        def part(life: Life) -> list[str | BadRow]:
            return self.client.perform(program.send_rows(life, self.order.queue, batch))

        for answer in self.client.run(part):
            if isinstance(answer, BadRow):
                self.rejects.add(answer)
            else:
                self.states[answer] += 1

    def checked(self, reader: readers.Reader, checker: Checker) -> Iterator[Row]:
        for record in reader.records():
            self.rows += 1
            row = checker.check(record) if isinstance(record, Record) else record
            if isinstance(row, BadRow):
                self.rejects.add(row)
            else:
                yield row


def submit(order: SubmitOrder, located: Located, repository: str) -> SubmitSummary:
    """Submits every row of a file that is not submitted yet; see `submit_by`."""
    names.check_id("client", order.client_name)
    link = Link(located, repository)
    return submit_by(PersistentClient(link, order.client_name, order.told), order)


def submit_by(client: PersistentClient, order: SubmitOrder) -> SubmitSummary:
    """Submits every row of a file that is not submitted yet, and says what became of all.

    client: of the order; closed when this returns.

    Raises FileMismatch (a missing column; other content than before, or changed while it was
    read), QueueNotFound, QueueStopped, MissingExtra, OSError, and what a lost connection leaves
    when it cannot be made again. Run again, it goes on where it stopped.
    """
    began = time.monotonic()
    if order.rejects_path.resolve() == order.path.resolve():
        raise InvalidValue(f"the rejects cannot go to {order.path} itself")
    with contextlib.ExitStack() as closing:
        closing.callback(client.close)
        sha256 = readers.digest(order.path)
        rejects = Rejects(order.rejects_path)
        closing.callback(rejects.close)
        run = _Run(order, client, sha256, rejects)
        _send_file(run)
    if not rejects.count:
        rejects.forget_former()
    return _summary(run, time.monotonic() - began)


def _send_file(run: _Run) -> None:
    order = run.order
    prefix = file_prefix(order.path.name)

    def prepare(life: Life) -> int:
        limit = run.client.perform(program.body_bytes_max(order.queue))
        if order.rid == LINE:
            run.client.perform(program.refuse_changed_file(life, prefix, run.sha256))
        return limit

    with readers.open_reader(order.path) as reader:
        if order.rid != LINE:
            readers.require_column(reader, order.rid, order.path)
        limit = run.client.run(prepare)
        rid_of = by_line(prefix, run.sha256) if order.rid == LINE else by_column(order.rid)
        rows = run.checked(reader, Checker(rid_of, limit))
        for batch in _batches(rows, order.batch_rows or BATCH_ROWS):
            run.send(batch)
            order.progress(reader.position, reader.total)
        order.progress(reader.total, reader.total)
    after = readers.digest(order.path)
    if after != run.sha256:
        raise FileMismatch(
            f"{order.path} was changed while it was submitted: sha256 was {run.sha256} and is "
            f"{after}; what was sent stays sent: submit files that nobody writes any more"
        )


def _batches(rows: Iterator[Row], most: int) -> Iterator[list[Row]]:
    while batch := _batch(rows, most):
        yield batch


def _batch(rows: Iterator[Row], most: int) -> list[Row]:
    """Returns the next rows, up to so many, or until they have BATCH_BYTES."""
    batch: list[Row] = []
    size = 0
    for row in itertools.islice(rows, most):
        batch.append(row)
        size += len(row.body)
        if size >= BATCH_BYTES:
            break
    return batch


def _summary(run: _Run, seconds: float) -> SubmitSummary:
    return SubmitSummary(
        file=str(run.order.path),
        sha256=run.sha256,
        queue=run.order.queue,
        client=run.order.client_name,
        rows=run.rows,
        sent=run.states["new"],
        queued=run.states["queued"],
        replied=run.states["replied"],
        done=run.states["done"],
        rejected=run.rejects.count,
        rejects=str(run.order.rejects_path) if run.rejects.count else None,
        seconds=round(seconds, 3),
    )
