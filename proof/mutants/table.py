"""The mutants, as the TOML files beside this module list them, and the trees they fit into.

Invariants: a mutant changes text that occurs exactly once in its file. One that no longer fits is
an error: a change of the product must not make a mutant harmless without anybody knowing.
"""

from __future__ import annotations

import re
from pathlib import Path

import msgspec

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
GUARANTEES = re.compile(r"G(?:[1-9]|1[0-2])|Q8|Q13")


class Unfit(Exception):
    """A mutant that cannot be planted: its text is not there, or occurs more than once."""


class Change(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Text that occurs once in a file, and the mutant's replacement."""

    file: str
    old: str
    new: str


class Mutant(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """One broken variant. why: in one sentence. guarantee: G1 to G12, Q8 (order) or Q13 (limits).

    tests: node ids of pytest, the nearest and cheapest first; each passes unmutated, and one of
    them fails here. raises: the class of the error that it fails with, where that is no assertion.
    """

    name: str
    guarantee: str
    why: str
    tests: list[str]
    change: list[Change]
    raises: str | None = None

    @property
    def where(self) -> list[str]:
        """The files that it changes, each once."""
        return list(dict.fromkeys(one.file for one in self.change))


class Kind(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A file of mutants. title: what they have in common."""

    title: str
    mutant: list[Mutant]


def kinds(folder: Path = HERE) -> list[Kind]:
    """Returns all mutants by kind, the files in the order of their names."""
    return [
        msgspec.toml.decode(path.read_bytes(), type=Kind) for path in sorted(folder.glob("*.toml"))
    ]


def mutated(mutant: Mutant, root: Path) -> dict[Path, str]:
    """Returns the changed files of a tree with their new text; nothing is written. Unfit."""
    texts: dict[Path, str] = {}
    for change in mutant.change:
        path = root / change.file
        if path not in texts:
            texts[path] = path.read_text(encoding="utf-8")
        times = texts[path].count(change.old)
        if times != 1 or change.old == change.new:
            raise Unfit(
                f"mutant {mutant.name!r}: its text stands {times} times in {change.file}, not "
                "once; fit the mutant to the code as it is now (proof/mutants/*.toml), and see "
                f"that it is still caught: {change.old!r}"
            )
        texts[path] = texts[path].replace(change.old, change.new)
    return texts


def faults_of(all_kinds: list[Kind], root: Path = ROOT) -> list[str]:
    """Returns what is wrong with the table, and with how it fits into a tree."""
    found: list[str] = []
    names: set[str] = set()
    for mutant in (one for kind in all_kinds for one in kind.mutant):
        if mutant.name in names:
            found.append(f"two mutants are called {mutant.name!r}")
        names.add(mutant.name)
        if not GUARANTEES.fullmatch(mutant.guarantee):
            found.append(f"mutant {mutant.name!r}: {mutant.guarantee!r} is no guarantee")
        if not mutant.tests:
            found.append(f"mutant {mutant.name!r}: no test is to catch it")
        missing = [one for one in mutant.tests if not (root / one.split("::")[0]).is_file()]
        found += [f"mutant {mutant.name!r}: there is no test {one}" for one in missing]
        try:
            mutated(mutant, root)
        except (Unfit, OSError) as error:
            found.append(str(error))
    return found
