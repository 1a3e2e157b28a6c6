"""Scenes in which a request does not run: one for each reason that `onceq explain` may give.

A scene is a context manager over a stage. It yields how to ask for the request, and the names of
the reasons that hold, in order.
"""

from __future__ import annotations

import contextlib
import os
import signal
import uuid
from collections.abc import Generator
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import psycopg

import onceq
from onceq.engine.perform.driver import connect
from onceq.engine.perform.spark_driver import SparkDriver
from onceq.files import TrimOrder, trim_history
from onceq.model import ops
from onceq.model.element import Charge
from onceq.model.spark_ops import SparkClaim, SparkOpen
from onceq.model.stream_ops import RelayBegin, RelayOpen, RelayPlan
from tests.cli.failure_scenes import behind_what_is_held, held, on_hold, paused
from tests.cli.playing import STRICT, Asked, Played, Scene
from tests.cli.serve_app import ORDERS
from tests.cli.stage import RAW, Stage
from tests.lives import Life
from tests.parts import driving, scalar, serving, wait_until

VOLATILE: Final = onceq.Queue("volatile", bytes, bytes, durable=False)
HOUR: Final = timedelta(hours=1)


@contextlib.contextmanager
def unknown_client(_: Stage) -> Played:
    yield Asked(client="nobody", rid="1", reasons=("no_client",))


@contextlib.contextmanager
def unknown_request(stage: Stage) -> Played:
    with stage.qm.clerk("till", RAW):
        yield Asked(client="till", rid="1", reasons=("unknown_rid",))


@contextlib.contextmanager
def not_committed(stage: Stage) -> Played:
    with driving(stage.conninfo, stage.qm.repository) as driver:
        who = driver.perform(ops.Connect(name="till")).who
        driver.connection.execute("begin")
        request = ops.Request(rid="1", body=b"x")
        send = ops.Send(
            who=who, queue="raw", request=request, send_no=1, ack=[], own_transaction=False
        )
        driver.perform(send)
        yield Asked(client="till", rid="1", reasons=("uncommitted", "unknown_rid"))


@contextlib.contextmanager
def not_enqueued(stage: Stage) -> Played:
    with psycopg.connect(stage.conninfo) as connection:
        eid = stage.put(connection=connection)
        yield Asked(eid=eid, reasons=("no_element",))


@contextlib.contextmanager
def of_another_client(stage: Stage) -> Played:
    with stage.qm.clerk("till-7", RAW) as clerk, stage.qm.clerk("till-8", RAW):
        clerk.send("1", b"x")
        yield Asked(client="till-8", rid="1", reasons=("other_client", "unknown_rid"))


@contextlib.contextmanager
def of_a_similar_name(stage: Stage) -> Played:
    with stage.qm.clerk("till-7", RAW):
        yield Asked(client="Till_7", rid="1", reasons=("similar_name", "no_client"))


@contextlib.contextmanager
def trimmed(stage: Stage) -> Played:
    qm = stage.qm
    with (
        serving(stage.conninfo, qm.repository, RAW.handled_by(lambda request, _: request)),
        qm.clerk("till", RAW) as clerk,
    ):
        for rid in ("1", "2"):
            clerk.transceive(rid, b"x", timeout_s=60)
        clerk.disconnect()
    trim_history(TrimOrder(keep_days=0, unarchived=True), qm.located, qm.repository)
    yield Asked(client="till", rid="1", reasons=("trimmed",))


@contextlib.contextmanager
def runs(stage: Stage) -> Played:
    with stage.served() as life, stage.qm.clerk("till", RAW) as clerk:
        clerk.send("1", b"x")
        life.begin(life.claim_one("raw"))
        yield Asked(client="till", rid="1", reasons=("runs",))
        life.rollback()


@contextlib.contextmanager
def process_was_killed(stage: Stage) -> Generator[int]:
    """Yields the pid of a real server process that was killed with request "1" of "till"."""
    stage.execute("create table {0}.effects (rid text)")
    stage.qm.declare(ORDERS)
    started = stage.place / "started"
    server = stage.cli.start("serve", "tests.cli.serve_app:server")
    try:
        with stage.qm.clerk("till", ORDERS) as clerk:
            clerk.send("1", f"sleep {started}")
            wait_until(lambda: started.exists() and bool(started.read_text()))
        pid = int(started.read_text())
        server.send_signal(signal.SIGSTOP)  # a supervisor would see the death, and start another
        os.kill(pid, signal.SIGKILL)
        backends = "select count(*) from pg_stat_activity where application_name <> '' and pid = %s"
        backend = scalar(
            stage.conninfo,
            f"select backend_pid from {stage.qm.repository}.server where pid = %s",
            pid,
        )
        wait_until(lambda: scalar(stage.conninfo, backends, backend) == 0)
        yield pid
    finally:
        server.kill()
        server.communicate()


@contextlib.contextmanager
def server_gone(stage: Stage) -> Played:
    with process_was_killed(stage):
        yield Asked(client="till", rid="1", reasons=("server_gone",))


@contextlib.contextmanager
def verdict(stage: Stage) -> Played:
    with process_was_killed(stage), stage.served("orders") as other:
        assert other.take_over() == 1
        yield Asked(client="till", rid="1", reasons=("verdict",))


@contextlib.contextmanager
def dequeued(stage: Stage) -> Played:
    eid = stage.put()
    with psycopg.connect(stage.conninfo) as connection:
        assert stage.qm.dequeue("raw", connection=connection) is not None
        yield Asked(eid=eid, reasons=("dequeued",))


@contextlib.contextmanager
def spark(stage: Stage) -> Played:
    eid = stage.put()
    with contextlib.closing(connect(stage.conninfo)) as connection:
        driver = SparkDriver(connection, stage.qm.repository)
        opened = driver.perform(SparkOpen(name="s", queue="raw"))
        driver.perform(
            SparkClaim(server_id=opened.server_id, epoch=opened.epoch, start=0, n=5, bound=None)
        )
        yield Asked(eid=eid, reasons=("spark",))


@contextlib.contextmanager
def planned(stage: Stage) -> Played:
    eid = stage.put()
    where: dict[str, Any] = {"name": "r", "stream": "0" * 16, "epoch": 1}
    with contextlib.closing(connect(stage.conninfo)) as connection:
        driver = SparkDriver(connection, stage.qm.repository)
        driver.perform(RelayOpen(name="r", queue="raw", topic="t", session="0" * 16))
        driver.perform(RelayBegin(**where, end=0, there=[]))
        driver.perform(RelayPlan(**where, next=0, n=5, bytes_max=1000))
    yield Asked(eid=eid, reasons=("planned",))


@contextlib.contextmanager
def orphaned(stage: Stage) -> Played:
    eid = stage.put()
    stage.execute("update {0}.element set claimed_by = 4711")
    yield Asked(eid=eid, reasons=("orphaned",))


@contextlib.contextmanager
def lost(stage: Stage) -> Played:
    """As after a crash of the database, which empties the table of lives."""
    eid = stage.put(VOLATILE)
    stage.execute("truncate {0}.life")
    yield Asked(eid=eid, reasons=("lost", "no_server"))


@contextlib.contextmanager
def expired(stage: Stage) -> Played:
    eid = stage.put(expires_at=datetime.now(UTC) - HOUR)
    yield Asked(eid=eid, reasons=("expired", "no_server"))


@contextlib.contextmanager
def stopped(stage: Stage) -> Played:
    eid = stage.put()
    stage.qm.stop("raw", enqueue=False)
    with stage.served():
        yield Asked(eid=eid, reasons=("stopped",))


@contextlib.contextmanager
def back_off(stage: Stage) -> Played:
    eid = stage.put()
    with stage.served() as life:
        life.abort(life.claim_one("raw"))
        yield Asked(eid=eid, reasons=("back_off",))


@contextlib.contextmanager
def full(stage: Stage) -> Played:
    eid = stage.put()
    with stage.served() as life:
        life.abort(life.claim_one("raw"), Charge.RELEASE, "QueueFull", 60.0)
        yield Asked(eid=eid, reasons=("full",))


@contextlib.contextmanager
def not_before(stage: Stage) -> Played:
    eid = stage.put(not_before=datetime.now(UTC) + HOUR)
    with stage.served():
        yield Asked(eid=eid, reasons=("not_before",))


@contextlib.contextmanager
def head(stage: Stage) -> Played:
    """The head of the line failed once, and waits for its back-off."""
    stage.put(STRICT, rid="first")
    eid = stage.put(STRICT)
    with stage.served("line") as life:
        life.abort(life.claim_one("line"))
        yield Asked(eid=eid, reasons=("head",))


@contextlib.contextmanager
def suspects(stage: Stage, number: int) -> Generator[tuple[Life, list[uuid.UUID]]]:
    """Suspects whose back-off is over, and a session that serves them."""
    eids = [stage.put() for _ in range(number)]
    with stage.served() as life:
        for one in life.claim("raw", number):
            life.abort(one, Charge.SUSPECT)
        yield life, eids


@contextlib.contextmanager
def rival(stage: Stage) -> Played:
    with suspects(stage, 2) as (life, eids):
        assert life.claim_one("raw").eid == eids[0]
        yield Asked(eid=eids[1], reasons=("rival", "suspect"))


@contextlib.contextmanager
def suspect(stage: Stage) -> Played:
    with suspects(stage, 1) as (_, (eid,)):
        yield Asked(eid=eid, reasons=("suspect",))


@contextlib.contextmanager
def line(stage: Stage) -> Played:
    """A claim of another suspect that has not committed, so nobody knows of it."""
    with suspects(stage, 2) as (life, eids), psycopg.connect(stage.conninfo) as claiming:
        number = stage.qm.show("raw").queue_id
        claim = f"select eid from {stage.qm.repository}.claim(%s, %s, 1, -1, true)".encode()
        row = claiming.execute(claim, (life.incarnation, number)).fetchone()
        assert row == (eids[0],)
        yield Asked(eid=eids[1], reasons=("line", "suspect", "before"))


@contextlib.contextmanager
def line_of_a_strict_queue(stage: Stage) -> Played:
    eid = stage.put(STRICT)
    number = stage.qm.show("line").queue_id
    with stage.served("line"), psycopg.connect(stage.conninfo) as claiming:
        claim = f"select eid from {stage.qm.repository}.claim(4711, %s, 1, 1, true)".encode()
        claiming.execute(claim, (number,))
        yield Asked(eid=eid, reasons=("line", "locked"))


@contextlib.contextmanager
def locked(stage: Stage) -> Played:
    eid = stage.put()
    with stage.served(), psycopg.connect(stage.conninfo) as killing:
        killing.execute(f"select {stage.qm.repository}.kill(%s, 1)".encode(), (eid,))
        yield Asked(eid=eid, reasons=("locked",))


@contextlib.contextmanager
def hidden(stage: Stage) -> Played:
    """As in a repository that was restored from a dump."""
    eid = stage.put()
    number = stage.qm.show("raw").queue_id
    stage.execute("select setval({0}.make_mark(%s, 5), 1000000)", number)
    with stage.served() as life:
        assert life.claim("raw") == []
        yield Asked(eid=eid, reasons=("hidden",))


@contextlib.contextmanager
def no_server(stage: Stage) -> Played:
    eid = stage.put()
    with stage.served("line"):
        yield Asked(eid=eid, reasons=("no_server",))


@contextlib.contextmanager
def busy(stage: Stage) -> Played:
    with stage.served() as life:
        stage.put()
        life.begin(life.claim_one("raw"))
        yield Asked(eid=stage.put(), reasons=("busy",))
        life.rollback()


@contextlib.contextmanager
def before(stage: Stage) -> Played:
    """Two come first: one was there, and one has a higher priority."""
    stage.put()
    eid = stage.put()
    stage.put(priority=9)
    stage.put(priority=1)
    with stage.served():
        yield Asked(eid=eid, reasons=("before",))


@contextlib.contextmanager
def next_one(stage: Stage) -> Played:
    eid = stage.put()
    with stage.served():
        yield Asked(eid=eid, reasons=("next",))


SCENES: Final[dict[str, Scene]] = {
    "no_client": unknown_client,
    "unknown_rid": unknown_request,
    "uncommitted": not_committed,
    "no_element": not_enqueued,
    "other_client": of_another_client,
    "similar_name": of_a_similar_name,
    "trimmed": trimmed,
    "held": held,
    "on_hold": on_hold,
    "runs": runs,
    "server_gone": server_gone,
    "verdict": verdict,
    "dequeued": dequeued,
    "spark": spark,
    "planned": planned,
    "orphaned": orphaned,
    "lost": lost,
    "expired": expired,
    "stopped": stopped,
    "paused": paused,
    "back_off": back_off,
    "full": full,
    "not_before": not_before,
    "head": head,
    "head, held": behind_what_is_held,
    "rival": rival,
    "suspect": suspect,
    "line": line,
    "line, strict": line_of_a_strict_queue,
    "locked": locked,
    "hidden": hidden,
    "no_server": no_server,
    "busy": busy,
    "before": before,
    "next": next_one,
}
"""By the reason that is the answer."""
