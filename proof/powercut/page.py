"""The results of the rounds: measures, controls, violations, and the section of the report.

For `part`. Never touches a disk or a database.
"""

from __future__ import annotations

import statistics
from typing import TYPE_CHECKING

from proof.goals import EVENTS, POWER_CUTS, REQUESTS
from proof.part import Control, Measure, Outcome

if TYPE_CHECKING:
    from collections.abc import Sequence

    from proof.powercut.trial import Round
    from proof.powercut.verdict import Verdict

FSYNC_OFF = "power cuts with fsync off: acknowledged requests lost, or no recovery"
ASYNCHRONOUS = "power cuts that took asynchronous commits, always the last ones"

_HEADS = (
    "PostgreSQL's disk",
    "unflushed writes",
    "settings",
    "cuts",
    "wrong",
    "acknowledged, at most",
    "asynchronous commits lost",
    "recovery, median (s)",
)


def outcome(rounds: Sequence[Round], seed: int) -> Outcome:
    """Returns the outcome of all rounds of a run."""
    proper = [one for one in rounds if not one.plan.is_control]
    controls = [one for one in rounds if one.plan.is_control]
    verdicts = _verdicts(proper)
    measures = [
        Measure(what=POWER_CUTS, reached=sum(one.recovered for one in verdicts)),
        Measure(what=REQUESTS, reached=sum(_most(one) for one in proper)),
        Measure(what=EVENTS, reached=sum(one.events for one in verdicts)),
        Measure(what="sends in doubt at a power cut", reached=sum(v.in_doubt for v in verdicts)),
        Measure(what="power cuts during a recovery", reached=sum(v.again for v in verdicts)),
    ]
    broken = [
        Control(
            what=FSYNC_OFF,
            broke=sum(one.refused or one.lossy for one in _verdicts(controls)),
            of=len(_verdicts(controls)),
        ),
        Control(what=ASYNCHRONOUS, broke=sum(v.lost > 0 for v in verdicts), of=len(verdicts)),
    ]
    violations = [text for one in proper for text in _violations(one, seed)]
    if 2 * broken[0].broke <= broken[0].of:
        violations.append(f"{FSYNC_OFF}: in {broken[0].broke} of {broken[0].of}: not in most")
    return Outcome(
        measures=measures, controls=broken, violations=violations, page=_page(proper, controls)
    )


def _verdicts(rounds: Sequence[Round]) -> list[Verdict]:
    return [verdict for one in rounds for verdict in one.verdicts]


def _most(one: Round) -> int:
    """Returns how many requests of a round were acknowledged when its last cut was taken."""
    return max((verdict.acknowledged for verdict in one.verdicts), default=0)


def _violations(one: Round, seed: int) -> list[str]:
    repeat = f"python -m proof --only power-cut --seed {seed}"
    return [
        f"{one.plan.name}, cut {number}: {text} ({repeat})"
        for number, verdict in enumerate(one.verdicts)
        for text in verdict.wrong
    ]


def _page(proper: Sequence[Round], controls: Sequence[Round]) -> str:
    lines = [
        "Clients and servers at work; what recovers from a frozen copy of the disk is judged as it",
        "is, and again when servers have finished what was left and every client has come back.",
        "",
        f"| {' | '.join(_HEADS)} |",
        "|---|---|---|---:|---:|---:|---:|---:|",
        *_rows([*proper, *controls]),
        "",
        _control_text(_verdicts(controls)),
    ]
    return "\n".join(lines)


def _rows(rounds: Sequence[Round]) -> list[str]:
    groups: dict[tuple[str, str, str], list[Round]] = {}
    for one in rounds:
        chosen = ", ".join(f"{name} = {value}" for name, value in one.plan.settings.items())
        key = (one.plan.kind.system, one.plan.kind.cache.value, chosen or "the product's")
        groups.setdefault(key, []).append(one)
    return [_row(key, group) for key, group in groups.items()]


def _row(key: tuple[str, str, str], group: Sequence[Round]) -> str:
    verdicts = _verdicts(group)
    times = [one.recovery_s for one in verdicts if one.recovered]
    median = f"{statistics.median(times):.2f}" if times else "-"
    cells = [
        *key,
        len(verdicts),
        sum(bool(one.wrong) for one in verdicts),
        max(map(_most, group)),
        sum(one.lost for one in verdicts),
        median,
    ]
    return f"| {' | '.join(map(str, cells))} |"


def _control_text(verdicts: Sequence[Verdict]) -> str:
    dead = sum(one.refused for one in verdicts)
    lossy = sum(one.lossy for one in verdicts)
    return (
        f"With fsync off, as a control, {dead} of {len(verdicts)} cuts did not recover, and "
        f"{lossy} recovered without what had been acknowledged."
    )
