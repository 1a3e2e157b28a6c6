"""The fault points of the archive's job, of a restore, and of bulk enqueue, each in every way.

A part of the proof, beside those of the other points (proof/faultpoints.py, proof/sparkpoints). The
archive's are struck here by an exception, and by the loss of a connection on one side of the next
commit (the long run: on either); by kill -9 they are in proof/archive, at size. Those of bulk
enqueue are met by tasks of Spark's, and struck by all four. After each, the same is done once more,
and nothing strikes: each row of history must be in files exactly once, and each row of the
DataFrame be enqueued once.
"""

from __future__ import annotations

import random
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from msgspec.structs import replace

import onceq
from onceq.engine.bind.spark_binding import ARCHIVE_BINDINGS, SPARK_BINDINGS
from onceq.engine.faultpoints import EAR, NOWHERE
from proof import goals
from proof.archive.part import OF_RESTORE
from proof.archive.trial import Trial as Archive
from proof.fault_calls import POINTS_AT, times
from proof.fault_ground import CUTS, FAULTS, KILL, RAISE, Ground, Trial, Verdict, writing
from proof.faultpoints import LOST, OF_ARCHIVE, OF_BULK, faults_of, page
from proof.harness.ledger import ask
from proof.harness.processes import hearing
from proof.harness.proxy import Cut, Proxy
from proof.part import Limits, Measure, Outcome, Part, Size
from proof.pipelinepoints.process import QUEUE, Enqueuing, Errand, living

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from proof.archive.runs import Told
    from proof.part import Order

NAME: Final = "pipeline-faultpoints"
ARCHIVED: Final = "the archive"
RESTORED: Final = "a restore"
ENQUEUED: Final = "bulk enqueue"
SCENES: Final = {
    ARCHIVED: OF_ARCHIVE - set(OF_RESTORE),
    RESTORED: frozenset(OF_RESTORE),
    ENQUEUED: OF_BULK,
}
SMALL: Final = (
    Trial(scene=ARCHIVED, point="ArchiveCommit.before", occurrence=1, what="cut-after"),
    Trial(scene=ENQUEUED, point="bulk.enqueued", occurrence=2, what=KILL),
)
ROUNDS: Final = {Size.PROOF: 1, Size.LONG: 10}
TRIES: Final = 5
"""A point must be reached, and a planned loss made, within this many runs."""
FIRST: Final = 2000
"""Rows of history that are archived, and for the most part trimmed, before the trials."""
ROWS: Final = 60
"""How many more rows, of history or of a DataFrame, each run gets."""
WRITES: Final = writing(ARCHIVE_BINDINGS | SPARK_BINDINGS)
PLACES: Final = """
select x.rid, count(*) from (
    select rid from {r}.element union all select rid from {r}.history) x
where x.rid ~ '^[0-9]+$' group by 1
"""


def trials(size: Size, chance: random.Random) -> list[Trial]:
    """Returns what a size tries, in random order."""
    if size is Size.SMALL:
        return list(SMALL)
    found: list[Trial] = []
    for _ in range(ROUNDS[size]):
        some = [
            Trial(scene=scene, point=point, what=what, occurrence=_occurrence(scene, number))
            for scene, points in SCENES.items()
            for place, point in enumerate(sorted(points))
            for number, what in enumerate(ways(scene, place, size), 1)
        ]
        chance.shuffle(some)
        found += some
    return found


def ways(scene: str, place: int, size: Size) -> tuple[str, ...]:
    """Returns how the point at this place of a scene is struck."""
    if scene == ENQUEUED:
        return FAULTS
    cuts = tuple(CUTS)
    return (RAISE, *cuts) if size is Size.LONG else (RAISE, cuts[place % len(cuts)])


def _occurrence(scene: str, number: int) -> int:
    """Returns at which time a trial strikes: a task reaches its points often, a run once."""
    return number if scene == ENQUEUED else 1


@dataclass(slots=True)
class Yard:
    """What the trials share: a repository that is archived, and the process that Spark lives in.

    rows: so many of history are written; words: so many are enqueued.
    """

    ground: Ground
    archive: Archive
    ask: Callable[[Errand], str]
    rows: int = 0
    words: int = 0
    count: int = 0
    failures: list[str] = field(default_factory=list[str])

    def run(self, trial: Trial) -> Verdict:
        """Runs a trial to its end."""
        began = time.monotonic()
        self.count += 1
        place = self.ground.place / f"t{self.count}"
        (place / POINTS_AT).mkdir(parents=True)
        self.failures = []
        with (
            Proxy(self.ground.conninfo, place) as proxy,
            hearing(place / POINTS_AT / EAR, lambda word: _plan(proxy, word)),
        ):
            problems = self._strike(trial, proxy, place)
            lost = len(proxy.made)
        problems += self._once_more(trial, place)
        points = [path for path in (place / POINTS_AT).iterdir() if path.name != EAR]
        came = times(place, trial.point) >= trial.occurrence
        return Verdict(
            trial=trial,
            reached={path.name: path.stat().st_size for path in points},
            came=came,
            lost=lost,
            revoked=0,
            kills=int(came and trial.what == KILL),
            events=0,
            seconds=time.monotonic() - began,
            violations=[f"{trial}: {one}" for one in problems],
        )

    def _strike(self, trial: Trial, proxy: Proxy, place: Path) -> list[str]:
        """Lets the point be met until the fault is made; returns what was not as it must be."""
        armed = f"{trial.point} {trial.occurrence} {trial.what} {place / POINTS_AT}"
        for _ in range(TRIES):
            self._do(self._next(trial, proxy.conninfo), armed)
            came = times(place, trial.point) >= trial.occurrence
            if came and (proxy.made or trial.what not in CUTS):
                break
        failed = [one for one in self.failures if one]
        if trial.what in CUTS:
            return []  # it may be asked and answered again
        return [] if len(failed) == 1 else [f"it failed {len(failed)} times: {failed}"]

    def _once_more(self, trial: Trial, place: Path) -> list[str]:
        """Does the same again without a strike; returns what is wrong then."""
        self.failures = []
        if trial.scene == ENQUEUED:
            self._do(self._words(1, self.ground.conninfo), _noting(place / POINTS_AT))
            found = dict(ask(self.ground.conninfo, PLACES.format(r=self.archive.repository)))
            wanted = {str(number): 1 for number in range(1, self.words + 1)}
            wrong = sorted(wanted.items() ^ found.items())
            self.failures += [f"not each row is there once: {wrong[:9]}"] if wrong else []
        else:
            self.archive_all(place / POINTS_AT)
            self.archive.check()
            self.failures += self.archive.violations
            self.archive.violations = []
        return [one for one in self.failures if one]

    def _next(self, trial: Trial, url: str) -> Told | Enqueuing:
        """Returns what reaches the point, with something new to do."""
        if trial.scene == ENQUEUED:
            self.words += ROWS
            return self._words(self.words - ROWS + 1, url)
        if trial.scene == RESTORED:
            return replace(self.archive.told_to_restore, url=url)
        self.write(ROWS)
        return replace(self.archive.told, url=url)

    def archive_all(self, noted: Path) -> None:
        """Archives what is there, without a strike. noted: where the points are noted."""
        self._do(self.archive.told, _noting(noted))

    def write(self, rows: int) -> None:
        """Writes more rows of history."""
        self.archive.write(self.rows + 1, self.rows + rows)
        self.rows += rows

    def _words(self, first: int, url: str) -> Enqueuing:
        repository = self.archive.repository
        return Enqueuing(url=url, repository=repository, first=first, last=self.words)

    def _do(self, what: Told | Enqueuing, armed: str) -> None:
        self.failures.append(self.ask(Errand(what=what, armed=armed)))


def _noting(directory: Path) -> str:
    """Returns what arms a process without a strike."""
    return f"{NOWHERE} 1 {KILL} {directory}"


def _plan(proxy: Proxy, word: str) -> None:
    """Does what a process has asked for at its point."""
    what, _ = word.split()
    proxy.plan(Cut(side=CUTS[what], pattern=WRITES))


def run(order: Order) -> Outcome:
    """Runs the trials of a size."""
    chance = random.Random(order.seed)
    chosen = trials(order.size, chance)
    verdicts: list[Verdict] = []
    with Ground() as ground, living(ground) as ask_it:
        archive = Archive(order, ground.conninfo, "struck", chance)
        archive.begin()
        with onceq.open(ground.conninfo, repository=archive.repository) as qm:
            qm.declare(QUEUE)
        yard = Yard(ground, archive, ask_it)
        yard.write(FIRST)
        yard.archive_all(ground.place)
        for trial in chosen:
            verdicts.append(yard.run(trial))
            order.say(str(trial), len(verdicts), len(chosen))
    return _outcome(verdicts)


def _outcome(verdicts: list[Verdict]) -> Outcome:
    tried = {one.trial.point for one in verdicts}
    missed = {one.trial.point for one in verdicts if not one.struck}
    return Outcome(
        measures=[
            Measure(what=goals.FAULT_POINTS, reached=len(tried - missed), goal=len(tried)),
            Measure(what=LOST, reached=sum(one.lost for one in verdicts)),
            Measure(what=goals.KILLS, reached=sum(one.kills for one in verdicts)),
        ],
        violations=[one for verdict in verdicts for one in faults_of(verdict)],
        page=page(verdicts, SCENES),
    )


PART: Final = Part(
    name=NAME,
    text="every fault point of the archive, a restore and bulk enqueue, where Spark lives on",
    run=run,
    states=(goals.FAULT_POINTS, goals.KILLS),
    in_memory=True,
    on_spark=True,
    limits=Limits(small_s=180.0, proof_s=900.0),
)
