"""`python -m proof`: show that nothing is lost and nothing runs twice. `--list` says by what.

Without arguments it does what `make proof` does, but writes nothing. Exit code 0: no violation,
every goal reached, every control failed as it must; else 1. What this machine cannot try is named,
and is no failure.
"""

from __future__ import annotations

import argparse
import datetime as dt
import signal
import sys
import time
from typing import TYPE_CHECKING

import msgspec

from proof import judging, machine, page, record
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
"""Of a run that is not told another: the same for all, so that runs can be compared."""


def parsed(arguments: Sequence[str]) -> argparse.Namespace:
    """Return the options; usage errors end the program with exit code 2."""
    parser = argparse.ArgumentParser(prog="python -m proof", description=__doc__)
    parser.add_argument("--list", action="store_true", help="say which parts there are, and end")
    parser.add_argument("--only", nargs="+", metavar="NAME", help="these parts")
    parser.add_argument("--size", type=Size, choices=list(Size), default=Size.PROOF)
    parser.add_argument("--seed", type=int, default=SEED, help=f"of all choices ({SEED})")
    parser.add_argument("--write", action="store_true", help="write the record and its page")
    parser.add_argument("--json", action="store_true", help="the record on standard output")
    parser.add_argument("--table", default=TABLE, help=argparse.SUPPRESS)  # of the tests
    return parser.parse_args(arguments)


def chosen(options: argparse.Namespace, parts: Sequence[Part]) -> list[Part]:
    """Return the parts that are asked for; exit code 2 when one does not exist."""
    names = [part.name for part in parts]
    wanted: list[str] = options.only or names
    if unknown := sorted(set(wanted) - set(names)):
        sys.stderr.write(f"no such part: {', '.join(unknown)}; there are: {', '.join(names)}\n")
        sys.exit(2)
    return [part for part in parts if part.name in wanted]


def run(options: argparse.Namespace, parts: Sequence[Part]) -> Record:
    """Run the parts that are asked for; return what they have shown, judged."""
    terms = Terms(size=options.size, seed=options.seed, table=options.table)
    to = console()
    to.print(f"proof: size {terms.size}, seed {terms.seed}")
    began = time.monotonic()
    on = machine.described()  # before: who changes the tree meanwhile is found out at the end
    with Terminal(to) as terminal:
        results = run_all(chosen(options, parts), terms, terminal)
    today = dt.datetime.now(dt.UTC).date().isoformat()
    about = record.Run(seed=options.seed, date=today, machine=on)
    shown = [record.shown(result, about) for result in results]
    return record.Record(
        size=options.size,
        took_s=round(time.monotonic() - began, 1),
        shown=shown,
        judged=judging.judged(parts, shown, options.size),
    )


def write(made: Record, parts: Sequence[Part]) -> None:
    """Write record and page; what was not run again is kept."""
    path = record.path_of(made.size)
    together = record.merged(record.read(path), made, [part.name for part in parts])
    verdict = judging.judged(parts, together.shown, together.size)
    together = msgspec.structs.replace(together, judged=verdict)
    record.write(together, path)
    page.path_of(made.size).write_text(page.text(together))


def why_not_written(size: Size, made: Record | None = None) -> str | None:
    """Return why a run is not to be recorded; None: it may be. made: what it has come to."""
    if size is Size.SMALL:
        return (
            "the small size is not recorded: the page holds the size of the proof, or the long run"
        )
    if reason := machine.why_not_recorded():
        return reason
    if made is not None and any(one.machine != machine.described() for one in made.shown):
        return "the revision has changed since the run began"
    return None


def _refuse(reason: str | None) -> None:
    if reason is not None:
        sys.stderr.write(f"proof: nothing is written: {reason}\n")
        sys.exit(2)


def _stop(*_: object) -> NoReturn:
    raise KeyboardInterrupt


def main(arguments: Sequence[str]) -> int:
    """Do what is asked for; return the exit code."""
    options = parsed(arguments)
    parts = parts_of(options.table)
    if options.list:
        sys.stdout.writelines(f"{part.name}: {part.text}\n" for part in parts)
        return 0
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, _stop)  # so that no part outlives the run
    if options.write:
        _refuse(why_not_written(options.size))
    made = run(options, parts)
    if options.write:
        _refuse(why_not_written(options.size, made))
        write(made, parts)
    if options.json:
        sys.stdout.buffer.write(msgspec.json.encode(made) + b"\n")
    about = f"onceq: the proof, size {made.size}, seed {options.seed}"
    show_end(console(), made.judged, about)
    return 1 if made.judged.wrong else 0


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except KeyboardInterrupt:
        sys.stderr.write("proof: interrupted\n")
        sys.exit(130)
