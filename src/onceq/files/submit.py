"""Submits a file: every row one request, exactly once, however often it is run (spec C11).

A row's rid comes from the row or from its line in the file, so that a second run sends the same
rids and is told what became of the first. What was dealt with is noted (`track`), so that a
run after a kill need not send it again. `collect` gets the replies.
"""

from __future__ import annotations

import contextlib
import hashlib
import itertools
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from onceq.engine.embedded.locate import Located
from onceq.errors import FileMismatch, InvalidValue
from onceq.files import program, readers
from onceq.files.disk import DISK, Disk
from onceq.files.persistent import PersistentClient, client_at, quiet
from onceq.files.program import Life
from onceq.files.rows import LINE, BadRow, Checker, Record, Row, by_column, by_line, file_prefix
from onceq.files.seen import SeenRids
from onceq.files.track import Track
from onceq.manager.caller import DEFAULT_REPOSITORY
from onceq.model import ops
from onceq.model.queue import Queue
from onceq.server.handlers import decoded

BATCH_ROWS: Final = 1000
BATCH_BYTES: Final = 4_194_304
"""Rows and bytes of one transaction, roughly."""
_NAME_BYTES_MAX: Final = 230
"""How many of a file name's 255 bytes are left beside `.rejects.jsonl` and `.track`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SubmitOrder:
    """What to submit. rid: a column, or `line`. client: None: `file:` and the file's name.

    queue: its name, or its declaration: then a row that is not of its request type goes to the
    rejects, and is not sent; otherwise its server finds out.
    rejects: where bad rows go; None: beside the file. rejects_max: the run stops at more; None:
    it goes on. progress: called with (position, total, rows): how far the file is read, in bytes
    or rows, and how many rows are dealt with. told: is told what a person may want to know.
    batch_rows: of one transaction; None: BATCH_ROWS.
    """

    path: Path
    queue: str | Queue[Any, Any]
    rid: str
    client: str | None = None
    rejects: Path | None = None
    rejects_max: int | None = None
    progress: Callable[[int, int, int], None] = quiet
    told: Callable[[str], None] = quiet
    batch_rows: int | None = None

    @property
    def queue_name(self) -> str:
        """The name of the queue."""
        return self.queue if isinstance(self.queue, str) else self.queue.name

    @property
    def client_name(self) -> str:
        """The registrant that sends and gets the replies."""
        return self.client or f"file:{file_prefix(self.path.name)[:-1]}"

    @property
    def rejects_path(self) -> Path:
        """Where bad rows go."""
        cut = self.path.name.encode()[:_NAME_BYTES_MAX].decode("utf-8", "ignore")
        return self.rejects or self.path.with_name(f"{cut}.rejects.jsonl")


@dataclass(frozen=True, slots=True, kw_only=True)
class SubmitSummary:
    """What became of a file's rows: sent, already known, or rejected.

    All are counted from the first row on, over the runs that it took; resumed_at: the number of the
    last one that was dealt with when this run began, or 0. queued, replied, done: how many of the
    known rows are where. rejects: the file with the bad rows; None if there are none.
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
    resumed_at: int
    seconds: float


@dataclass(slots=True)
class _Run:
    """One run over a file. seen: the rids of its rows; None if their lines name them."""

    order: SubmitOrder
    content_type: str
    client: PersistentClient
    sha256: str
    track: Track
    seen: SeenRids | None
    first: int = 0
    rows: int = 0

    def begin(self) -> None:
        """Goes on where a former run stopped, if the repository knows what that sent last."""
        note = self.track.former()
        eid = None if note is None else note.last_eid
        if eid and not self.client.run(lambda _: self.client.perform(program.is_known(eid))):
            self.order.told("the repository went back behind what was submitted: beginning anew")
            note = None
        if not self.track.resume(note):
            self.order.told("the rejects are not what they were: beginning anew")
        note = self.track.note
        self.first, self.rows = note.row, sum(note.states.values()) + note.rejected

    def send(self, batch: list[Row | BadRow]) -> None:
        """Sends the rows of a batch, writes its rejects, and notes that it is dealt with."""
        batch = self._once(batch)
        rows = [one for one in batch if isinstance(one, Row)]

        def part(life: Life) -> list[ops.Sent | BadRow]:
            name = self.order.queue_name
            return self.client.perform(program.send_rows(life, name, rows, self.content_type))

        answers = self.client.run(part)
        sent = [one for one in answers if isinstance(one, ops.Sent)]
        bad = [one for one in (*batch, *answers) if isinstance(one, BadRow)]
        bad.sort(key=lambda one: one.number)
        eid = str(sent[-1].eid) if sent else ""
        self.rows += len(batch)
        self.track.advance(batch[-1].number, [one.state for one in sent], bad, eid)

    def _once(self, batch: list[Row | BadRow]) -> list[Row | BadRow]:
        """Returns a batch in which a row with the rid of an earlier row counts as bad."""
        if self.seen is None:
            return batch
        firsts = self.seen.add([(one.rid, one.number) for one in batch if isinstance(one, Row)])
        return [
            BadRow(
                one.number,
                f"row {firsts[one.number]} has the same rid {one.rid!r}",
                one.source,
                self.order.rid,
            )
            if isinstance(one, Row) and one.number in firsts
            else one
            for one in batch
        ]

    def refuse_many_rejects(self) -> None:
        """Stops if more rows are bad than allowed. FileMismatch."""
        count, most = self.track.note.rejected, self.order.rejects_max
        if most is not None and count > most:
            raise FileMismatch(
                f"{count} rows are bad up to row {self.track.note.row} of {self.order.path}, and "
                f"at most {most} may be: {self.order.rejects_path} says why. What was sent stays "
                "sent; run again with a greater limit, it goes on from there"
            )


def submit(
    order: SubmitOrder, located: Located | str | None = None, repository: str = DEFAULT_REPOSITORY
) -> SubmitSummary:
    """Submits every row of a file that is not submitted yet; see `submit_by`.

    located: a URL as for `onceq.open`, or a queue manager's.
    """
    with client_at(located, repository, order.client_name, order.told) as client:
        return submit_by(client, order)


def submit_by(client: PersistentClient, order: SubmitOrder, disk: Disk = DISK) -> SubmitSummary:
    """Submits every row of a file that is not submitted yet, and says what became of all.

    client: of the order; closed when this returns. disk: for the rejects and the track.

    Raises FileMismatch (a missing column; other content than before, or changed while it was
    read; too many bad rows), QueueNotFound, QueueStopped, IllegalState (another `submit` has the
    same rejects), Fenced (another life of the client began), InvalidValue, MissingExtra, OSError,
    sqlite3.Error (no room for the rids), and the error of a lost connection that cannot be made
    again. Run again, it goes on where it stopped.
    """
    began = time.monotonic()
    if order.rejects_path.resolve() == order.path.resolve():
        raise InvalidValue(f"the rejects cannot go to {order.path} itself")
    with contextlib.ExitStack() as closing:
        closing.callback(client.close)
        sha256 = readers.digest(order.path)
        reader = closing.enter_context(readers.open_reader(order.path))
        if order.rid != LINE:
            readers.require_column(reader, order.rid, order.path)
        subject = f"{sha256}\0{order.queue}\0{order.client_name}\0{order.rid}"
        digest = hashlib.sha256(subject.encode()).hexdigest()
        # Before this client's life begins, as that ends the life of a `submit` under way.
        track = closing.enter_context(Track(order.rejects_path, digest, disk))
        with track.kept_if_begun():
            limit = client.run(lambda life: _prepare(client, order, life, sha256))
        seen = None if order.rid == LINE else SeenRids()
        if seen is not None:
            closing.callback(seen.close)
        run = _Run(order, reader.content_type, client, sha256, track, seen)
        run.begin()
        _send_file(run, reader, limit)
        track.end()
    return _summary(run, time.monotonic() - began)


def _prepare(client: PersistentClient, order: SubmitOrder, life: Life, sha256: str) -> int:
    """Refuses what cannot be submitted; returns the largest body that the queue takes."""
    limit = client.perform(program.body_bytes_max(order.queue_name))
    if order.rid == LINE:
        prefix = file_prefix(order.path.name)
        client.perform(program.refuse_changed_file(life, prefix, sha256))
    return limit


def _send_file(run: _Run, reader: readers.Reader, limit: int) -> None:
    order = run.order
    prefix = file_prefix(order.path.name)
    is_by_line = order.rid == LINE
    rid_of = by_line(prefix, run.sha256) if is_by_line else by_column(order.rid)
    column = None if is_by_line else order.rid
    checker = Checker(rid_of, limit, column, _decoder(order.queue, run.content_type))
    most = order.batch_rows or BATCH_ROWS
    run.refuse_many_rejects()
    for batch in _batches(_checked(run, reader, checker), most):
        run.send(batch)
        order.progress(reader.position, reader.total, run.rows)
        run.refuse_many_rejects()
    after = readers.digest(order.path)
    if after != run.sha256:
        raise FileMismatch(
            f"{order.path} was changed while it was submitted: sha256 was {run.sha256} and is "
            f"{after}; what was sent stays sent: submit files that nobody writes any more"
        )
    order.progress(reader.total, reader.total, run.rows)


def _decoder(queue: str | Queue[Any, Any], content_type: str) -> Callable[[bytes], Any] | None:
    if isinstance(queue, str):
        return None
    return lambda body: decoded(queue, body, content_type)


def _checked(run: _Run, reader: readers.Reader, checker: Checker) -> Iterator[Row | BadRow]:
    """Yields the rows after those that are dealt with; of these only the rids still matter."""
    seen = run.seen
    dealt_with: list[tuple[str, int]] = []
    for record in reader.records(0 if seen else run.first):
        row = checker.check(record) if isinstance(record, Record) else record
        is_new = row.number > run.first
        if seen and (len(dealt_with) == BATCH_ROWS or (is_new and dealt_with)):
            seen.add(dealt_with)
            dealt_with.clear()
        if is_new:
            yield row
        elif isinstance(row, Row):
            dealt_with.append((row.rid, row.number))


def _batches(rows: Iterator[Row | BadRow], most: int) -> Iterator[list[Row | BadRow]]:
    while batch := _batch(rows, most):
        yield batch


def _batch(rows: Iterator[Row | BadRow], most: int) -> list[Row | BadRow]:
    """Returns the next rows, up to `most`, or until they have BATCH_BYTES."""
    batch: list[Row | BadRow] = []
    size = 0
    for row in itertools.islice(rows, most):
        batch.append(row)
        size += len(row.source)
        if size >= BATCH_BYTES:
            break
    return batch


def _summary(run: _Run, seconds: float) -> SubmitSummary:
    note = run.track.note
    return SubmitSummary(
        file=str(run.order.path),
        sha256=run.sha256,
        queue=run.order.queue_name,
        client=run.order.client_name,
        rows=run.rows,
        sent=note.states.get("new", 0),
        queued=note.states.get("queued", 0),
        replied=note.states.get("replied", 0),
        done=note.states.get("done", 0),
        rejected=note.rejected,
        rejects=str(run.order.rejects_path) if note.rejected else None,
        resumed_at=run.first,
        seconds=round(seconds, 3),
    )
