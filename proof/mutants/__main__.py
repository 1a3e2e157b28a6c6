"""`python -m proof.mutants`: plants mutants and says what caught each; `--write` makes the page.

Exit code 0: all that were asked for were caught; else 1.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from proof.mutants import page
from proof.mutants.part import tried, violations
from proof.mutants.table import faults_of, kinds

if TYPE_CHECKING:
    from collections.abc import Sequence

    from proof.mutants.part import Trials
    from proof.mutants.table import Mutant


def parsed(arguments: Sequence[str]) -> argparse.Namespace:
    """Returns the options; usage errors end the program with exit code 2."""
    parser = argparse.ArgumentParser(prog="python -m proof.mutants", description=__doc__)
    parser.add_argument("--list", action="store_true", help="say which there are, and end")
    parser.add_argument("--only", nargs="+", metavar="NAME", help="these mutants")
    parser.add_argument(
        "--write", action="store_true", help="run all, and write docs/maintainers/mutants.md"
    )
    options = parser.parse_args(arguments)
    if options.write and options.only:
        parser.error("--write is of all mutants")
    return options


def say(text: str, done: int, of: int) -> None:
    """Says on standard error what is being run."""
    sys.stderr.write(f"{done}/{of} {text}\n")


def show(mutants: Sequence[Mutant], trials: Trials) -> None:
    """Prints a line for each mutant."""
    for mutant in mutants:
        verdict = trials.verdicts[mutant.name]
        head = f"{verdict.fate:10} {verdict.seconds:5.1f} s  {mutant.guarantee:3} {mutant.name}"
        sys.stdout.write(f"{head}: {verdict.by}: {verdict.says[:200]}\n")


def main(arguments: Sequence[str]) -> int:
    """Does what is requested; returns the exit code."""
    options = parsed(arguments)
    all_kinds = kinds()
    everything = [mutant for kind in all_kinds for mutant in kind.mutant]
    mutants = [one for one in everything if not options.only or one.name in options.only]
    if options.list:
        sys.stdout.writelines(f"{one.guarantee:3} {one.name}\n" for one in everything)
        return 0
    if unknown := set(options.only or ()) - {one.name for one in everything}:
        sys.stderr.write(f"no such mutant: {', '.join(sorted(unknown))}\n")
        return 2
    wrong = faults_of(all_kinds)
    if not wrong:
        with tempfile.TemporaryDirectory(prefix="onceq-mutants-") as directory:
            trials = tried(mutants, Path(directory), say)
        show(mutants, trials)
        wrong = violations(mutants, trials)
        if options.write and not wrong:
            page.PATH.write_text(page.text(all_kinds, trials.verdicts), encoding="utf-8")
    sys.stdout.writelines(f"{one}\n" for one in wrong)
    sys.stdout.write(f"{len(mutants)} mutants, {len(wrong)} complaints\n")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
