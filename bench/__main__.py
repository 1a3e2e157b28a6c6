"""`python -m bench [NAME ...]`: measure, compare with the record, report. `--list` lists the names.

`python -m bench profile` and `python -m bench report` are other programs: see `bench.profiling` and
`bench.figures`.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import traceback
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from bench import (
    ceilings,
    figures,
    flatness,
    idle,
    instructions,
    old_requests,
    one_way,
    overhead,
    profiling,
    record,
    recovery,
    report,
    rows,
    simulator,
    spark_rows,
    stream_latency,
    stream_sizes,
    waiting,
)
from bench.cases import CASES as QUEUE_CASES
from bench.cases import targeted
from bench.pairs import Pace
from bench.results import Lines, Result
from bench.scene import Scene
from bench.stream_cases import STREAM_CASES
from bench.terminal import Terminal, draw, table, wide_console

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    Ask = Callable[[Scene], None]

CASES = (*QUEUE_CASES, *STREAM_CASES)
QUESTIONS = {
    "ceilings": ceilings,
    "instructions": instructions,
    "overhead": overhead,
    "one-way": one_way,
    "recovery": recovery,
    "idle": idle,
    "flatness": flatness,
    "old-requests": old_requests,
    "simulator": simulator,
    "waiting": waiting,
    "spark": spark_rows,
    "stream-latency": stream_latency,
    "stream-sizes": stream_sizes,
}
GROUPS = {"streams": (*(case.name for case in STREAM_CASES), "stream-latency", "stream-sizes")}
"""What several cases and questions are called together."""
QUICK = Pace(rounds=3, slice_s=0.3, is_asked=True)
FULL = Pace()
SCALE_QUICK = 0.01
SCALE = 0.1


def parsed(arguments: Sequence[str]) -> argparse.Namespace:
    """Return the options. Names are those of cases, of their results, or of whole questions."""
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument(
        "names",
        nargs="*",
        metavar="NAME",
        help="cases, results of theirs, questions, or `streams`; all",
    )
    parser.add_argument("--list", action="store_true", help="say what there is, and end")
    parser.add_argument("--only-targets", action="store_true", help="leave out what has no target")
    parser.add_argument("--rounds", type=int, help="of each pair (4, of streams 9; quick: 3)")
    parser.add_argument("--quick", action="store_true", help="short slices: shapes, not figures")
    parser.add_argument(
        "--scale",
        type=float,
        help="of the sizes of flatness, old-requests and stream-sizes (0.1; in full: 1)",
    )
    parser.add_argument("--json", action="store_true", help="JSON lines on standard output")
    parser.add_argument("--record", action="store_true", help="write bench/recorded.json")
    parser.add_argument("--check", action="store_true", help="exit code 1 when something fell")
    parser.add_argument(
        "--commit-delay",
        type=int,
        default=0,
        metavar="US",
        help="let PostgreSQL wait before each sync, as on a slower disk; never recorded",
    )
    options = parser.parse_args(arguments)
    if options.commit_delay and options.record:
        parser.error("what was measured with --commit-delay is no record")
    if options.record and (changed := report.changes()):
        parser.error(f"the tree is changed ({len(changed)} files): what is recorded is of a commit")
    options.names = [one for name in options.names for one in GROUPS.get(name, (name,))]
    known = {*(case.name for case in CASES), *rows.expected(CASES), *QUESTIONS}
    if unknown := set(options.names) - known:
        parser.error(f"no such case: {', '.join(sorted(unknown))}; --list tells")
    return options


def chosen(options: argparse.Namespace) -> tuple[list[str], list[tuple[str, Ask]]]:
    """Return the names of the requested results, and the questions to ask."""
    wanted = set(options.names or [*(case.name for case in CASES), *QUESTIONS])
    cases = rows.selected(CASES, wanted)
    questions = {name: module for name, module in QUESTIONS.items() if name in wanted}
    if options.only_targets:
        cases = targeted(cases)
        questions.pop("ceilings", None)
    expected = [*rows.expected(cases), *(one for m in questions.values() for one in m.NAMES)]
    asks: list[tuple[str, Ask]] = [("pairs", partial(rows.run, cases=cases))] if cases else []
    return expected, [*asks, *((name, module.run) for name, module in questions.items())]


def ask_all(options: argparse.Namespace, terminal: Terminal, logs: Path) -> None:
    """Ask the questions; one that fails is a result too, and the others go on."""
    pace = QUICK if options.quick else FULL
    if options.rounds:
        pace = replace(pace, rounds=options.rounds, is_asked=True)
    scale = options.scale or (SCALE_QUICK if options.quick else SCALE)
    logs.mkdir()
    with tempfile.TemporaryDirectory(prefix="onceq-bench-") as directory:
        for name, ask in chosen(options)[1]:
            place = Path(directory) / name
            place.mkdir()
            scene = Scene(
                directory=place,
                logs=logs,
                pace=pace,
                scale=scale,
                told=terminal,
                commit_delay_us=options.commit_delay,
            )
            try:
                ask(scene)
            except Exception as error:  # noqa: BLE001 - the boundary: it is reported as an error
                traceback.print_exc()
                text = f"{type(error).__name__}: {error}"
                terminal.found(Result(name=name, question="the whole question", error=text))


def main(arguments: Sequence[str]) -> int:
    """Run what is requested; return 1 if something failed, or fell below its record."""
    options = parsed(arguments)
    expected = chosen(options)[0]
    if options.list:
        print("\n".join(expected))
        return 0
    about, folder = report.machine(), report.new_folder()
    recorded = record.of_machine(record.read(), about["fingerprint"])
    about["commit_delay_us"] = options.commit_delay
    console = wide_console(stderr=True)
    with (folder / "lines.jsonl").open("w") as file:
        lines = Lines([file, sys.stdout] if options.json else [file])
        with Terminal(console, expected, lines) as terminal:
            ask_all(options, terminal, folder / "logs")
    results = in_order(terminal.results, expected)
    report.write_report(folder, results, recorded, about)
    drawn = draw(folder)
    report.write_report(folder, results, recorded, about)  # again, with the plots
    wide_console(stderr=options.json).print(table(results, recorded))
    console.print(f"{drawn}\nreport: {folder}")
    if options.record:
        record.write(record.recordable(results, about["fingerprint"], about["revision"]))
    return verdict(options, results, expected, recorded)


def in_order(results: Sequence[Result], expected: Sequence[str]) -> list[Result]:
    """Return the results in the order of the table of cases; what failed as a whole is last."""
    places = {name: place for place, name in enumerate(expected)}
    return sorted(results, key=lambda result: places.get(result.name, len(places)))


def verdict(
    options: argparse.Namespace,
    results: Sequence[Result],
    expected: Sequence[str],
    recorded: Mapping[str, record.Recorded],
) -> int:
    """Return the exit code, and say why it is not 0."""
    failed = [result.name for result in results if result.error]
    slower = [one.name for one in results if record.moved(one, recorded) == "slower"]
    gone = record.lost(expected, results, recorded)
    wrong = {"failed": failed}
    if options.check:
        wrong |= {"below the record": slower, "recorded, and without a value now": gone}
    for what, names in wrong.items():
        if names:
            print(f"{what}: {', '.join(names)}", file=sys.stderr)
    return int(any(wrong.values()))


if __name__ == "__main__":
    others = {"profile": profiling.main, "report": figures.main}
    if sys.argv[1:2] and sys.argv[1] in others:
        sys.exit(others[sys.argv[1]](sys.argv[2:]))
    sys.exit(main(sys.argv[1:]))
