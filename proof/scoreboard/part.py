"""The scoreboard as a part of the proof: onceq's row is checked, its peers' are reported."""

from __future__ import annotations

import random
import re
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from bench import peers
from bench.systems import prepared_ground
from proof.part import Control, Limits, Measure, Outcome, Part, Size
from proof.scoreboard.contest import (
    KILLS,
    REQUESTS,
    STARTS,
    ContestError,
    Stand,
    Trial,
    try_kills,
    try_poison,
)
from proof.scoreboard.servers.base import HALF_S, LEASE_S, LIMIT
from proof.scoreboard.subjects import CONTROL, ONCEQ, SUBJECTS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bench.systems import Ground
    from proof.part import Order
    from proof.scoreboard.contest import Kills
    from proof.scoreboard.subjects import Subject

PACKAGES = {
    "procrastinate": "procrastinate",
    "pgqueuer": "pgqueuer",
    "absurd": "absurd-sdk",
    "dbos": "dbos",
}
PIN = re.compile(r"^([\w-]+)==(\S+)", re.MULTILINE)
ABREAST = 4
"""The trials mostly wait: for leases, and for processes to start."""
AFTER = Trial(requests=12, kills=4, moments_s=(1.1 * HALF_S, 1.4 * HALF_S))
"""The control's kills fall between the writing of the row and the end of the request."""
HEAD = f"""\
{REQUESTS} requests, each of which writes one row to a user's table without a unique key; {KILLS}
times kill -9 of the one server process while it runs a request, the same at most twice; then
until all is finished or nothing happens any more. And one request that kills its process, limit
{LIMIT}, the process started {STARTS} times at most. All by one harness: one request at a time,
the work 30 ms, the row written in its middle; leases and heartbeats shortened to {LEASE_S} s where
they can be set, which changes how long a run takes. How many rows there are twice depends on
where in the work a kill falls: the figures of a system that repeats what it had done differ from
run to run; a 0 by design does not. At DBOS's defaults the row is written in a step that does
nothing else, so that hardly a kill can fall between row and checkpoint: a 0 there is no promise.
What a limit counts is each system's own: DBOS counts
recoveries, so that its limit of {LIMIT} is reached by one death more. The peers are {{peers}}:
as they come, and in the safest setting that we found in their own documentation.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Score:
    """A row of the scoreboard. reason: why there is none."""

    subject: Subject
    kills: Kills | None = None
    deaths: int = 0
    reason: str = ""


def chosen(size: Size) -> tuple[Subject, ...]:
    """Return who takes part: in the small size, onceq alone."""
    return tuple(one for one in SUBJECTS if size is not Size.SMALL or one.system == ONCEQ)


def score(subject: Subject, order: Order, ground: Ground) -> Score:
    """Run both trials of a system; one that is not available, or breaks down, has no figures."""
    python = sys.executable
    if subject.system != ONCEQ:
        reason = peers.why_not(subject.system)
        python = peers.python() or ""
        if reason:
            return Score(subject=subject, reason=reason)
    name = f"{subject.system}_{subject.setting}"
    made = partial(Stand, subject, python)
    try:
        with made(ground.database(f"{name}_kills"), order.place / name / "kills") as stand:
            kills = try_kills(stand, random.Random(f"{order.seed} {name}"))
        with made(ground.database(f"{name}_poison"), order.place / name / "poison", LIMIT) as stand:
            deaths = try_poison(stand)
    except ContestError as error:
        return Score(subject=subject, reason=f"it broke down: {error}")
    return Score(subject=subject, kills=kills, deaths=deaths)


def control(order: Order, ground: Ground) -> Control:
    """Let the harness count in a case where a row is known to be written twice."""
    place = order.place / "control"
    with Stand(CONTROL, sys.executable, ground.database("control"), place) as stand:
        kills = try_kills(stand, random.Random(order.seed), AFTER)
    return Control(what=CONTROL.how, broke=kills.twice, of=kills.kills)


def run(order: Order) -> Outcome:
    """Let all take part, several at a time; onceq must have nothing twice and all finished."""
    subjects = chosen(order.size)
    if order.size is not Size.SMALL:
        order.say("the peers' environment", 0, len(subjects))
        peers.python()
    scores: list[Score] = []
    with prepared_ground(order.place) as ground, ThreadPoolExecutor(ABREAST) as pool:
        for found in pool.map(lambda one: score(one, order, ground), subjects):
            scores.append(found)
            order.say(found.subject.name, len(scores), len(subjects))
        tried = control(order, ground)
    own = [one for one in scores if one.subject.system == ONCEQ]
    return Outcome(
        measures=[measure for one in own for measure in _measures(one)],
        violations=[
            *(f"{what}; seed {order.seed}" for one in own for what in violations(one)),
            *without_figures(scores),
        ],
        controls=[tried],
        page=page(scores),
    )


def _measures(own: Score) -> list[Measure]:
    if own.kills is None:
        return []
    finished = REQUESTS - own.kills.unfinished
    return [
        Measure(what="onceq: requests finished", reached=finished, goal=REQUESTS),
        Measure(what="onceq: kills at work", reached=own.kills.kills, goal=KILLS),
        Measure(what="onceq: processes killed by the poison", reached=own.deaths, goal=LIMIT),
    ]


def without_figures(scores: Sequence[Score]) -> list[str]:
    """Return which peers have no figures: a comparison with nobody is not one."""
    return [
        f"{one.subject.name} has no figures: {_plain(one.reason)}"
        for one in scores
        if one.kills is None and one.subject.system != ONCEQ
    ]


def violations(own: Score) -> list[str]:
    """Return what is broken in onceq's own row."""
    if own.kills is None:
        return [f"onceq has no figures: {own.reason}"]
    found = {
        f"{own.kills.twice} rows were written twice": own.kills.twice != 0,
        f"{own.kills.missing} rows were never written": own.kills.missing != 0,
        f"{own.kills.unfinished} requests were not finished": own.kills.unfinished != 0,
        f"the poison killed {own.deaths} processes, not {LIMIT}": own.deaths != LIMIT,
    }
    return [what for what, is_so in found.items() if is_so]


def page(scores: Sequence[Score]) -> str:
    """Return the section of the report."""
    lines = [
        "| system, setting | rows twice | never finished | kills | killed by the poison |",
        "| --- | --- | --- | --- | --- |",
    ]
    for one in scores:
        if one.kills is None:
            lines.append(f"| {one.subject.name} | - | - | - | skipped: {_plain(one.reason)} |")
            continue
        cells = (one.kills.twice, one.kills.unfinished, one.kills.kills, _deaths(one.deaths))
        lines.append(f"| {one.subject.name} | {' | '.join(map(str, cells))} |")
    how = [_how(one.subject) for one in scores]
    return f"{HEAD.format(peers=_versions())}\n" + "\n".join(lines) + "\n\n" + "\n".join(how) + "\n"


def _versions() -> str:
    """Return the peers with their versions, as they are pinned."""
    pins = dict(PIN.findall(peers.REQUIREMENTS.read_text("utf-8")))
    return ", ".join(f"{peer} {pins[package]}" for peer, package in PACKAGES.items())


def _deaths(deaths: int) -> str:
    return f"{deaths} of {STARTS}" if deaths == STARTS else str(deaths)


def _how(subject: Subject) -> str:
    weaker = f". Not promised: {subject.weaker}" if subject.weaker else ""
    return f"- *{subject.name}*: {subject.how}{weaker}."


def _plain(reason: str) -> str:
    return reason.splitlines()[0].replace("|", "/")


PART = Part(
    name="scoreboard",
    text="Server processes are killed at work, and by a poison: onceq beside its peers.",
    run=run,
    controls={CONTROL.how: 0.5},
    limits=Limits(small_s=180, long_s=1800),  # installing the peers takes minutes
)
