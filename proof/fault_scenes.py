"""The scenes in which fault points are met: which program meets which points, beside which others.

A table, used by proof/faultpoints.py and proof/fault_ground.py. Every point of the product is
in at least one scene, those of Spark in scenes of their own (proof/sparkpoints); a scene that does
not reach its points fails.
"""

from __future__ import annotations

import csv
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from pyarrow import parquet

import onceq
from onceq.engine.embedded import embedded_status, stop_embedded
from onceq.engine.schema.migrate import verify_with
from proof import fault_ledgers, fault_retention, fault_ticks
from proof.fault_calls import RECEIVED
from proof.fault_programs import QUEUE, ROUNDS
from proof.harness.ledger import ask

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from onceq.history.events import FinalState


@dataclass(frozen=True, slots=True, kw_only=True)
class Left:
    """What a trial has left behind. place: its directory."""

    place: Path
    conninfo: str
    repository: str
    final: FinalState


def nothing(_: Left) -> Iterator[str]:
    """The history says everything."""
    yield from ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Scene:
    """A program that meets points, and the programs beside it. endless: those that must be ended.

    revocable: points at which the process holds claims and locks nothing: there it can be taken for
    dead, and another can finish what it holds before it goes on.
    is_twin: another scene is the same on the sync driver, or with another ledger.
    goes_on: an exception at a point is told to whoever asked, and the process goes on.
    leaves_alerts: datagrams that no server serves stay queued, and its check looks at them.
    over_a_wire: False if there is no connection to lose. abort_limit: of the requests; None
    if queues differ.
    """

    program: str
    points: frozenset[str]
    beside: tuple[str, ...] = ()
    endless: tuple[str, ...] = ()
    over_a_wire: bool = True
    leaves_alerts: bool = False
    is_twin: bool = False
    goes_on: bool = False
    revocable: frozenset[str] = frozenset()
    abort_limit: int | None = QUEUE.settings.abort_limit
    check: Callable[[Left], Iterator[str]] = nothing


def _around(*names: str) -> frozenset[str]:
    return frozenset(f"{name}.{when}" for name in names for when in ("before", "after"))


def _lines(left: Left) -> Iterator[str]:
    printed = (left.place / "lines").read_text().split()
    if printed != [str(number) for number in range(1, 2 * ROUNDS + 1)]:
        yield f"G5: the device printed {printed}"


def _alerts(left: Left) -> Iterator[str]:
    query = (
        "select convert_from(body, 'UTF8')::jsonb ->> 'rid', count(*)"
        f" from {left.repository}.element where role = 'datagram' group by 1"
    )
    counts: dict[str, int] = dict(ask(left.conninfo, query))
    if set(counts.values()) - {1} or not set(counts) <= {str(n) for n in range(1, 3 * ROUNDS + 1)}:
        yield f"G2: the alerts of late requests are {counts}"
    if not counts:
        yield "G4: no request was alerted of"


def _posts(left: Left) -> Iterator[str]:
    keys = Counter(one.key for one in left.final.effects)
    if keys != Counter(str(number) for number in range(1, 2 * ROUNDS + 1)):
        yield f"G2, G4: of what was sent one way the ledger has {dict(keys)}"


def _deaths(left: Left) -> Iterator[str]:
    query = f"select eid, aborts from {left.repository}.element where role = 'datagram'"
    found = ask(left.conninfo, query)
    if len(found) != ROUNDS or sum(aborts for _, aborts in found) != ROUNDS:
        yield f"G4, G7: of {ROUNDS} servers that died, each in a handler, there is {found}"


_ENDED: Final = (
    "select outcome::text from {0}.history join {0}.queue using (queue_id) where name = 'tagged'"
    " union all select 'left' from {0}.element join {0}.queue using (queue_id)"
    " where name = 'tagged'"
)


def _things(left: Left) -> Iterator[str]:
    keys = Counter(one.key for one in left.final.effects)
    wanted = [f"{kind}{number}" for kind in "te" for number in range(1, ROUNDS + 1)]
    wanted += [f"asked {number}" for number in range(1, ROUNDS + 1)]
    if keys != Counter(wanted):
        yield f"G2: the ledger has {dict(keys)}"
    taken = ask(left.conninfo, f"select number from {left.repository}.enqueued order by 1")
    numbers = [number for (number,) in taken]
    once = list(range(1, ROUNDS + 1))
    if numbers != [*once, *(RECEIVED + number for number in once)]:
        yield f"G4, G5: enqueued and received in the caller's transactions: {taken}"
    ended = Counter(ask(left.conninfo, _ENDED.format(left.repository)))
    if ended != Counter({("cancelled",): ROUNDS, ("dequeued",): ROUNDS}):
        yield f"G2, G6: of what was tagged in the caller's transactions: {dict(ended)}"


def _rids_in(path: Path) -> list[str]:
    if path.suffix == ".parquet":
        column: list[str] = parquet.read_table(path).column("rid").to_pylist()
        return column
    with path.open(newline="") as file:
        return [row["rid"] for row in csv.DictReader(file)]


def _files(left: Left) -> Iterator[str]:
    keys = Counter(one.key for one in left.final.effects)
    for one in range(1, ROUNDS + 1):
        for suffix in ("csv", "parquet"):
            client = f"{suffix}-{one}"
            found = sorted(_rids_in(left.place / f"{client}.{suffix}"))
            if found != ["1", "2", "3", "4"]:
                yield f"G5: {client} has {found}"
            if any(keys.pop(f"{client}-{number}", 0) != 1 for number in range(1, 5)):
                yield f"G2: {client}: not each has one effect"
    if keys:
        yield f"G4: effects of what was never sent: {dict(keys)}"


def _schemas(left: Left) -> Iterator[str]:
    for one in range(1, ROUNDS + 1):
        name = f"{left.repository}_{one}"
        try:
            verify_with(left.conninfo, name)
        except onceq.OnceqError as error:
            yield f"{name}: {error}"
        ask(left.conninfo, f"drop schema if exists {name} cascade")


def _embedded(left: Left) -> Iterator[str]:
    for directory in sorted(left.place.glob("postgresql-*")):
        one = directory.name.removeprefix("postgresql-")
        known = (left.place / f"known-{one}").read_text().count("known")
        with onceq.open(f"embedded:{directory}") as qm:
            there = qm.show("orders").depth
        if there < known:
            yield f"G4: {known} were acknowledged in server {one}, {there} are there"
        stop_embedded(directory, force=True)
        if embedded_status(directory).running:
            yield f"server {one} cannot be stopped"


CLERK: Final = _around("Connect", "Send", "Receive", "Act", "CancelRequest", "Disconnect")
WINDOW: Final = _around("SendMany", "AlertLate", "Acknowledge")
DESK: Final = _around("SendEach", "AcknowledgeEach")
LEDGER: Final = _around(
    *("TakeLedger", "WriteLedger", "BeginLedger", "CommitLedger", "RollbackLedger")
)
LIFE: Final = _around("OpenIncarnation", "CloseIncarnation", "TakeOver", "Sweep", "Survey", "Claim")
EXECUTION: Final = _around("Begin", "Call", "Finish", "Commit", "Rollback", "AbortElement")
HOLDING: Final = frozenset({"Call.after", "Finish.before"})
"""Not before its handler: a process taken for dead there still calls it, in vain, in a transaction
that cannot commit, and the checker would see an execution after the failure was told (G3)."""
QUEUE_MANAGER: Final = _around(
    *("CreateQueue", "AlterQueue", "DestroyQueue", "Enqueue", "EnqueueMany", "Dequeue"),
    *("Take", "SetTerms", "AbortTaken", "ReplyTaken", "Kill", "Redrive", "Settle", "Register"),
    *("RetryHeld", "GiveUpHeld"),
    *("Deregister", "ForgetClient", "CloseClient", "EnqueueTagged", "ClaimEid"),
    *("ReadTagged", "KillTagged", "TakeTagged"),
    *("BeginReply", "TakeReply", "SettleReply"),
)
TICKING: Final = _around(
    *("CreatePeriodic", "AlterPeriodic", "PausePeriodic", "RemovePeriodic", "Tick", "HoldTick")
)
RETIRING: Final = _around("RetireHistory", "HoldRetention")
VERDICT: Final = _around("Judge")

SCENES: Final[dict[str, Scene]] = {
    "a client": Scene(
        program="one_at_a_time",
        beside=("serving",),
        endless=("serving",),
        points=CLERK,
        check=_lines,
    ),
    "a client with a window": Scene(
        program="many_at_a_time",
        beside=("serving_late",),
        endless=("serving_late",),
        points=WINDOW,
        check=_alerts,
        leaves_alerts=True,
    ),
    "a client that does not wait": Scene(
        program="one_way",
        beside=("serving",),
        endless=("serving",),
        points=_around("Post", "Posted"),
        check=_posts,
    ),
    "a client with a ledger in a file": Scene(
        program="ledger_in_sqlite",
        is_twin=True,
        beside=("serving",),
        endless=("serving",),
        points=LEDGER,
        check=fault_ledgers.sqlite_rows,
    ),
    "a client with a ledger in the database": Scene(
        program="ledger_in_the_database",
        is_twin=True,
        beside=("serving",),
        endless=("serving",),
        points=LEDGER,
        check=fault_ledgers.rows,
    ),
    "a client with a ledger in another database": Scene(
        program="ledger_in_another_database",
        beside=("serving",),
        endless=("serving",),
        points=LEDGER - _around("CommitLedger") | _around("PrepareLedger", "EndPrepared"),
        check=fault_ledgers.other_rows,
    ),
    "a client with a ledger in a queue": Scene(
        program="ledger_in_a_queue",
        is_twin=True,
        leaves_alerts=True,
        beside=("serving",),
        endless=("serving",),
        points=LEDGER,
        check=fault_ledgers.rows,
    ),
    "an async client": Scene(
        program="one_at_a_time_async",
        is_twin=True,
        beside=("serving",),
        endless=("serving",),
        points=CLERK,
        check=_lines,
    ),
    "an async client with a window": Scene(
        program="many_at_a_time_async",
        is_twin=True,
        beside=("serving_late",),
        endless=("serving_late",),
        points=WINDOW,
        check=_alerts,
        leaves_alerts=True,
    ),
    "an async client that does not wait": Scene(
        program="one_way_async",
        is_twin=True,
        beside=("serving",),
        endless=("serving",),
        points=_around("Post", "Posted"),
        check=_posts,
    ),
    "a server": Scene(
        program="serving", beside=("ordering",), points=LIFE | EXECUTION, revocable=HOLDING
    ),
    "a server of batches": Scene(
        program="serving_batches",
        beside=("ordering",),
        points=EXECUTION,
    ),
    "an async server": Scene(
        program="serving_async",
        is_twin=True,
        beside=("ordering",),
        points=LIFE | EXECUTION,
        revocable=HOLDING,
    ),
    "a server among the dead": Scene(
        program="serving_among_the_dead",
        beside=("ordering", "dying"),
        points=VERDICT,
        abort_limit=None,
        leaves_alerts=True,
        check=_deaths,
    ),
    "an async server among the dead": Scene(
        program="serving_among_the_dead_async",
        is_twin=True,
        beside=("ordering", "dying"),
        points=VERDICT,
        abort_limit=None,
        leaves_alerts=True,
        check=_deaths,
    ),
    "clients at a desk": Scene(
        program="at_a_desk",
        beside=("serving",),
        endless=("serving",),
        goes_on=True,
        points=DESK,
    ),
    "a queue manager": Scene(
        program="asking_the_queue_manager",
        beside=("serving",),
        endless=("serving",),
        points=QUEUE_MANAGER,
        abort_limit=None,
        check=_things,
    ),
    "an async queue manager": Scene(
        program="asking_the_queue_manager_async",
        is_twin=True,
        beside=("serving",),
        endless=("serving",),
        points=QUEUE_MANAGER,
        abort_limit=None,
        check=_things,
    ),
    "a ticker": Scene(
        program="ticking", points=TICKING, leaves_alerts=True, check=fault_ticks.each_once
    ),
    "an async ticker": Scene(
        program="ticking_async",
        is_twin=True,
        points=TICKING,
        leaves_alerts=True,
        check=fault_ticks.each_once,
    ),
    "a caretaker": Scene(
        program="retiring", points=RETIRING, leaves_alerts=True, check=fault_retention.gone
    ),
    "an async caretaker": Scene(
        program="retiring_async",
        is_twin=True,
        points=RETIRING,
        leaves_alerts=True,
        check=fault_retention.gone,
    ),
    "files": Scene(
        program="moving_files",
        beside=("serving",),
        endless=("serving",),
        points=_around("SendMany", "Acknowledge")
        | {"file.cut", "file.written", "file.durable", "file.named"}
        | {"parquet.written", "parquet.named"},
        check=_files,
    ),
    "a schema": Scene(
        program="migrating", points=frozenset({"migrate.made", "migrate.committed"}), check=_schemas
    ),
    "an embedded server": Scene(
        program="embedding",
        points=frozenset(
            {
                "embedded.cluster_made",
                "embedded.cluster_named",
                "embedded.launched",
                "embedded.stopping",
                "embedded.stopped",
            }
        ),
        over_a_wire=False,
        check=_embedded,
    ),
}

LAST: Final = frozenset(
    {
        ("CloseIncarnation.after", ROUNDS),
        ("file.named", 2 * ROUNDS),
        ("parquet.written", ROUNDS),
        ("parquet.named", ROUNDS),
    }
)
"""Points after whose last time nothing commits: no connection can be cut at a commit there."""
