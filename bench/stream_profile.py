"""`python -m bench profile --streams NUMBER`: what a message of a stream costs, and where.

100 B, 10,000 in flight (`--flight`), or at a pace (`--per-s`), to three stores on disks and a
receiver. Processor time is what the kernel
accounts to the source's process, to that of the receiver and to a store's, of three the mean. Then
the same again under cProfile, each part by itself: the source; one store, its thread that serves
and not the one that commits; a receiver that catches up. Calls are those of Python's functions and
of builtins. Under cProfile each takes longer than without: read shares, and numbers of calls, which
know no noise.
"""

from __future__ import annotations

import contextlib
import cProfile
import json
import os
import pstats
import signal
import subprocess
import sys
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from rich.console import Console
from rich.table import Table

from bench import report as bench_report
from bench.ages import ROOT
from bench.costs import processor
from bench.workers.base import CatchUp, Pace, Place, Publish
from bench.workers.onceq_stream import OnceqStream

if TYPE_CHECKING:
    from collections.abc import Generator, Mapping

    from bench.costs import Processor

Asked: TypeAlias = Publish | Pace | CatchUp
Where: TypeAlias = tuple[str, int, str]
Stats: TypeAlias = "Mapping[Where, tuple[int, int, float, float, Any]]"
"""Of a function: primitive calls, all calls, its own time, that with what it calls, callers."""
TOP = 25
WARM_UP = 20_000
PROFILED = 2
"""The store that is run under cProfile."""
END_S = 60.0


def report(sent: Publish | Pace, *, as_json: bool) -> int:
    """Measure so many messages, sent so, and say what each costs."""
    number = sent.number
    with tempfile.TemporaryDirectory(prefix="onceq-bench-") as name:
        directory = Path(name)
        found = _costs(directory / "costs", sent)
        profiles = {
            "source": _of_loop(directory / "source", sent),
            "store": _of_store(directory / "store", sent),
            "receiver": _of_loop(directory / "receiver", CatchUp(number=number)),
        }
    for part, stats in profiles.items():
        found.setdefault(part, {})["calls"] = _calls(stats, number)
    if as_json:
        for part, costs in found.items():
            rounded = {key: round(value, 3) for key, value in costs.items()}
            line = {"v": 1, "kind": "profile", "scenario": f"stream-{part}", **rounded}
            sys.stdout.write(json.dumps(line) + "\n")
        return 0
    console = Console(highlight=False)
    console.print(f"of revision {bench_report.revision()}; {number:,} messages")
    for part, stats in profiles.items():
        console.print(f"{part}: Python's own time a message\n{_top(stats, number)}")
    console.print(_table(found))
    return 0


@contextlib.contextmanager
def _system(directory: Path) -> Generator[OnceqStream]:
    directory.mkdir()
    with contextlib.closing(
        OnceqStream(Place(directory=directory, conninfo=None, setting="safe"))
    ) as system:
        yield system


def _costs(directory: Path, sent: Publish | Pace) -> dict[str, dict[str, float]]:
    """Return the processor time of each part, a message."""
    number = sent.number
    with _system(directory) as system:
        perform(system, replace(sent, number=min(WARM_UP, number)))
        parts = {
            "source": [os.getpid()],
            "store": system.stores.pids,
            **({"receiver": pids} if (pids := system.receivers()) else {}),
        }
        before = {part: processor(pids) for part, pids in parts.items()}
        seconds = perform(system, sent)
        found = {
            part: _cost(processor(pids).since(before[part]), number * len(pids))
            for part, pids in parts.items()
        }
    found["source"]["wall us"] = seconds / number * 1e6
    return found


def _cost(used: Processor, number: int) -> dict[str, float]:
    return {
        "user us": used.user_s / number * 1e6,
        "kernel us": used.system_s / number * 1e6,
        "switches": used.switches / number,
    }


def _of_loop(directory: Path, asked: Asked) -> Stats:
    """Return the profile of the thread in which a source sends, or a receiver is shown."""
    profile = cProfile.Profile()

    async def switch(*, on: bool) -> None:
        (profile.enable if on else profile.disable)()

    with _system(directory) as system:
        perform(system, asked)
        system.loop.call(switch(on=True))
        perform(system, asked)
        system.loop.call(switch(on=False))
    return _stats(pstats.Stats(profile))


def perform(system: OnceqStream, asked: Asked) -> float:
    """Do what is asked; return the seconds that it took."""
    if isinstance(asked, Publish):
        return system.publish(asked).seconds
    if isinstance(asked, Pace):
        return system.pace(asked).seconds
    return system.catch_up(asked).seconds


def _of_store(directory: Path, sent: Publish | Pace) -> Stats:
    """Return the profile of the thread in which a store serves, from its start to its end."""
    with _system(directory) as system:
        home, at = directory / f"store-{PROFILED}", system.stores.listed.split()[PROFILED]
        system.stores.kill(PROFILED)
        out = directory / "profile"
        command = [sys.executable, "-m", "bench.workers.profiled_store", at, str(home), str(out)]
        with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE) as process:
            try:
                if process.stdout is None or not process.stdout.readline():
                    raise TimeoutError(f"the store ended with {process.wait(END_S)}")
                perform(system, sent)
            finally:
                process.send_signal(signal.SIGTERM)
                process.wait(END_S)
        return _stats(pstats.Stats(str(out)))


def _stats(found: pstats.Stats) -> Stats:
    stats: Stats = vars(found)["stats"]
    return stats


def _calls(stats: Stats, number: int) -> float:
    return sum(calls for _, calls, *_ in stats.values()) / number


def _top(stats: Stats, number: int) -> str:
    """Return the functions with the most time of their own, in microseconds a message."""
    entries = sorted(stats.items(), key=lambda entry: entry[1][2], reverse=True)
    lines = [f"{'us':>8} {'calls':>7}  function"]
    for where, (_, calls, own_s, *_) in entries[:TOP]:
        lines.append(f"{own_s / number * 1e6:8.2f} {calls / number:7.2f}  {_named(where)}")
    return "\n".join(lines)


def _named(where: Where) -> str:
    file, line, name = where
    if line == 0:
        return name
    path = Path(file)
    return f"{path.parent.name}/{path.name}:{line} {name}"


def _table(found: Mapping[str, Mapping[str, float]]) -> Table:
    made = Table("a message", *found)
    for measure in dict.fromkeys(key for one in found.values() for key in one):
        cells = [f"{one[measure]:,.2f}" if measure in one else "" for one in found.values()]
        made.add_row(measure, *cells)
    return made
