"""The fuzzing of streams as a part of the proof: so many inputs, in batches of one seed each."""

from __future__ import annotations

import multiprocessing
import resource
import tempfile
import traceback
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from onceq.streams.store.disk_store import DiskStore
from onceq.streams.store.memory_store import MemoryStore
from proof import goals
from proof.part import Limits, Measure, Outcome, Part, Size
from proof.streams_fuzz.invention import Invention
from proof.streams_fuzz.receivers import Told
from proof.streams_fuzz.stores import Fed
from proof.streams_simulation.disk_nodes import identified
from proof.streams_simulation.volume import Volume

if TYPE_CHECKING:
    from collections.abc import Iterator

    from proof.part import Order

INPUTS = {Size.SMALL: 4_000, Size.PROOF: 1_000_000, Size.LONG: 50_000_000}
BATCH = 200
"""Inputs to one store or receiver; so many batches are one share of a process."""
BATCHES = 20
PROCESSES = 2
ON_DISKS = 4
"""Of so many batches one has a store on a disk, and one a receiver."""
GROWN_KB_MAX = 64 << 10
"""How much a process may grow from its first share to its last."""
SHOWN_MAX = 50
HEAD = """\
Asks, answers and frames that are invented by their types, at the limits of their numbers; some with
bits flipped, cut short, or spliced; and noise. They are fed to stores in memory and on disks, and
to receivers, as they come from a connection. Nothing may raise but what refuses; what is damaged
must have no effect; each sound ask must have one answer of a kind that may answer it; what is
stable in a sound stream beside must stay; what a receiver shows must ascend; memory must not grow.
`python -m proof.streams_fuzz SEED` repeats a batch.
"""


@dataclass(slots=True)
class Verdicts:
    """What was tried, and found wrong. size_kb: the greatest size of the process so far."""

    tried: Counter[str] = field(default_factory=Counter[str])
    wrong: list[str] = field(default_factory=list[str])
    process: str = ""
    size_kb: int = 0


def run_batches(asked: tuple[range, Path]) -> Verdicts:
    """Run the batches of some seeds."""
    seeds, place = asked
    made = Verdicts(process=multiprocessing.current_process().name)
    with tempfile.TemporaryDirectory(dir=place) as home:
        directory = identified(Path(home) / "store", keeps=True)
        for seed in seeds:
            batch(seed, directory, made)
    made.size_kb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return made


def batch(seed: int, directory: Path, made: Verdicts) -> None:
    """Run the batch of a seed."""
    invention = Invention(seed)
    store = _store(seed, directory, invention)
    try:
        target = Told(invention) if seed % ON_DISKS == 1 else Fed(store, invention)
        for _ in range(BATCH):
            target.feed()
        if isinstance(target, Fed):
            target.settle()
        target.check()
        made.tried.update(target.tried)
        made.wrong += [f"{text} (seed {seed})" for text in target.wrong]
    except Exception:  # noqa: BLE001 # whatever is raised is what is looked for
        made.wrong.append(f"seed {seed} raised: {traceback.format_exc(limit=-3)}")
    finally:
        if isinstance(store, DiskStore):
            store.close()


def _store(seed: int, directory: Path, invention: Invention) -> DiskStore | MemoryStore:
    if seed % ON_DISKS:
        return MemoryStore(clock=lambda: 0.0)
    volume = Volume(invention.chance)
    return DiskStore(directory, invention.chance.randbytes, files=volume, clock=lambda: 0.0)


def run(order: Order) -> Outcome:
    """Run as many inputs as the size asks for, by several processes."""
    batches = INPUTS[order.size] // BATCH
    last = order.seed + batches
    shares = [
        (range(first, min(first + BATCHES, last)), order.place)
        for first in range(order.seed, last, BATCHES)
    ]
    total = Verdicts()
    sizes: dict[str, list[int]] = {}
    with multiprocessing.get_context("spawn").Pool(PROCESSES) as pool:
        for made in pool.imap_unordered(run_batches, shares):
            total.tried.update(made.tried)
            total.wrong += made.wrong
            sizes.setdefault(made.process, []).append(made.size_kb)
            order.say("inputs", total.tried.total(), INPUTS[order.size])
    grown = max((max(ones) - ones[0] for ones in sizes.values()), default=0)
    return Outcome(
        measures=[
            Measure(what=goals.STREAM_INPUTS, reached=total.tried.total()),
            Measure(what="KiB by which a process grew under bad inputs", reached=grown),
        ],
        violations=[*total.wrong[:SHOWN_MAX], *_grown(grown)],
        page=page(total),
    )


def _grown(grown_kb: int) -> Iterator[str]:
    if grown_kb > GROWN_KB_MAX:
        yield f"a process grew by {grown_kb:,} KiB; at most {GROWN_KB_MAX:,} are allowed"


def page(total: Verdicts) -> str:
    """Return the section of the report."""
    lines = [
        HEAD,
        "| what was fed | times |",
        "| --- | --: |",
        *(f"| {what} | {count:,} |" for what, count in sorted(total.tried.items())),
    ]
    return "\n".join(lines) + "\n"


PART = Part(
    name="streams-fuzz",
    text="Frames, asks and answers that no honest process sends, to stores and receivers.",
    run=run,
    states=(goals.STREAM_INPUTS,),
    in_memory=True,
    limits=Limits(small_s=180.0),
)
