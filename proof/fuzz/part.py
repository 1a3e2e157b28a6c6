"""A million inputs that are refused: names, bodies, tags, files, URLs, settings, commands, SQL.

Two processes for what is checked in memory, and then a share against a real PostgreSQL.
"""

from __future__ import annotations

import functools
import multiprocessing
import time
from typing import TYPE_CHECKING, Any

from onceq.engine.embedded import open_embedded
from proof import goals
from proof.fuzz import api, values
from proof.fuzz.database import Database, opened
from proof.fuzz.judge import Verdicts
from proof.fuzz.rubbish import Rubbish
from proof.oracle.memory import MemoryDriver, memory_repository
from proof.part import Limits, Measure, Outcome, Part, Size

if TYPE_CHECKING:
    from collections.abc import Iterator

    from proof.part import Order

PROCESSES = 2
CHUNK = 2000
REFUSED = {Size.SMALL: 10_000, Size.PROOF: 1_000_000, Size.LONG: 50_000_000}
"""How many are to be refused; those that are accepted come on top."""
SHARE_MIN = 0.4
"""How much of the inputs is refused, at least: this bounds the run."""
POSTGRESQL = {Size.SMALL: 400, Size.PROOF: 20_000, Size.LONG: 1_000_000}
SQL = {Size.SMALL: 800, Size.PROOF: 30_000, Size.LONG: 1_500_000}
COMMANDS = {Size.SMALL: 100, Size.PROOF: 2000, Size.LONG: 50_000}
LIFE = 200
"""How many inputs one repository in memory is given before a new one is made."""
MEMORY = 4
"""One input in this many goes to the memory driver, the others to code that checks values."""


class Repository:
    """A repository in memory, and what a refusal must leave as it is."""

    def __init__(self, seed: int) -> None:
        oracle, clock = memory_repository(seed)
        self.place = api.Place(MemoryDriver(oracle, clock), f"client-{seed}")
        state = oracle.state
        self._tables = (
            state.queues,
            state.registrants,
            state.elements,
            state.registrations,
            state.history,
            state.servers,
            state.redriven,
        )

    def state(self) -> Any:
        """Returns the committed rows."""
        return [dict(table.rows) for table in self._tables]


def run_seeds(seeds: tuple[int, int]) -> Verdicts:
    """Judges the inputs of seeds from the first to before the last."""
    verdicts = Verdicts()
    repository = Repository(seeds[0])
    for seed in range(*seeds):
        r = Rubbish(seed)
        if seed % MEMORY:
            check = r.chance.choice(values.CHECKS)
            verdicts.judge("values", check.__name__, r, functools.partial(check, r))
            continue
        if seed % (LIFE * MEMORY) == 0:
            repository = Repository(seed)
        call = r.chance.choice(api.CALLS)
        again = functools.partial(call, repository.place, r)
        verdicts.judge("memory driver", call.__name__, r, again, state=repository.state)
    return verdicts


def run(order: Order) -> Outcome:
    """Judges inputs from the order's seed on, until as many are refused as the goal asks for."""
    began = time.monotonic()
    total = Verdicts()
    with open_embedded(order.place / "postgresql") as server, opened(server.conninfo) as database:
        _against(database, total, order)
    wanted = REFUSED[order.size]
    last = order.seed + int(wanted / SHARE_MIN)
    chunks = [(first, min(first + CHUNK, last)) for first in range(order.seed, last, CHUNK)]
    with multiprocessing.get_context("spawn").Pool(PROCESSES) as pool:
        for verdicts in pool.imap(run_seeds, chunks):  # in order: a seed is for ever the same
            total.add(verdicts)
            order.say("bad inputs", total.refused.total(), wanted)
            if total.refused.total() >= wanted:
                break
    return Outcome(
        measures=[
            Measure(what=goals.BAD_INPUTS, reached=total.refused.total()),
            Measure(what="inputs given", reached=total.inputs.total()),
            Measure(what="inputs accepted", reached=total.accepted.total()),
            Measure(what="inputs that are known to be illegal", reached=total.illegal),
            Measure(what="inputs that are known to be legal", reached=total.legal),
        ],
        violations=total.broken,
        page="\n".join(_page(total, time.monotonic() - began)),
    )


def _against(database: Database, total: Verdicts, order: Order) -> None:
    size = order.size
    for calls, count in (
        (database.call_api, POSTGRESQL[size]),
        (database.call_sql, SQL[size]),
        (database.call_cli, COMMANDS[size]),
    ):
        for number in range(count):
            calls(total, order.seed + number)
            if number % 500 == 0:
                order.say("bad inputs", total.refused.total(), REFUSED[size])


def _page(total: Verdicts, seconds: float) -> Iterator[str]:
    yield f"{total.inputs.total():,} inputs in {seconds:,.0f} s: {total.refused.total():,} were"
    yield f"refused, and {total.accepted.total():,} accepted. The goal counts those refused. Of"
    yield f"{total.illegal:,} the fuzz itself knew, by what is documented, that they are illegal,"
    yield f"and of {total.legal:,} that they are legal: those must be refused, these must not be"
    yield "refused as invalid. After every refusal the repository's tables were compared."
    yield ""
    yield "| layer | inputs | accepted |"
    yield "|---|--:|--:|"
    for layer, count in total.inputs.most_common():
        yield f"| {layer} | {count:,} | {total.accepted[layer]:,} |"
    yield ""
    yield "| refused with | inputs |"
    yield "|---|--:|"
    yield from (f"| `{error}` | {count:,} |" for error, count in total.refused.most_common())


PART = Part(
    name="fuzz",
    text="Rubbish for everything that takes something from outside: it works, or is refused.",
    run=run,
    states=(goals.BAD_INPUTS,),
    limits=Limits(small_s=300.0, long_s=12 * 3600.0),
)
