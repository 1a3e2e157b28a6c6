"""Ten thousand requests of one client at a time, received in random order, the client killed.

One client process, one server of this process, a PostgreSQL of its own. The client is killed with
-9 whenever its log has grown by a random amount, and begun again with nothing but its name.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import threading
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec
import psycopg

import onceq
from onceq.engine.embedded import open_embedded
from onceq.engine.schema.migrate import apply_with
from proof import goals
from proof.part import Control, Limits, Measure, Outcome, Part, Size
from proof.windows.client import QUEUE, Line, Plan
from proof.windows.judge import judge, read

if TYPE_CHECKING:
    from collections.abc import Generator

    from onceq import Context
    from proof.part import Order

REQUESTS: Final = {Size.SMALL: 1_000, Size.PROOF: 10_000, Size.LONG: 50_000}
DEATHS: Final = {Size.SMALL: 10, Size.PROOF: 40, Size.LONG: 200}
KEEP: Final = 7
ROUNDS_MAX: Final = 20
TICK_S: Final = 0.005
BOOKED = "create table booked (rid text not null, eid uuid not null)"


def book(request: bytes, context: Context) -> bytes:
    """Book a request; a second effect would be a second row."""
    row = (context.rid, context.eid)
    context.connection.execute("insert into booked values (%s, %s)", row)
    return b"booked " + request


@contextmanager
def _serving(conninfo: str) -> Generator[None]:
    server = onceq.Server([QUEUE.handled_by(book, batch=20)])
    thread = threading.Thread(target=server.run, args=(conninfo,), daemon=True)
    thread.start()
    try:
        yield
    finally:
        server.stop()
        thread.join(60)


def windows(order: Order) -> Outcome:
    """Run the client, kill it, and judge what its lives say and what the database has."""
    requests, deaths = REQUESTS[order.size], DEATHS[order.size]
    log = order.place / "client.jsonl"
    with open_embedded(order.place / "postgresql") as server:
        apply_with(server.conninfo, "onceq")
        with psycopg.connect(server.conninfo, autocommit=True) as connection:
            connection.execute(BOOKED)
            with onceq.open(server.conninfo) as qm:
                qm.declare(QUEUE)
            plan = Plan(
                conninfo=server.conninfo,
                log=str(log),
                seed=order.seed,
                requests=requests,
                keep=KEEP,
            )
            with _serving(server.conninfo):
                killed = _lives(order, plan, deaths)
            violations = _left(connection, requests)
    lines = read(log)
    verdict = judge(lines)
    if not verdict.ended:
        violations.append("the client did not come to its end")
    missing = requests - len(verdict.received)
    if missing:
        violations.append(f"{missing} replies were never handed out")
    repeat = f"seed {order.seed}, {order.size}"
    return Outcome(
        measures=[
            Measure(what=goals.OUTSTANDING, reached=len(verdict.received)),
            Measure(what=goals.KILLS, reached=killed),
            Measure(what="lives of the client that receives them", reached=verdict.lives),
        ],
        violations=[f"{text} ({repeat})" for text in verdict.violations + violations],
        controls=_controls(lines),
        page=(
            f"{requests:,} requests of one client were outstanding at a time. It received their\n"
            f"replies in random order, was killed {killed} times, and was handed a reply\n"
            f"{verdict.replies:,} times; each reply was the same every time, none was received\n"
            "after its acknowledgement had returned, and each request took effect once.\n"
        ),
    )


def _lives(order: Order, plan: Plan, deaths: int) -> int:
    """Run lives until one ends by itself; the first ones are killed. Returns how many were."""
    chance = random.Random(order.seed)
    killed = 0
    for number in range(deaths * ROUNDS_MAX):
        argument = msgspec.json.encode(msgspec.structs.replace(plan, seed=order.seed + number))
        client = subprocess.Popen([sys.executable, "-m", "proof.windows.client", argument.decode()])
        try:
            if killed < deaths and _has_grown(client, plan, chance.randint(1, plan.requests * 10)):
                os.kill(client.pid, signal.SIGKILL)
                killed += 1
            code = client.wait(600)
        finally:
            client.kill()
            client.wait()
        order.say(f"{killed} of {deaths} kills", killed, deaths)
        if code == 0:
            return killed
        if code != -signal.SIGKILL:
            raise RuntimeError(f"the client ended with {code}")
    raise RuntimeError(f"{deaths * ROUNDS_MAX} lives were not enough")


def _has_grown(client: subprocess.Popen[bytes], plan: Plan, by: int) -> bool:
    """Wait until the log is longer by so many bytes; False: the client ended before."""
    start = _size(plan)
    while _size(plan) < start + by:
        if client.poll() is not None:
            return False
        time.sleep(TICK_S)
    return client.poll() is None


def _size(plan: Plan) -> int:
    try:
        return Path(plan.log).stat().st_size
    except FileNotFoundError:
        return 0


def _left(connection: psycopg.Connection[Any], requests: int) -> list[str]:
    """Compare what the database has with what it must have: each request done once, no more."""
    questions = {
        "effects": "select count(*) from booked",
        "requests with an effect": "select count(distinct rid) from booked",
        "requests done": "select count(*) from onceq.history where outcome = 'done'",
        "requests in history": "select count(distinct rid) from onceq.history",
    }
    found = {what: _count(connection, text) for what, text in questions.items()}
    broken = [f"{what}: {n:,}, not {requests:,}" for what, n in found.items() if n != requests]
    left = _count(connection, "select count(*) from onceq.element")
    return broken + ([f"{left} elements are left"] if left else [])


def _count(connection: psycopg.Connection[Any], query: str) -> int:
    row = connection.execute(query.encode()).fetchone()
    return 0 if row is None else int(row[0])


AGAIN: Final = "a reply received after its acknowledgement"
NOTHING: Final = "a connect that shows nothing"
ANOTHER: Final = "another reply to the same rid"


def _controls(lines: list[Line]) -> list[Control]:
    """What the judge must find in a log that is broken at one place."""
    handed = next(line for line in lines if line.what == "received")
    freed = next(line for line in lines if line.what == "acknowledged")
    again = Line(what="received", rids=freed.rids[:1], digest=handed.digest)
    shown = Line(what="connected", rids=[])
    other = Line(what="received", rids=handed.rids, digest="another")
    wrong = {
        AGAIN: [*lines, again],
        NOTHING: [*lines[: lines.index(freed)], shown],
        ANOTHER: [*lines[: lines.index(freed)], other],
    }
    return [
        Control(what=what, broke=int(bool(judge(broken).violations)), of=1)
        for what, broken in wrong.items()
    ]


PART = Part(
    name="windows",
    text="one client with thousands of requests outstanding, received in random order, killed",
    run=windows,
    states=(goals.OUTSTANDING, goals.KILLS),
    controls=dict.fromkeys((AGAIN, NOTHING, ANOTHER), 1.0),
    limits=Limits(small_s=180.0, proof_s=600.0, long_s=3600.0),
)
