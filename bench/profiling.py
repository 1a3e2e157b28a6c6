"""`python -m bench profile`: what an operation of the hot path costs, and where.

For each scenario: processor time in the PostgreSQL backends, in the client and in the server
process, user and kernel; commits, WAL flushes and bytes; round trips, counted on the wire in a
pass of their own; context switches; and the functions of our Python with the most time of their
own. What idle polls cost in between is in the figures. `--sql NAME` times SQL functions without
any client: see `bench.sql_loops`. `--spark SIZE ...` is about Spark's micro-batches of these sizes:
see `bench.spark_profile`. `--archive ROWS` is about history of so many: see
`bench.archive_profile`. `--streams NUMBER` is about so many messages of a stream: see
`bench.stream_profile`.
"""

from __future__ import annotations

import argparse
import contextlib
import cProfile
import itertools
import json
import os
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import psycopg
from rich.console import Console
from rich.table import Table

import onceq
from bench import archive_profile, report, spark_profile, sql_loops, stream_profile
from bench.costs import SETTLE_S, Meter, Reading, costs
from bench.systems import prepared_ground
from bench.wire import relayed
from bench.workers import raw
from bench.workers.base import BODY, Dequeue, Pace, Publish, require_count
from bench.workers.crowd import Shared, serving
from bench.workers.onceq_worker import Served, init, serve_replies

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator, Sequence
    from types import CodeType

    from bench.systems import Ground
    from onceq import Context

NUMBER = 10_000
COUNTED = 400
"""Operations in the pass that counts round trips, and in the one under cProfile."""
WARM_UP = 100
TOP = 20
FILL = 10_000
QUEUE = onceq.Queue("work", bytes, bytes)


@dataclass(frozen=True, slots=True)
class Bench:
    """A repository, and the connection of the one who measures."""

    conninfo: str
    qm: onceq.QueueManager
    connection: psycopg.Connection[Any]


Measured = tuple[Reading, Reading, int]
Profile: TypeAlias = cProfile.Profile | None


def _settle() -> None:
    time.sleep(SETTLE_S)  # then the next commit reports all counts


def _readings(meter: Meter, work: Callable[[int], None], number: int, profile: Profile) -> Measured:
    """Read before and after; the operation after each pause reports the counts."""
    work(WARM_UP)
    _settle()
    work(1)
    before = meter.read()
    _switch(profile, on=True)
    work(number - 1)
    _switch(profile, on=False)
    _settle()
    work(1)
    return before, meter.read(), number


def _switch(profile: Profile, *, on: bool) -> None:
    if profile is not None:
        (profile.enable if on else profile.disable)()


def send(bench: Bench, number: int, profile: Profile) -> Measured:
    """Send one by one."""
    rids = map(str, itertools.count())
    with bench.qm.clerk(f"send-{time.monotonic_ns()}", QUEUE, window=100_000) as clerk:

        def work(times: int) -> None:
            for rid in itertools.islice(rids, times):
                clerk.send(rid, BODY)

        return _readings(Meter(bench.connection), work, number, profile)


def enqueue_batch(bench: Bench, number: int, profile: Profile) -> Measured:
    """Enqueue, 1000 in a transaction; an operation is one element."""

    def work(times: int) -> None:
        for _ in range(-(-times // 1000)):
            bench.qm.enqueue_many(QUEUE, [BODY] * 1000)

    before, after, _ = _readings(Meter(bench.connection), work, number, profile)
    return before, after, (-(-(number - 1) // 1000) + 1) * 1000


def serve(bench: Bench, number: int, profile: Profile) -> Measured:
    """Execute one at a time, each with one INSERT of the user."""
    return _served(bench, number, profile, limit=1)


def serve_batch(bench: Bench, number: int, profile: Profile) -> Measured:
    """Execute in batches of 100."""
    return _served(bench, number, profile, limit=100)


def _served(bench: Bench, number: int, profile: Profile, *, limit: int) -> Measured:
    """The server runs in this process; readings are taken inside the handler, between two."""
    meter, calls, readings = Meter(bench.connection), itertools.count(1), []
    first, last = WARM_UP + 2 * limit, WARM_UP + 2 * limit + number

    def handle(body: bytes, context: Context) -> bytes:
        call = next(calls)
        if call in (first - limit, last - limit):
            _switch(profile, on=False)
            _settle()
        elif call == first:
            readings.append(meter.read())
            _switch(profile, on=True)
        elif call == last:
            readings.append(meter.read())
            server.stop()
        context.connection.execute("insert into effect values (%s)", (body,))
        return b"ok"

    queue = onceq.Queue(f"serve-{time.monotonic_ns()}", bytes, bytes)
    server = onceq.Server([queue.handled_by(handle, batch=limit)])
    bench.qm.declare(queue)
    for size in range(0, last + limit, FILL):
        bench.qm.enqueue_many(queue, [BODY] * min(FILL, last + limit - size))
    server.run(bench.qm.located.url)
    before, after = readings
    return before, after, number


def ask(bench: Bench, number: int, profile: Profile) -> Measured:
    """Request and reply, one client; the server is a process of its own."""
    shared, rids = Shared(1), map(str, itertools.count())
    queue = onceq.Queue(f"ask-{time.monotonic_ns()}", bytes, bytes)
    bench.qm.declare(queue)
    known = set(_children())
    with (
        serving(serve_replies, shared, Served(bench.qm.located.url, queue), 1),
        bench.qm.clerk(queue.name, queue) as clerk,
    ):

        def work(times: int) -> None:
            for rid in itertools.islice(rids, times):
                clerk.transceive(rid, BODY, timeout_s=60)

        work(1)
        meter = Meter(bench.connection, set(_children()) - known)
        return _readings(meter, work, number, profile)


def raw_insert(bench: Bench, number: int, profile: Profile) -> Measured:
    """For comparison: the bare INSERT."""
    with contextlib.closing(raw.Inserting(bench.conninfo, 0)) as client:
        return _readings(Meter(bench.connection), client.work, number, profile)


def raw_dequeue(bench: Bench, number: int, profile: Profile) -> Measured:
    """For comparison: the bare DELETE and the user's INSERT, a statement a round trip."""
    asked = Dequeue(number=number, user_sql=True)
    bench.connection.execute(
        "insert into waiting (body) select %s from generate_series(1, %s)",
        (BODY, number + WARM_UP + 1),
    )
    with raw.connect(bench.conninfo) as connection:

        def work(times: int) -> None:
            for _ in range(times):
                require_count("executed", raw.plain_step(connection, asked), 1)

        return _readings(Meter(bench.connection), work, number, profile)


def _children() -> Iterator[int]:
    for thread in Path(f"/proc/{os.getpid()}/task").iterdir():
        yield from map(int, (thread / "children").read_text().split())


SCENARIOS: dict[str, Callable[[Bench, int, Profile], Measured]] = {
    "send": send,
    "enqueue-batch": enqueue_batch,
    "serve": serve,
    "serve-batch": serve_batch,
    "ask": ask,
    "raw-insert": raw_insert,
    "raw-dequeue": raw_dequeue,
}


@contextlib.contextmanager
def _bench(ground: Ground, conninfo: str) -> Generator[Bench]:
    with (
        onceq.open(conninfo) as qm,
        psycopg.connect(ground.conninfo, autocommit=True) as connection,
    ):
        yield Bench(conninfo, qm, connection)


def profiled(name: str, ground: Ground) -> tuple[dict[str, float], str]:
    """Return the costs of a scenario, and the functions that take most of Python's time."""
    scenario, profile = SCENARIOS[name], cProfile.Profile()
    with _bench(ground, ground.conninfo) as bench:
        found = costs(*scenario(bench, NUMBER, None))
        scenario(bench, COUNTED, profile)
    directory = ground.directory / f"wire-{name}"
    directory.mkdir()
    with relayed(ground.conninfo, directory) as relay, _bench(ground, relay.conninfo) as bench:
        few, many = (_trips(scenario, bench, relay, number) for number in (COUNTED, 2 * COUNTED))
    found["round trips"] = (many - few) / COUNTED
    return found, _top(profile, COUNTED)


def _trips(scenario: Any, bench: Bench, relay: Any, number: int) -> int:
    before = relay.count
    scenario(bench, number, None)
    return int(relay.count - before)


def _top(profile: cProfile.Profile, number: int) -> str:
    """Return the functions with the most time of their own, in microseconds an operation."""
    entries = sorted(profile.getstats(), key=lambda entry: entry.inlinetime, reverse=True)
    lines = [f"{'us':>8} {'calls':>7}  function"]
    for entry in entries[:TOP]:
        own, calls = entry.inlinetime / number * 1e6, entry.callcount / number
        lines.append(f"{own:8.1f} {calls:7.2f}  {_named(entry.code)}")
    return "\n".join(lines)


def _named(code: CodeType | str) -> str:
    if isinstance(code, str):
        return code
    place = Path(code.co_filename)
    return f"{place.parent.name}/{place.name}:{code.co_firstlineno} {code.co_qualname}"


def _rounded(found: dict[str, float]) -> dict[str, float]:
    return {key: round(value, 3) for key, value in found.items()}


def table(found: dict[str, dict[str, float]]) -> Table:
    """Return the costs of all scenarios side by side."""
    made = Table("per operation", *found)
    for measure in dict.fromkeys(key for one in found.values() for key in one):
        cells = [f"{one[measure]:,.2f}" if measure in one else "" for one in found.values()]
        made.add_row(measure, *cells)
    return made


def main(arguments: Sequence[str]) -> int:
    """Profile what is named, or everything."""
    parser = argparse.ArgumentParser(prog="python -m bench profile", description=__doc__)
    parser.add_argument("names", nargs="*", help=f"of {', '.join(SCENARIOS)}; all")
    parser.add_argument("--sql", choices=[*sql_loops.LOOPS, "all"], help="time SQL functions")
    parser.add_argument(
        "--spark", type=int, nargs="+", metavar="SIZE", help="micro-batches of so many"
    )
    parser.add_argument("--archive", type=int, metavar="ROWS", help="history of so many rows")
    parser.add_argument("--streams", type=int, metavar="NUMBER", help="messages of a stream")
    parser.add_argument("--flight", type=int, default=10_000, help="of --streams: not yet stable")
    parser.add_argument("--per-s", type=int, help="of --streams: sent at this pace, and told")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args(arguments)
    if unknown := set(options.names) - set(SCENARIOS):
        parser.error(f"no such scenario: {', '.join(sorted(unknown))}")
    if options.streams:
        sent = Publish(number=options.streams, flight=options.flight)
        paced = Pace(number=options.streams, per_s=options.per_s) if options.per_s else sent
        return stream_profile.report(paced, as_json=options.json)
    with (
        tempfile.TemporaryDirectory(prefix="onceq-bench-") as directory,
        prepared_ground(Path(directory)) as ground,
    ):
        init(ground.conninfo)
        with psycopg.connect(ground.conninfo, autocommit=True) as connection:
            connection.execute(raw.TABLES.encode())
            connection.execute("alter system set autovacuum = off")
            connection.execute("select pg_reload_conf()")
        if options.sql:
            return sql_loops.report(options.sql, ground.conninfo, as_json=options.json)
        if options.spark:
            return spark_profile.report(options.spark, ground, as_json=options.json)
        if options.archive:
            return archive_profile.report(options.archive, ground, as_json=options.json)
        return _report(options.names or list(SCENARIOS), ground, as_json=options.json)


def _report(names: Sequence[str], ground: Ground, *, as_json: bool) -> int:
    with onceq.open(ground.conninfo) as qm:
        qm.declare(QUEUE)
    console, found = Console(), {}
    if not as_json:
        console.print(f"of revision {report.revision()}")
    for name in names:
        found[name], top = profiled(name, ground)
        if as_json:
            print(
                json.dumps({"v": 1, "kind": "profile", "scenario": name, **_rounded(found[name])})
            )
        else:
            console.print(f"[bold]{name}[/bold]: Python's own time\n{top}", highlight=False)
    if not as_json:
        console.print(table(found))
    return 0
