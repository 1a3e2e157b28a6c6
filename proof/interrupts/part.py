"""Cancels and interrupts clerks, ledgers and managers at random moments, and checks the result.

A part of the proof. This process forks a server, and one process for each kind of client and
manager, a few at a time. Each is struck again and again in the middle of its calls, and goes on
with the same clerk or manager; in the end every order was executed once and processed once, and
every element is where it may be.
"""

from __future__ import annotations

import gc
import os
import select
import signal
import time
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import msgspec

import onceq
from proof.clients.forks import forked
from proof.clients.ground import REPOSITORY, prepared_ground
from proof.clients.life import VARIANTS, Errand
from proof.clients.part import judged as judged_client
from proof.clients.part import serve
from proof.goals import INTERRUPTS
from proof.interrupts import callers, lives
from proof.interrupts.lives import ASYNC, Count
from proof.part import Limits, Measure, Order, Outcome, Part, Size

if TYPE_CHECKING:
    from collections.abc import Iterator

    from proof.clients.ground import Ground

MADE: Final = {Size.SMALL: 140, Size.PROOF: 5_600, Size.LONG: 110_000}
MISSED: Final = "strikes that came when a call had just ended"
QUEUE_MANAGER: Final = "queue manager"
NAMES: Final = tuple(prefix + one for prefix in ("", ASYNC) for one in (*VARIANTS, QUEUE_MANAGER))
ABREAST: Final = 3
LIMIT_S: Final = {Size.SMALL: 90.0, Size.PROOF: 600.0, Size.LONG: 4 * 3600.0}
"""For one process: if it is not done by then, it is stuck."""


@dataclass(slots=True)
class Child:
    """A process that is struck, and by when it must have ended."""

    name: str
    handle: int
    until: float


def _is_caller(name: str) -> bool:
    return name.removeprefix(ASYNC) == QUEUE_MANAGER


def _begin(ground: Ground, name: str, order: Order, share: int) -> tuple[int, Child]:
    def program() -> None:
        work = callers.manage if _is_caller(name) else lives.live
        count = work(ground, name, f"{order.seed} {name}", share)
        (ground.place / f"{name}.count").write_bytes(msgspec.json.encode(count))

    pid = forked(ground, name, program)
    until = time.monotonic() + LIMIT_S[order.size]
    return pid, Child(name, os.pidfd_open(pid), until)


def _run_all(ground: Ground, order: Order) -> Iterator[str]:
    """Runs a process for each name; yields what did not come to a good end."""
    share = -(-MADE[order.size] // len(NAMES))
    waiting, running = [*NAMES], dict[int, Child]()
    while waiting or running:
        while waiting and len(running) < ABREAST:
            order.say(f"striking {waiting[0]}", len(NAMES) - len(waiting), len(NAMES))
            pid, child = _begin(ground, waiting.pop(0), order, share)
            running[pid] = child
        left = min(one.until for one in running.values()) - time.monotonic()
        ready = select.select([one.handle for one in running.values()], [], [], max(left, 0))[0]
        for pid, child in list(running.items()):
            is_late = time.monotonic() >= child.until
            if child.handle not in ready and not is_late:
                continue
            if is_late:
                os.kill(pid, signal.SIGKILL)
            code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
            os.close(child.handle)
            del running[pid]
            if code != 0:
                yield f"{child.name}: {'is stuck' if is_late else f'ended with {code}'}"


def run(order: Order) -> Outcome:
    """Strikes every kind of client and manager, and judges."""
    with prepared_ground(order.place) as ground:
        with onceq.open(ground.url, repository=REPOSITORY) as qm:
            qm.declare(callers.HELD)
        gc.collect()
        server = forked(ground, "server", lambda: serve(ground))
        try:
            wrong = list(_run_all(ground, order))
        finally:
            os.kill(server, signal.SIGKILL)
            os.waitpid(server, 0)
        counts = {name: _count(ground, name) for name in NAMES}
        rows = {name: _judged(ground, name) for name in NAMES if counts[name] is not None}
        said = ground.place / "said.txt"
        wrong += [said.read_text()] if said.exists() else []
    for count in counts.values():
        wrong += count.wrong if count is not None else []
    for _, found in rows.values():
        wrong += found
    done = {name: count for name, count in counts.items() if count is not None}
    return Outcome(
        measures=[
            Measure(what=INTERRUPTS, reached=sum(sum(one.made.values()) for one in done.values())),
            Measure(what=MISSED, reached=sum(c.missed for c in done.values())),
        ],
        violations=[f"{what}; seed {order.seed}" for what in wrong],
        page=page(done, {name: orders for name, (orders, _) in rows.items()}),
    )


def _count(ground: Ground, name: str) -> Count | None:
    path = ground.place / f"{name}.count"
    return msgspec.json.decode(path.read_bytes(), type=Count) if path.exists() else None


def _judged(ground: Ground, name: str) -> tuple[int, list[str]]:
    """Returns how many orders or elements it was about, and what is wrong with them."""
    if _is_caller(name):
        return 0, callers.judged(ground, name)
    errand = Errand(ground, name.removeprefix(ASYNC), name.replace(" ", "-"), 0)
    orders, _, wrong = judged_client(errand)
    return orders, wrong


def page(counts: dict[str, Count], orders: dict[str, int]) -> str:
    """Returns the section of the report: a row for each kind."""
    total: Counter[str] = Counter()
    lines = [
        "Sync calls were interrupted by a signal, async ones cancelled, at moments of chance. The",
        "same clerk then connected and recovered, which was compared with the truth, read by SQL;",
        "the same manager was used at once. In the end every order was executed once and processed",
        "once, and every element was where it may be.",
        "",
        "| who | struck | orders |",
        "|---|---:|---:|",
    ]
    for name, count in counts.items():
        total.update(count.made)
        lines.append(f"| {name} | {sum(count.made.values())} | {orders.get(name) or '-'} |")
    by_call = ", ".join(f"{call} {times}" for call, times in total.most_common())
    return "\n".join([*lines, "", f"In these calls: {by_call}.", ""])


PART: Final = Part(
    name="interrupts",
    text="clerks, ledgers and managers are interrupted and cancelled in the middle of their calls",
    run=run,
    states=(INTERRUPTS,),
    in_memory=True,
    limits=Limits(small_s=240.0, proof_s=1500.0),
)
