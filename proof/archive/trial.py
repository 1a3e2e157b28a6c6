"""A repository whose history grows while it is archived, and what must then be in the files.

Used by proof/archive/part.py. The rows are those that servers would have written, in transactions
that wait before they commit, or roll back and begin again.
"""

from __future__ import annotations

import contextlib
import datetime as dt
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import psycopg
import pyarrow.parquet as pq
from msgspec.structs import replace

import onceq
from onceq.engine.perform.spark_driver import Route, spark_driver
from onceq.engine.schema.migrate import apply_with
from onceq.model.archive_ops import ArchiveManifest, Kind
from onceq.spark.archive.files import OF_KIND
from onceq.spark.arrow import pa, pc
from proof.archive.runs import Told
from proof.harness.ledger import ask

if TYPE_CHECKING:
    import random
    from collections.abc import Generator
    from pathlib import Path

    from proof.part import Order

REAL: Final = 200
"""How many of them come from a real run."""
WRITERS: Final = 2
CHUNKS: Final = 8
"""In how many transactions each round's rows are written."""
OPEN_S: Final = 1.5
"""How long a transaction may stay open after it has its numbers."""
ROLLED_BACK: Final = 0.2
KEEP_DAYS: Final = 10
DAYS: Final = 20
"""In how many days the generated rows ended: half of them may be trimmed."""
COMPACT: Final = 2
TRIMMED_DAYS: Final = (15, 2)
"""Which days are restored: from how many days ago, and how many."""
SLACK: Final = dt.timedelta(hours=1)
QUEUE: Final = onceq.Queue("words", str, str, abort_limit=5, keep_body=True)
GENERATE: Final = """
with client as (
    insert into {r}.registrant (name) values ('generated ' || gen_random_uuid())
        returning registrant_id)
insert into {r}.history (finished_at, enqueued_at, started_at, send_no, server, queue_id,
        registrant_id, aborts, role, outcome, eid, rid, correlation_id, code, error, sha256, body)
    select ended, ended - interval '3 s', ended - interval '20 ms', n, 7, q.queue_id,
        case when mod(n, 10) = 1 then client.registrant_id end, (mod(n, 50) = 0)::integer,
        case when mod(n, 3) = 0 then 'datagram' else 'request' end::{r}.role,
        case when mod(n, 100) = 0 then 'failed' else 'done' end::{r}.outcome,
        md5('generated ' || n)::uuid, 'order-' || n, case when mod(n, 5) = 0 then 'c-' || n end,
        case when mod(n, 100) = 0 then 'ValueError' end,
        case when mod(n, 100) = 0 then E'no such item:\\n\\u2603 ' || n end,
        sha256(convert_to('body ' || n, 'UTF8')),
        case when mod(n, 2) = 0 then convert_to('body ' || n, 'UTF8') end
    from generate_series(%s::bigint, %s::bigint) n
        cross join lateral (
            select clock_timestamp() - make_interval(secs => mod(n * 7919, {days} * 86400))
        ) t (ended)
        cross join {r}.queue q cross join client
    where q.name = 'words'
"""
GENERATE_ATTEMPTS: Final = """
insert into {r}.attempt (ended_at, eid, server, host, pid, charge, code, error)
    select finished_at, eid, server, 'generated', %s, 'charge', 'ValueError', 'again'
    from {r}.history where aborts > 0 and record_no > %s and send_no between %s and %s
"""
OF_CHUNK: Final = {
    Kind.HISTORY: "h.record_no > %s and h.send_no between %s and %s",
    Kind.ATTEMPT: "a.record_no > %s and a.pid = %s",
}
OF_DAYS: Final = {
    Kind.HISTORY: "h.finished_at >= %s and h.finished_at < %s",
    Kind.ATTEMPT: "a.ended_at >= %s and a.ended_at < %s",
}
LEFT: Final = """
select count(*), count(*) filter (where finished_at < now() - make_interval(days => %s, hours => 1))
    from {r}.history
"""


@dataclass(slots=True)
class Held:
    """A summary of rows. digests: their sum modulo 2 to the 64th, over all columns of each.

    young: how many of them may not be trimmed yet.
    """

    rows: int = 0
    eids: int = 0
    digests: int = 0
    young: int = 0


@dataclass(slots=True)
class Trial:
    """One repository, and its archive. made: by kind, what was committed to the tables."""

    order: Order
    url: str
    repository: str
    chance: random.Random
    made: dict[Kind, Held] = field(default_factory=dict[Kind, "Held"])
    lock: threading.Lock = field(default_factory=threading.Lock)
    violations: list[str] = field(default_factory=list[str])

    @property
    def root(self) -> Path:
        """The archive's directory."""
        return self.order.place / f"archive-{self.repository}"

    @property
    def told(self) -> Told:
        """A run of this archive."""
        return Told(
            url=self.url,
            repository=self.repository,
            root=str(self.root),
            keep_days=KEEP_DAYS,
            compact=COMPACT,
        )

    def begin(self) -> None:
        """Makes the repository, and the first rows: datagrams that were put in and taken."""
        apply_with(self.url, self.repository)
        with onceq.open(self.url, repository=self.repository) as qm:
            qm.declare(QUEUE)
            qm.enqueue_many(QUEUE, [f"word {n}" for n in range(REAL)])
            for _ in range(REAL):
                qm.dequeue(QUEUE.name)
        with psycopg.connect(self.url) as connection:
            self.add({Kind.HISTORY: self.sums(connection, Kind.HISTORY)})

    @property
    def days(self) -> tuple[dt.date, dt.date]:
        """Some days that were trimmed completely."""
        first = dt.datetime.now(dt.UTC).date() - dt.timedelta(days=TRIMMED_DAYS[0])
        return first, first + dt.timedelta(days=TRIMMED_DAYS[1])

    @property
    def told_to_restore(self) -> Told:
        """A run that restores these days."""
        return replace(self.told, days=self.days)

    @contextlib.contextmanager
    def writing(self, first: int, last: int) -> Generator[None]:
        """Writes the rows of these numbers while the block runs, and the rest of them after it."""
        size = max(1, (last - first + 1) // CHUNKS)
        chunks = [(low, min(low + size - 1, last)) for low in range(first, last + 1, size)]
        waits = [(self.chance.uniform(0, OPEN_S), self.chance.random()) for _ in chunks]
        with ThreadPoolExecutor(WRITERS) as pool:
            futures = [
                pool.submit(self.write, *chunk, *wait)
                for chunk, wait in zip(chunks, waits, strict=True)
            ]
            yield
            for future in futures:
                future.result()

    def write(
        self, first: int, last: int, open_s: float = 0.0, rolls_back: float = ROLLED_BACK
    ) -> None:
        """Writes a chunk in a transaction that stays open; or in a second one, after a rollback."""
        with psycopg.connect(self.url) as connection:
            for attempt in (1, 2):
                counted = self._insert(connection, first, last)
                time.sleep(open_s)
                if attempt == 1 and rolls_back < ROLLED_BACK:
                    connection.rollback()
                    continue
                connection.commit()
                self.add(counted)
                return

    def _insert(
        self, connection: psycopg.Connection[Any], first: int, last: int
    ) -> dict[Kind, tuple[int, int]]:
        schema = {"r": self.repository, "days": DAYS}
        query = f"select last_value - 1 from {self.repository}.record_seq"  # ours
        ((since,),) = connection.execute(query.encode()).fetchall()
        connection.execute(GENERATE.format(**schema).encode(), (first, last))
        connection.execute(GENERATE_ATTEMPTS.format(**schema).encode(), (first, since, first, last))
        of_chunk = {Kind.HISTORY: (since, first, last), Kind.ATTEMPT: (since, first)}
        return {
            kind: self.sums(connection, kind, OF_CHUNK[kind], values)
            for kind, values in of_chunk.items()
        }

    def sums(
        self,
        connection: psycopg.Connection[Any],
        kind: Kind,
        which: str = "true",
        values: tuple[object, ...] = (),
    ) -> tuple[int, int]:
        """Returns how many rows there are of a kind, and their digests."""
        relation = OF_KIND[kind]
        digest, source = relation.columns[-1].by, relation.source.format(schema=self.repository)
        query = f"select count(*), coalesce(sum({digest}), 0) from {source} where {which}"  # ours
        ((rows, digests),) = connection.execute(query.encode(), values).fetchall()
        return rows, int(digests)

    def add(self, counted: dict[Kind, tuple[int, int]]) -> None:
        """Counts what was committed."""
        with self.lock:
            for kind, (rows, digests) in counted.items():
                held = self.made.setdefault(kind, Held())
                held.rows += rows
                held.digests = (held.digests + digests) % 2**64

    def in_files(
        self, since: dt.date = dt.date.min, until: dt.date = dt.date.max
    ) -> dict[Kind, Held]:
        """Summarises what is in the files of the manifest; optionally of some days."""
        route = Route(url="", conninfo=self.url, repository=self.repository)
        found: dict[Kind, Held] = {}
        with spark_driver(route) as driver:
            for kind in Kind:
                files = driver.perform(ArchiveManifest(kind=kind)).files
                found[kind] = _held(
                    kind, [self.root / one.path for one in files if since <= one.day < until]
                )
        return found

    def check_restored(self) -> None:
        """Compares the restored days with the files."""
        since, until = self.days
        found = self.in_files(since, until)
        with psycopg.connect(self.url) as connection:
            connection.execute("set timezone to 'UTC'")
            for kind, which in OF_DAYS.items():
                rows, digests = self.sums(connection, kind, which, (since, until))
                held = found[kind]
                if (rows, digests % 2**64) != (held.rows, held.digests) or not rows:
                    self.violations.append(
                        f"{self.repository}: {kind.value}: {held.rows} rows of {since} to {until} "
                        f"are in files, and {rows} in the tables once they were restored"
                    )

    def check(self) -> None:
        """Compares files and tables with what was made."""
        found = self.in_files()
        for kind, made in self.made.items():
            held = found[kind]
            different = held.eids if kind is Kind.HISTORY else held.rows
            if (held.rows, different, held.digests) != (made.rows, made.rows, made.digests):
                same = "equal" if held.digests == made.digests else "differ"
                self.violations.append(
                    f"{self.repository}: {kind.value}: {made.rows} rows were made, {held.rows} are "
                    f"in files, {different} different ones; digests {same}"
                )
        left, old = ask(self.url, LEFT.format(r=self.repository), KEEP_DAYS)[0]
        if old or left < found[Kind.HISTORY].young:
            self.violations.append(
                f"{self.repository}: {left} rows of history are left, {old} of them too old, and "
                f"{found[Kind.HISTORY].young} may not be trimmed"
            )


def _held(kind: Kind, paths: list[Path]) -> Held:
    """Returns what is in files of a kind."""
    ended = OF_KIND[kind].column("finished_at") is not None
    columns = ["eid", "digest", *(["finished_at"] if ended else [])]
    tables = [pq.ParquetFile(path).read(columns=columns) for path in paths]
    if not tables:
        return Held()
    every: Any = pa.concat_tables(tables)
    digests = sum(every.column("digest").to_pylist()) % 2**64
    eids = int(pc.count_distinct(every.column("eid")).as_py())
    young = 0
    if ended:
        least = dt.datetime.now(dt.UTC) - dt.timedelta(days=KEEP_DAYS) + SLACK
        moment = pa.scalar(least, pa.timestamp("us", "UTC"))
        young = int(pc.sum(pc.greater(every.column("finished_at"), moment)).as_py() or 0)
    return Held(rows=every.num_rows, eids=eids, digests=digests, young=young)
