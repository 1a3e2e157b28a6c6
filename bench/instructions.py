"""How many instructions PostgreSQL needs for the calls of the hot path: what noise does not touch.

Each call is looped in plpgsql, in `postgres --single` under valgrind's callgrind, twice, each time
on a copy of the same cluster: the difference of the two counts, by the difference of their lengths,
is the cost of one call. What a client, the wire and the commit cost is not in it. Without valgrind
nothing is counted.
"""

from __future__ import annotations

import re
import shutil
import subprocess
from dataclasses import dataclass
from typing import TYPE_CHECKING

import psycopg

import onceq
from bench import record
from bench.results import Result
from bench.workers import raw
from bench.workers.onceq_worker import init
from onceq.engine.embedded import find_binaries
from onceq.engine.embedded.directory import Layout
from onceq.engine.embedded.privileges import choose_identity, launch_command, launch_environment

if TYPE_CHECKING:
    from pathlib import Path

    from bench.scene import Scene

FEW, MANY = 20, 120
"""The lengths of the two loops."""
LIMIT_S = 300
ABSENT = "not tried: valgrind is not installed"
DATABASE = "instructions"
COUNTED = re.compile(r"Collected : (\d+)")
COMPLAINT = re.compile(r"\b(?:ERROR|FATAL|PANIC):.*")
OPTIONS = ("fsync=off", "jit=off", "autovacuum=off", "synchronous_commit=on")
LEAN = (
    "onceq_setting.lean=on",
    "enable_seqscan=off",
    "enable_hashjoin=off",
    "plan_cache_mode=force_generic_plan",
)
"""What a clerk's session has in addition."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Counted:
    """A call to be counted. body: SQL of plpgsql; setup: before the loop, in its transaction.

    before: statements, each in a transaction of its own.

    lean: in a session as a clerk's. target: at most so many thousands.
    """

    question: str
    body: str
    setup: str = ""
    before: tuple[str, ...] = ()
    lean: bool = False
    target: float | None = None


_BODY = "convert_to(repeat('x', 200), 'UTF8')"
_CONNECT = "select onceq.connect('loop', '', null)"
_DATAGRAMS = """
    select onceq.enqueue_many('loop', array(select convert_to(repeat('x', 200), 'UTF8')
        from generate_series(0, MMM)), null, true)
"""
_REQUESTS = """
    select onceq.send_many(1, 1, 'loop', array(select 'r' || n from generate_series(0, MMM) n),
        array(select convert_to(repeat('x', 200), 'UTF8') from generate_series(0, MMM)), 1,
        '{}'::text[], null, true, 0)
"""
_OPEN = "select onceq.open_incarnation(gen_random_uuid(), 'loop', 0, null, null)"
_SEND = (
    "1, 1, 'loop', 'r' || n, b, n, '{}'::text[], 4::smallint, null, null, null, null, true,"
    " false, 0"
)
_SERVE = """
    select * into i from onceq.server;
    perform set_config('onceq_setting.token', 'loop', true);
    select queue_id into q from onceq.queue where name = 'loop';
    select * into x from onceq.claim(i.incarnation, q, 1, 1, true, p_slot => i.slot);
"""
_FINISH_ONE = (
    "select * into x from onceq.claim_one(i.incarnation, q, 1, n, true, null, i.slot, null,"
    " array[q], false, x.seq, b, null, 'loop', true);"
)
_FINISH = (
    "select * into x from onceq.finish(array[x.seq], i.incarnation, array[b], null, 'loop',"
    " true, q, 1, n, true, i.slot, array[q], false) f where f.seq is not null;"
)

CALLS = {
    "insert": Counted(question="a bare INSERT", body="insert into incoming (body) values (b);"),
    "send": Counted(
        question="a send",
        before=(_CONNECT,),
        body=f"perform onceq.send_one({_SEND}, s);",
        lean=True,
        target=190.0,
    ),
    "send-rare": Counted(
        question="a send by the general function",
        before=(_CONNECT,),
        body=f"perform * from onceq.send({_SEND});",
    ),
    "finish": Counted(
        question="a finish without a reply, and the next claim",
        before=(_DATAGRAMS, _OPEN),
        setup=_SERVE,
        body=_FINISH_ONE,
        target=640.0,
    ),
    "finish-rare": Counted(
        question="the same by the general functions",
        before=(_DATAGRAMS, _OPEN),
        setup=_SERVE,
        body=_FINISH,
    ),
    "finish-reply": Counted(
        question="a finish with a reply, and the next claim",
        before=(_CONNECT, _REQUESTS, _OPEN),
        setup=_SERVE,
        body=_FINISH_ONE,
    ),
    "finish-reply-rare": Counted(
        question="the same by the general functions",
        before=(_CONNECT, _REQUESTS, _OPEN),
        setup=_SERVE,
        body=_FINISH,
    ),
}
NAMES = tuple(f"instructions/{name}" for name in CALLS)


def run(scene: Scene) -> None:
    """Count each of them."""
    valgrind = shutil.which("valgrind")
    if valgrind is None:
        for name, call in CALLS.items():
            why = "not tried: valgrind is not installed"
            scene.told.found(
                Result(name=f"instructions/{name}", question=call.question, skipped=why)
            )
        return
    with scene.ground("instructions") as ground:
        conninfo = ground.database(DATABASE)
        init(conninfo)
        with onceq.open(conninfo) as qm:
            qm.declare(onceq.Queue("loop", bytes, bytes))
        with psycopg.connect(conninfo, autocommit=True) as connection:
            connection.execute(raw.TABLES.encode())
    layout = Layout((ground.directory / "data").resolve())  # its PostgreSQL has stopped
    for name, call in CALLS.items():
        scene.told.started(f"instructions/{name}")
        scene.told.found(
            Result(
                name=f"instructions/{name}",
                question=call.question,
                unit=record.COUNTED,
                better="less",
                target=call.target,
                rounds=(counted(layout, call, valgrind),),
            )
        )


def counted(layout: Layout, call: Counted, valgrind: str) -> float:
    """Return the thousands of instructions of one call."""
    few, many = (_count(layout, call, steps, valgrind) for steps in (FEW, MANY))
    return (many - few) / (MANY - FEW) / 1000


def statements(call: Counted, *, steps: int, most: int) -> list[str]:
    """Return what a session says to make a call so many times. most: that any session makes."""
    loop = f"""do $loop$
        declare i record; x record; q integer;
            b bytea := {_BODY}; s bytea := sha256({_BODY});
        begin {call.setup} for n in 1 .. NNN loop {call.body} end loop; end $loop$"""
    before = [line.replace("MMM", str(most)) for line in call.before]
    return [*before, loop.replace("NNN", str(steps))]


def _count(layout: Layout, call: Counted, steps: int, valgrind: str) -> int:
    """Return the instructions of a session in which a call is made so many times."""
    lines = statements(call, steps=steps, most=MANY)
    copy = layout.directory / "copy"
    subprocess.run(["cp", "-a", str(layout.cluster), str(copy)], check=True)
    try:
        said = _single(copy, lines, (*OPTIONS, *LEAN) if call.lean else OPTIONS, valgrind)
    finally:
        shutil.rmtree(copy)
    found = COUNTED.search(said)
    if found is None:
        raise AssertionError(f"valgrind counted nothing: {said[-400:]}")
    return int(found[1])


def _single(cluster: Path, lines: list[str], options: tuple[str, ...], valgrind: str) -> str:
    """Run statements in a PostgreSQL of one process; return what that and valgrind said."""
    binaries = find_binaries(int((cluster / "PG_VERSION").read_text(encoding="ascii")))
    command = [valgrind, "--tool=callgrind", "--callgrind-out-file=/dev/null"]
    command += [str(binaries.program("postgres")), "--single", "-D", str(cluster)]
    command += [word for option in options for word in ("-c", option)]
    done = subprocess.run(
        launch_command(choose_identity(binaries), [*command, DATABASE]),
        env=launch_environment(),
        input="".join(" ".join(line.split()) + "\n" for line in lines),
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=False,
    )
    said = done.stdout + done.stderr
    wrong = COMPLAINT.search(said)
    if wrong is not None or done.returncode:
        raise AssertionError(f"PostgreSQL failed: {wrong[0] if wrong else said[-400:]}")
    return said
