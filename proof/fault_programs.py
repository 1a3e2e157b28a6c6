"""What meets fault points: real programs on onceq, each begun again until it ends by itself.

Run by proof/fault_ground.py, each in a process of its own, which may be killed at any point. It
learns of its former lives from the repository, its device and its files, and ends when all is done.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import os
import sys
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import psycopg

import onceq
from onceq import errors
from onceq.engine import faultpoints
from onceq.engine.embedded.locate import locate
from onceq.engine.perform.async_driver import AsyncPostgresDriver
from onceq.engine.perform.driver import PostgresDriver
from onceq.engine.schema.migrate import apply_with
from onceq.files import CollectOrder, SubmitOrder, collect, submit
from onceq.history.events import Recorder
from onceq.testing.device import Device
from proof import fault_calls, fault_desk, fault_ledgers, fault_retention, fault_ticks
from proof.fault_handlers import AsyncLedgerHandler, LateHandler
from proof.harness.ledger import EFFECTS, Order, Receipt
from proof.harness.orders import RecordedClerk
from proof.harness.processes import say_into
from proof.waited import connect_waited, open_waited

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

ROUNDS: Final = 3
"""How often a program does its work: each point is reached at least this often."""
Orders: TypeAlias = onceq.Queue[Order, Receipt]
QUEUE: Final[Orders] = onceq.Queue("orders", Order, Receipt, abort_limit=3, backoff_ms=1)
ALERTS: Final = onceq.Queue("alerts", bytes, bytes)
PLANNED: Final = 17
"""Exit code of a program that a planned fault has ended."""
LIVES_MAX: Final = 20
"""How often a program begins again within a process, after a loss of its connection."""
LIMIT_S: Final = 20.0
SPARK_LIMIT_S: Final = 180.0
"""How long a client waits for Spark, whose driver may have to begin first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Errand:
    """What a process is started with. place: its trial's directory. armed: for `arm`, or empty.

    rounds: how many embedded servers, or rounds for Spark; all else is done ROUNDS times.
    runner: of the loop in which the program awaits its calls; None: it calls the sync twins.
    """

    program: str
    url: str
    repository: str
    place: Path
    armed: str = ""
    rounds: int = ROUNDS
    runner: asyncio.Runner | None = None

    def open(self) -> onceq.QueueManager:
        """Opens the repository, sync or async; for a `with` block."""
        if self.runner is not None:
            return open_waited(self.runner, self.url, self.repository)
        return onceq.open(self.url, repository=self.repository)

    def connect(self) -> psycopg.Connection[Any]:
        """Connects as a caller with transactions of its own does, sync or async."""
        if self.runner is not None:
            return connect_waited(self.runner, self.url)
        return psycopg.connect(self.url)


def enter(errand: Errand) -> None:
    """Runs a program in this process, which ends with it; its output goes into a file."""
    say_into(errand.place / "said")
    if errand.armed:
        faultpoints.arm(errand.armed)
        faultpoints.pointed(PostgresDriver)
        faultpoints.pointed(AsyncPostgresDriver)
    code = _run(errand)
    sys.stderr.flush()
    os._exit(code)  # a thread of a server that failed must not keep the process


def _run(errand: Errand) -> int:
    for _ in range(LIVES_MAX):
        try:
            PROGRAMS[errand.program](errand)
        except faultpoints.PlannedFault:
            return PLANNED
        except (errors.OperatingError, psycopg.OperationalError) as error:
            sys.stderr.write(f"{errand.program} begins again: {type(error).__name__}: {error}\n")
        else:
            return 0
    return 1


# --- clients -----------------------------------------------------------------------------------


@contextlib.contextmanager
def _clerk(errand: Errand, name: str, window: int = 1) -> Generator[RecordedClerk[Order, Receipt]]:
    path = errand.place / f"client-{name}-{os.getpid()}.events"
    with errand.open() as qm, Recorder(path) as recorder:
        clerk = qm.clerk(name, QUEUE, window=window)
        with contextlib.closing(clerk):
            yield RecordedClerk(clerk, recorder, alone=window == 1)


def one_at_a_time(errand: Errand) -> None:
    """The client of BHM90 figure 2, which ends its session after every second request."""
    device = Device(errand.place / "lines")

    def process() -> None:
        clerk.process(lambda reply: device.output(reply.rid), device, timeout_s=LIMIT_S)

    with _clerk(errand, "till") as clerk, contextlib.closing(device):
        for _ in range(ROUNDS + 1):
            clerk.connect()
            process()
            sent = int(clerk.clerk.last_sent or 0)
            for number in range(sent + 1, min(sent + 2, 2 * ROUNDS) + 1):
                (answer,) = clerk.send_many([(str(number), Order())])
                if number % 2 == 0:
                    clerk.cancel_last_request(str(answer.eid))
                process()
            clerk.satisfied()
            if not clerk.clerk.was_disconnected or sent < 2 * ROUNDS:
                clerk.disconnect()


def many_at_a_time(errand: Errand) -> None:
    """A client with a window: it sends three at once, receives them, and frees them."""
    with _clerk(errand, "shop", window=10) as clerk:
        clerk.connect()
        sent = int(clerk.clerk.last_sent or 0)
        _note_looked(errand, sent)  # for late requests of a former life
        _receive_all(clerk)
        for first in range(sent + 1, 3 * ROUNDS + 1, 3):
            clerk.send_many([(str(number), Order()) for number in range(first, first + 3)])
            clerk.clerk.alert_late(ALERTS.name, late_s=0)
            _note_looked(errand, first + 2)
            _receive_all(clerk)
        clerk.satisfied()
        if not clerk.clerk.was_disconnected:
            clerk.disconnect()


def one_way(errand: Errand) -> None:
    """A client whose next call tells it whether what it sent is stable."""
    with _clerk(errand, "poster", window=10) as clerk:
        clerk.connect()
        _receive_all(clerk)
        sent = int(clerk.clerk.last_sent or 0)
        for number in range(sent + 1, 2 * ROUNDS + 1):
            clerk.send_one_way(str(number), Order())
            if number % 2 == 0:
                _receive_all(clerk)
        clerk.satisfied()
        if not clerk.clerk.was_disconnected:
            clerk.disconnect()


def at_a_desk(errand: Errand) -> None:
    """Clients that share one connection."""
    with errand.open() as qm:
        fault_desk.at_a_desk(qm, QUEUE, errand.place)


def _note_looked(errand: Errand, last: int) -> None:
    """Lets the requests up to this one be served."""
    for number in range(1, last + 1):
        (errand.place / f"looked-{number}").touch()


def _receive_all(clerk: RecordedClerk[Order, Receipt], limit_s: float = LIMIT_S) -> None:
    while clerk.clerk.outstanding:  # each receive takes at least one, or raises
        replies = clerk.receive_many(10, timeout_s=limit_s)
        clerk.acknowledge([reply.rid for reply in replies])


def ordering(errand: Errand) -> None:
    """The client of a server under trial."""
    _order(errand, ROUNDS, LIMIT_S)


def ordering_once_more(errand: Errand) -> None:
    """The client of Spark under trial: one more round must be served after the last strike."""
    _order(errand, errand.rounds + 1, SPARK_LIMIT_S)


def _order(errand: Errand, rounds: int, limit_s: float) -> None:
    """Orders rounds of four at once, one of which is to fail."""
    with _clerk(errand, "shop", window=30) as clerk:
        clerk.connect()
        for one in range(1, rounds + 1):
            requests = [(f"{one}.{n}", Order("fail" if n == 2 else "book")) for n in range(1, 5)]
            clerk.send_many(requests)
            _receive_all(clerk, limit_s)
            (errand.place / f"round-{one}").touch()
        clerk.satisfied()
        clerk.disconnect()


# --- servers -----------------------------------------------------------------------------------


def serving_late(errand: Errand) -> None:
    """A server that is slower than its client looks; until it is ended."""
    handled = QUEUE.handled_by(LateHandler(_recorder(errand), errand.repository, errand.place))
    onceq.Server([handled]).run(errand.url, repository=errand.repository)


def serving(errand: Errand) -> None:
    """A server of one request at a time."""
    _serve(errand, QUEUE.handled_by(_handler(errand)))


def serving_batches(errand: Errand) -> None:
    """A server of four requests at once."""
    _serve(errand, QUEUE.handled_by(_handler(errand), batch=4))


def serving_async(errand: Errand) -> None:
    """A server whose handler is a coroutine."""
    _serve(errand, QUEUE.handled_by(_handler(errand).call))


def standing_by(errand: Errand) -> None:
    """A server that serves until it is ended: the other one, beside one taken for dead."""
    onceq.Server([QUEUE.handled_by(_handler(errand))]).run(errand.url, repository=errand.repository)


DEATHS: Final = ("round", "judged")


def serving_among_the_dead(errand: Errand) -> None:
    """A server of one request at a time, which also judges a missing process in each round."""
    _serve(errand, QUEUE.handled_by(_handler(errand)), until=DEATHS)


def serving_among_the_dead_async(errand: Errand) -> None:
    """The same, whose handler is a coroutine."""
    _serve(errand, QUEUE.handled_by(_handler(errand).call), until=DEATHS)


def dying(errand: Errand) -> None:
    """Servers that die in their handlers, each once the previous one was judged."""
    for one in range(1, ROUNDS + 1):
        with errand.open() as qm:
            qm.enqueue(ALERTS, str(one).encode())
        fault_calls.die_in_a_handler(ALERTS, errand.url, errand.repository)
        (errand.place / f"judged-{one}").touch()


def _handler(errand: Errand) -> AsyncLedgerHandler:
    return AsyncLedgerHandler(_recorder(errand), errand.repository)


def _recorder(errand: Errand) -> Recorder:
    path = errand.place / f"server-{os.getpid()}.events"
    return Recorder(path, f"server {os.getpid()}")


EACH_ROUND: Final = ("OpenIncarnation.after", "Survey.after", "Sweep.after", "TakeOver.after")


def _serve(errand: Errand, handled: Any, *, until: tuple[str, ...] = ("round",)) -> None:
    """Serves each round with a server of its own, until the client has its replies.

    It also waits until this round has opened a session, looked for the dead, and moved the marks:
    the previous round may have served its client too. until: what others note of each round.
    """
    for one in range(1, ROUNDS + 1):
        over = errand.place / f"over-{one}"
        if not over.exists():
            server = onceq.Server([handled])
            wanted = dict.fromkeys(EACH_ROUND, one) if errand.armed else {}
            noted = [errand.place / f"{what}-{one}" for what in until]
            watched = (server, errand.place, noted, wanted)
            threading.Thread(target=fault_calls.stop_after, args=watched, daemon=True).start()
            server.run(errand.url, repository=errand.repository)
            over.touch()


# --- the queue manager, files, the schema, the embedded server ------------------------------------


def asking_the_queue_manager(errand: Errand) -> None:
    """Everything that a queue manager does, in its own transactions and in the caller's."""
    with errand.open() as qm:
        for _ in range(ROUNDS):
            fault_calls.administer(qm)
            fault_calls.register(qm)
        fault_calls.enqueue_tagged(qm, ROUNDS)
        with errand.connect() as connection:
            fault_calls.enqueue_in_transactions(qm, connection, ROUNDS)
            fault_calls.dequeue_in_transactions(qm, connection, 2 * ROUNDS)
            fault_calls.tag_in_transactions(qm, connection, ROUNDS)
            for _ in range(ROUNDS):
                fault_calls.kill_and_redrive(qm, connection)
                fault_calls.hold_and_release(qm, connection)
        for number in range(1, ROUNDS + 1):
            fault_calls.reply_by_hand(qm, errand.connect, str(number))
    with errand.open() as qm:
        fault_calls.take_the_rest(qm)


def moving_files(errand: Errand) -> None:
    """Submits files and collects their replies, by small batches, into CSV and Parquet."""
    vars(sys.modules["onceq.files.submit"])["BATCH_ROWS"] = 2
    vars(sys.modules["onceq.files.collect"])["BATCH_REPLIES"] = 2
    located = locate(errand.url)
    for one in range(1, ROUNDS + 1):
        for suffix in ("csv", "parquet"):
            client = f"{suffix}-{one}"
            rows = errand.place / f"{client}.rows.csv"
            keys = [f"{number},{client}-{number}" for number in range(1, 5)]
            rows.write_text("\n".join(["id,key", *keys]) + "\n")
            out = errand.place / f"{client}.{suffix}"
            submit(
                SubmitOrder(path=rows, queue=QUEUE.name, rid="id", client=client),
                located,
                errand.repository,
            )
            collect(
                CollectOrder(client=client, out=out, timeout_s=LIMIT_S), located, errand.repository
            )


def migrating(errand: Errand) -> None:
    """Makes repositories, and brings one up to date whose functions are of another version."""
    for one in range(1, ROUNDS + 1):
        name = f"{errand.repository}_{one}"
        apply_with(errand.url, name)
        with psycopg.connect(errand.url) as connection:
            connection.execute(f"update {name}.repository set functions_sha256 = ''".encode())
        apply_with(errand.url, name)


def embedding(errand: Errand) -> None:
    """Starts and stops embedded servers, each in a directory of its own."""
    for one in range(1, errand.rounds + 1):
        known = errand.place / f"known-{one}"
        with onceq.open(f"embedded:{errand.place}/postgresql-{one}") as qm:
            qm.declare(QUEUE)
            qm.enqueue(QUEUE, Order(key=str(one)))
            with known.open("a") as file:
                file.write("known\n")


def _awaited(program: Callable[[Errand], None]) -> Callable[[Errand], None]:
    """Returns the same program on the async twins of what it calls."""

    def run(errand: Errand) -> None:
        with asyncio.Runner() as runner:
            program(dataclasses.replace(errand, runner=runner))

    return run


PROGRAMS: Final[dict[str, Callable[[Errand], None]]] = {
    **fault_ledgers.PROGRAMS,
    **(fault_retention.PROGRAMS | fault_ticks.PROGRAMS),
    "one_at_a_time": one_at_a_time,
    "one_at_a_time_async": _awaited(one_at_a_time),
    "many_at_a_time": many_at_a_time,
    "many_at_a_time_async": _awaited(many_at_a_time),
    "at_a_desk": at_a_desk,
    "one_way": one_way,
    "one_way_async": _awaited(one_way),
    "ordering": ordering,
    "ordering_once_more": ordering_once_more,
    "serving": serving,
    "serving_late": serving_late,
    "serving_batches": serving_batches,
    "serving_async": serving_async,
    "serving_among_the_dead": serving_among_the_dead,
    "serving_among_the_dead_async": serving_among_the_dead_async,
    "dying": dying,
    "standing_by": standing_by,
    "asking_the_queue_manager": asking_the_queue_manager,
    "asking_the_queue_manager_async": _awaited(asking_the_queue_manager),
    "moving_files": moving_files,
    "migrating": migrating,
    "embedding": embedding,
}

__all__ = ["EFFECTS", "PLANNED", "PROGRAMS", "QUEUE", "ROUNDS", "Errand", "enter"]
