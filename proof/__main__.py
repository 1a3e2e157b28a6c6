"""`python -m proof`: shows that nothing is lost and nothing runs twice. `--list` says how.

Without arguments it does what `make proof` does, but writes nothing. Exit code 0: no violation,
every goal reached, every control failed as it must; else 1. What this machine cannot try is not
shown: that is a failure too, unless the command line leaves it out (`--without power-cut`). Each
part is recorded by itself (`--write`), with a digest of the sources that it covers; `--status` says
which records are older than these, and `--older` runs those parts again.
"""

from __future__ import annotations

import argparse
import signal
import sys
import time
from typing import TYPE_CHECKING

import msgspec

from proof import judging, keeping, machine, record
from proof.part import Size
from proof.running import Terms
from proof.schedule import run_all
from proof.table import TABLE, parts_of
from proof.terminal import Terminal, console, show_end

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import NoReturn

    from proof.part import Part
    from proof.record import Record

SEED = 1990
"""The seed of a run that is given no other: always the same, so that runs can be compared."""


def parsed(arguments: Sequence[str]) -> argparse.Namespace:
    """Return the options; usage errors end the program with exit code 2."""
    parser = argparse.ArgumentParser(prog="python -m proof", description=__doc__)
    parser.add_argument("--list", action="store_true", help="say which parts there are, and end")
    parser.add_argument(
        "--status", action="store_true", help="say which records are older than their sources"
    )
    parser.add_argument("--only", nargs="+", metavar="NAME", help="these parts")
    parser.add_argument("--without", nargs="+", metavar="NAME", default=[], help="all but these")
    parser.add_argument(
        "--older", action="store_true", help="of these, those whose record is older, or missing"
    )
    parser.add_argument("--size", type=Size, choices=list(Size), default=Size.PROOF)
    parser.add_argument("--seed", type=int, default=SEED, help=f"of all choices ({SEED})")
    parser.add_argument(
        "--write", action="store_true", help="record each part that has ended, and its page"
    )
    parser.add_argument("--json", action="store_true", help="the record on standard output")
    parser.add_argument("--table", default=TABLE, help=argparse.SUPPRESS)  # for the tests
    return parser.parse_args(arguments)


def chosen(options: argparse.Namespace, parts: Sequence[Part]) -> list[Part]:
    """Return the requested parts; exit code 2 if one does not exist."""
    names = [part.name for part in parts]
    wanted: list[str] = options.only or names
    if unknown := sorted({*wanted, *options.without} - set(names)):
        sys.stderr.write(f"no such part: {', '.join(unknown)}; there are: {', '.join(names)}\n")
        sys.exit(2)
    held = record.read(record.path_of(options.size))
    return [
        part
        for part in parts
        if part.name in wanted
        and part.name not in options.without
        and not (options.older and keeping.standing(part, held) == keeping.CURRENT)
    ]


def run(options: argparse.Namespace, parts: Sequence[Part]) -> Record:
    """Run the requested parts; return what they have shown, judged."""
    terms = Terms(size=options.size, seed=options.seed, table=options.table)
    to = console()
    to.print(f"proof: size {terms.size}, seed {terms.seed}")
    began = time.monotonic()
    about = record.Run(seed=options.seed, date="", machine=machine.described())
    with Terminal(to) as terminal:
        kept = keeping.Keeping(terminal, parts, terms.size, about)
        results = run_all(chosen(options, parts), terms, kept if options.write else terminal)
    shown = [keeping.shown_of(result, about) for result in results]
    judged = judging.judged(parts, shown, options.size)
    return record.Record(
        size=options.size,
        took_s=round(time.monotonic() - began, 1),
        shown=shown,
        judged=msgspec.structs.replace(judged, wrong=[*judged.wrong, *kept.refused]),
    )


def why_not_written(size: Size) -> str | None:
    """Return why a run may not be recorded; None: it may be."""
    if size is Size.SMALL:
        return (
            "the small size is not recorded: the page holds the size of the proof, or the long run"
        )
    return machine.why_not_recorded()


def show_status(parts: Sequence[Part], size: Size) -> int:
    """Say for each part what its record is worth; return 1 unless all are current."""
    found = keeping.status(parts, size)
    for name, standing, of in found:
        sys.stdout.write(f"{name:<22}{standing:<24}{of}\n")
    left = sum(standing != keeping.CURRENT for _, standing, _ in found)
    sys.stdout.write(f"{len(found) - left} of {len(found)} parts are current\n")
    return int(left > 0)


def ended(made: Record, seed: int) -> int:
    """Show how a run has ended; return its exit code."""
    show_end(console(), made.judged, f"onceq: the proof, size {made.size}, seed {seed}")
    return 1 if made.judged.wrong else 0


def _refuse(reason: str | None) -> None:
    if reason is not None:
        sys.stderr.write(f"proof: nothing is written: {reason}\n")
        sys.exit(2)


def _stop(*_: object) -> NoReturn:
    raise KeyboardInterrupt


def main(arguments: Sequence[str]) -> int:
    """Do what is requested; return the exit code."""
    options = parsed(arguments)
    parts = parts_of(options.table)
    if options.list:
        sys.stdout.writelines(f"{part.name}: {part.text}\n" for part in parts)
        return 0
    if options.status:
        return show_status(parts, options.size)
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, _stop)  # so that no part outlives the run
    if options.write:
        _refuse(why_not_written(options.size))
    made = run(options, parts)
    if options.json:
        sys.stdout.buffer.write(msgspec.json.encode(made) + b"\n")
    return ended(made, options.seed)


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except KeyboardInterrupt:
        sys.stderr.write("proof: interrupted\n")
        sys.exit(130)
