"""The page of the mutants: what each breaks, what caught it and how fast; and the summary.

Written by `python -m proof.mutants --write`, after a run of all. A tidy test holds that the page
lists the mutants of the tables, no more and no less.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from proof.mutants.table import ROOT, Kind, Mutant
from proof.mutants.verdict import Fate, Verdict

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

PATH = ROOT / "docs" / "maintainers" / "mutants.md"
SHOWN_UNDER = ("src/onceq/engine/sql/functions/", "src/onceq/")

HEAD = """\
# Mutants

A test that cannot fail shows nothing. So onceq is broken on purpose, in {count} ways, one at a time
and in a copy of the tree; each time a test must notice. "Notice" means that an assertion fails, or
that an error is not raised that should be, or one is raised that should not: a file that cannot be
read, an error of Python or a time limit does not count. The same tests pass on the tree as it is.

This page is made by `python -m proof.mutants --write`; `make proof` tries all of it again, and
`make test` a few. The mutants are in `proof/mutants/*.toml`, with the exact text of each. One whose
text has changed fails a test, so that no refactoring makes a mutant harmless unseen. The seconds
are of one process of pytest each, on the machine where the page was made. The guarantees are those
of [guarantees.md](../guarantees.md).
"""
COLUMNS = "| mutant | breaks | because | in | caught by | s |\n|---|---|---|---|---|---|\n"


def row_start(mutant: Mutant) -> str:
    """Returns the part of a row that does not depend on a run."""
    where = ", ".join(_short(file) for file in mutant.where)
    return f"| {mutant.name} | {mutant.guarantee} | {mutant.why} | {where} | "


def _short(file: str) -> str:
    for under in SHOWN_UNDER:
        if file.startswith(under):
            return file.removeprefix(under)
    return file


def text(all_kinds: Sequence[Kind], verdicts: Mapping[str, Verdict]) -> str:
    """Returns the page. Every mutant must have been caught: ValueError names one that was not."""
    parts = [HEAD.format(count=len(verdicts))]
    for kind in all_kinds:
        rows = "".join(_row(mutant, verdicts[mutant.name]) for mutant in kind.mutant)
        parts.append(f"\n## {kind.title}\n\n{COLUMNS}{rows}")
    return "".join(parts)


def _row(mutant: Mutant, verdict: Verdict) -> str:
    if verdict.fate is not Fate.CAUGHT:
        raise ValueError(f"mutant {mutant.name!r} was {verdict.fate}: {verdict.says}")
    test = verdict.by.removeprefix("tests/").replace("|", "\\|")
    return f"{row_start(mutant)}`{test}` | {verdict.seconds:.1f} |\n"


def summary(all_kinds: Sequence[Kind], verdicts: Mapping[str, Verdict]) -> str:
    """Returns the section of the report: how many of which kind, and how fast."""
    lines = ["| mutants of | tried | caught | slowest, s |", "|---|---|---|---|"]
    for kind in all_kinds:
        of_kind = [verdicts[one.name] for one in kind.mutant if one.name in verdicts]
        if of_kind:
            caught = sum(one.fate is Fate.CAUGHT for one in of_kind)
            slowest = max(one.seconds for one in of_kind)
            lines.append(f"| {kind.title} | {len(of_kind)} | {caught} | {slowest:.1f} |")
    return "\n".join([*lines, "", "Each of them, and what caught it: [mutants.md](mutants.md)."])


def differences(all_kinds: Sequence[Kind], page: str) -> list[str]:
    """Returns which mutants a page does not list as they are, and what else it lists."""
    rows = [
        line for line in page.splitlines() if line.startswith("| ") and "| mutant |" not in line
    ]
    wanted = [row_start(mutant) for kind in all_kinds for mutant in kind.mutant]
    missing = [start for start in wanted if sum(row.startswith(start) for row in rows) != 1]
    surplus = [row for row in rows if not row.startswith(tuple(wanted))]
    return [f"not as it is in the table: {one}" for one in [*missing, *surplus]]
