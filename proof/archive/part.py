"""The archive: its runs killed at each of their steps, and at any moment, while rows come in.

Each row of history must be in files exactly once, as PostgreSQL had it, whatever was killed, and
however often it was put together with others; only what is in files, and old enough, may have been
trimmed; and days that are restored are in the tables as they are in files, and are trimmed again.
Most rows are made by a generator (`trial.GENERATE`), which writes what servers would have written,
in transactions that wait before they commit, or roll back and begin again; the first are of a real
run. One control commits files without moving the position; the other takes numbers for settled
whose transactions are still open.
"""

from __future__ import annotations

import random
from dataclasses import replace
from typing import TYPE_CHECKING, Final

import psycopg

import onceq
from onceq.model.archive_ops import Kind
from proof import goals
from proof.archive.runs import Process, Runs
from proof.archive.trial import DAYS, GENERATE, REAL, Trial
from proof.faultpoints import OF_ARCHIVE
from proof.harness.ledger import ask
from proof.part import Control, Limits, Measure, Outcome, Part, Size

if TYPE_CHECKING:
    from proof.part import Order

ROWS: Final = {Size.SMALL: 6_000, Size.PROOF: 2_500_000, Size.LONG: 10_000_000}
FIRST: Final = (
    "ArchiveCommit.after",
    "archive.compacted",
    "ArchiveReplace.before",
    "ArchiveReplace.after",
)
"""In this order: a run is archived, then others with it; later they may be too large for that."""
OF_RESTORE: Final = ("ArchiveRestore.before", "ArchiveRestore.after")
OTHERS: Final = tuple(sorted(OF_ARCHIVE - set(FIRST)))
POINTS: Final = (*FIRST, *OTHERS[::2])
MORE_POINTS: Final = OTHERS[1::2]
"""For the second part: both together would take longer than a part may."""
SMALL_POINTS: Final = ("ArchiveCommit.after", "ArchiveRestore.after")
"""For the small size: each takes a Spark of its own."""
BY_CHANCE: Final = {Size.SMALL: 0, Size.PROOF: 1, Size.LONG: 41}
"""Kills at no point of the table."""
CHANCE_S: Final = (4.0, 25.0)
"""When they fall, counted from the start of the process."""
STEPS: Final = "fault points at which a run was killed"
UNMOVED: Final = "the position does not move with the files"
UNSETTLED: Final = "numbers count whose transactions are still open"
BREAKS: Final = {
    UNMOVED: ("archive_commit", "set archived = p_until", "set archived = archived"),
    UNSETTLED: (
        "archive_settle",
        "pg_snapshot_xmin(pg_current_snapshot()) >= a.soon_xid",
        "true",
    ),
}
"""For each control, which text of a function is replaced, and by what."""


def run(order: Order) -> Outcome:
    """Archives, with kills, and checks what came of it."""
    return _run(order, SMALL_POINTS if order.size is Size.SMALL else POINTS)


def run_more(order: Order) -> Outcome:
    """Archives with kills at the other points."""
    return _run(order, SMALL_POINTS[1:] if order.size is Size.SMALL else MORE_POINTS)


def _run(order: Order, points: tuple[str, ...]) -> Outcome:
    with onceq.open(f"embedded:{order.place}/postgresql") as qm:
        url = qm.located.conninfo
        chance = random.Random(order.seed)
        runs = Runs(order.place)
        trial = Trial(order, url, "archived", chance)
        trial.begin()
        blows = _blows(points, order.size, chance)
        rows, done = ROWS[order.size] - REAL, 0
        for number, blow in enumerate(blows, 1):
            last = rows * number // (len(blows) + 1)
            order.say(f"archiving, {runs.kills} kills", done, rows)
            with trial.writing(done + 1, last):
                if isinstance(blow, str):
                    runs.strike(trial.told_to_restore if blow in OF_RESTORE else trial.told, blow)
                else:
                    runs.kill(trial.told, blow)
            done = last
        with runs.process() as process:
            with trial.writing(done + 1, rows):
                runs.ask(process, trial.told)
            runs.ask(process, trial.told)
            order.say("checking", rows, rows)
            trial.check()
            runs.ask(process, trial.told_to_restore)
            trial.check_restored()
            runs.ask(process, trial.told)
            trial.check()
            controls = [
                Control(what=UNMOVED, broke=int(is_doubled(runs, process, trial)), of=1),
                Control(what=UNSETTLED, broke=int(is_lost(runs, process, trial)), of=1),
            ]
    return _outcome(trial, runs, points, controls)


def _blows(points: tuple[str, ...], size: Size, chance: random.Random) -> list[str | float]:
    """Returns the points and the times at which runs are killed, in their order."""
    others: list[str | float] = [one for one in points if one not in FIRST]
    others += [chance.uniform(*CHANCE_S) for _ in range(BY_CHANCE[size])]
    chance.shuffle(others)
    return [*(one for one in points if one in FIRST), *others]


def broken(trial: Trial, what: str) -> Trial:
    """Returns a repository of its own, with a broken function."""
    other = Trial(trial.order, trial.url, f"broken_{len(what)}", trial.chance)
    other.begin()
    name, text, instead = BREAKS[what]
    where = "select pg_get_functiondef(to_regproc(%s))"
    source = str(ask(trial.url, where, f"{other.repository}.{name}")[0][0])
    if source.count(text) != 1:
        raise ValueError(f"{name}() is not written as this control expects it")
    ask(trial.url, source.replace(text, instead))
    return other


def is_doubled(runs: Runs, process: Process, trial: Trial) -> bool:
    """Returns whether rows that are archived again are found."""
    other = broken(trial, UNMOVED)
    for _ in range(2):
        runs.ask(process, other.told)
    other.check()
    doubled = other.in_files()[Kind.HISTORY].rows == 2 * other.made[Kind.HISTORY].rows
    return doubled and any("are in files" in one for one in other.violations)


def is_lost(runs: Runs, process: Process, trial: Trial) -> bool:
    """Returns whether a row is found missing that was numbered before a run, and came after it."""
    other = broken(trial, UNSETTLED)
    with psycopg.connect(other.url) as late:
        query = GENERATE.format(r=other.repository, days=DAYS)
        late.execute(query.encode(), (1, 1))
        with other.writing(2, 3):
            pass
        runs.ask(process, other.told)
        late.commit()
        other.add({Kind.HISTORY: other.sums(late, Kind.HISTORY, "h.send_no = %s", (1,))})
    runs.ask(process, other.told)
    other.check()
    missing = other.made[Kind.HISTORY].rows - other.in_files()[Kind.HISTORY].rows
    return missing == 1 and any("are in files" in one for one in other.violations)


def _outcome(trial: Trial, runs: Runs, points: tuple[str, ...], controls: list[Control]) -> Outcome:
    made = trial.made[Kind.HISTORY].rows
    violations = [*trial.violations, *runs.violations]
    rate = round(made / runs.seconds)
    return Outcome(
        measures=[
            Measure(what=goals.ARCHIVED, reached=0 if violations else made),
            Measure(what=goals.KILLS, reached=runs.kills),
            Measure(what=STEPS, reached=len(runs.met), goal=len(points)),
        ],
        violations=violations,
        controls=controls,
        page=f"{made:,} rows of history, {trial.made[Kind.ATTEMPT].rows:,} of attempts; "
        f"{runs.kills} kills, {rate:,} rows a second with all beginnings and deaths of Spark.\n",
    )


PART: Final = Part(
    name="archive",
    text="the archive's runs killed at each step while rows come in: each row in files once",
    run=run,
    states=(goals.ARCHIVED, goals.KILLS),
    controls={UNMOVED: 1.0, UNSETTLED: 1.0},
    on_spark=True,
    limits=Limits(small_s=300.0, long_s=2 * 3600.0),
)
MORE: Final = replace(
    PART,
    name="archive-more",
    text="the same, killed at the other steps",
    run=run_more,
)
