"""Clients killed with -9 at every step of send, receive and process, and what became of each order.

A part of the proof. This process is warm: it forks the clients, a few at a time, each with the
step at which it is to die. Some are killed at a random moment instead, in the middle of a step.
Begun again with nothing but their name and their ledger, they must know the truth; and in the end
every order was executed once and processed once.
"""

from __future__ import annotations

import gc
import os
import random
import select
import signal
import time
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

import onceq
from proof.clients.forks import forked
from proof.clients.ground import ORDERS, REPOSITORY, Ground, effects_of, prepared_ground
from proof.clients.life import LEDGERS, NAIVE, NEVER, VARIANTS, Errand, live, rows_of
from proof.clients.went_back import WentBack
from proof.goals import CLIENT_KILLS, KILLS
from proof.part import Control, Limits, Measure, Order, Outcome, Part, Size

if TYPE_CHECKING:
    from collections.abc import Callable

KILLED: Final = {Size.SMALL: 100, Size.PROOF: 2_000, Size.LONG: 40_000}
CONTROL_KILLS: Final = 20
CONTROL: Final = f"a client with {NAIVE}"
ABREAST: Final = 3
STEPS: Final = 70
"""About as many steps as three requests have, with the connects before them."""
AT_RANDOM: Final = 0.2
"""The share of lives that end at a random moment."""
LONGEST_S: Final = 0.15
SLOW_EVERY: Final = 4
SLOW_S: Final = 0.4
"""One order in this many takes this long: meanwhile its client finds it submitted (B)."""
FOUND: Final = {Size.SMALL: 1, Size.PROOF: 20, Size.LONG: 400}
"""How often each state must be found, at least."""
STATES: Final = ("A", "B", "C", "D", "E")
STUCK_S: Final = 60.0


@dataclass(slots=True)
class Living:
    """A running life. until: when it is killed from outside; chosen: that this was planned."""

    errand: Errand
    handle: int
    until: float
    chosen: bool


@dataclass(slots=True)
class Trial:
    """The lives of all clients on a ground."""

    ground: Ground
    chance: random.Random
    say: Callable[[str, int, int], None]
    kills: Counter[str] = field(default_factory=Counter[str])
    violations: list[str] = field(default_factory=list[str])
    living: dict[int, Living] = field(default_factory=dict[int, Living])

    def run(self, variants: tuple[str, ...], kills: int) -> None:
        """Kills clients until each variant has had its share, then lets each come to its end."""
        share = -(-kills // len(variants))
        waiting = list(variants)
        while (waiting or self.living) and not self.violations:
            while waiting and len(self.living) < ABREAST:
                self._begin(waiting.pop(0), share)
            self._wait()
            for one in self._ended():
                self.say(f"killing {one.variant}", self.kills.total(), share * len(variants))
                if one.requests == NEVER:  # at once: its last request may be under way (B)
                    waiting.insert(0, one.variant)
        self._end_all()

    def _begin(self, variant: str, share: int) -> None:
        dies = self.kills[variant] < share
        client = variant.replace(" ", "-")
        at_random = dies and self.chance.random() < AT_RANDOM
        death = self.chance.randint(1, STEPS) if dies and not at_random else 0
        last = NEVER if dies else self.ground.meant(client) + 1
        errand = Errand(self.ground, variant, client, death, last)
        pid = forked(errand.ground, client, lambda: live(errand))
        limit_s = self.chance.uniform(0, LONGEST_S) if at_random else STUCK_S
        until = time.monotonic() + limit_s
        self.living[pid] = Living(errand, os.pidfd_open(pid), until, at_random)

    def _wait(self) -> None:
        left = min(one.until for one in self.living.values()) - time.monotonic()
        select.select([one.handle for one in self.living.values()], [], [], max(left, 0))
        for pid, one in self.living.items():
            if time.monotonic() >= one.until:
                os.kill(pid, signal.SIGKILL)

    def _ended(self) -> list[Errand]:
        """Takes out those that have ended, and counts how."""
        found: list[Errand] = []
        for pid, one in list(self.living.items()):
            ended, status = os.waitpid(pid, os.WNOHANG)
            if ended == 0:
                continue
            os.close(one.handle)
            del self.living[pid]
            code = os.waitstatus_to_exitcode(status)
            in_time = one.errand.steps.at > 0 and time.monotonic() < one.until
            if code == -signal.SIGKILL and (one.chosen or in_time):
                self.kills[one.errand.variant] += 1
            elif code != 0:
                self.violations.append(f"{one.errand.variant}: a client ended with {code}")
            found.append(one.errand)
        return found

    def _end_all(self) -> None:
        for pid, one in self.living.items():
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
            os.close(one.handle)
        self.living.clear()

    def judge(self, variant: str) -> tuple[int, Counter[str]]:
        """Compares what was done with what should have been; returns orders, and states found."""
        errand = Errand(self.ground, variant, variant.replace(" ", "-"), 0)
        orders, states, wrong = judged(errand)
        self.violations += wrong
        return orders, states


def judged(errand: Errand) -> tuple[int, Counter[str], list[str]]:
    """Compares what was done for a client with what should have been.

    Returns how many orders it meant to send, which states it found, and what is wrong.
    """
    ground, variant, client = errand.ground, errand.variant, errand.client
    wanted = set(range(1, ground.meant(client) + 1))
    works = variant in LEDGERS
    once = {
        "executed": (effects_of(ground, client), wanted),
        "processed": (rows_of(errand, "processed"), wanted),
        "worked": (
            rows_of(errand, "worked") if works else [],
            {one for one in wanted if works and one % 3 == 1},
        ),
    }
    wrong: list[str] = []
    for what, (numbers, all_of_them) in once.items():
        counts = Counter(numbers)
        twice = sorted(number for number, times in counts.items() if times > 1)
        if twice or set(numbers) != all_of_them:
            lost = sorted(all_of_them - set(numbers))
            wrong.append(f"{client}: {what} twice {twice[:9]}, never {lost[:9]}")
    path = ground.place / f"{client}.states"
    states = path.read_text().splitlines() if path.exists() else []
    wrong += [line for line in states if line.startswith("WRONG")]
    return len(wanted), Counter(states), wrong


def serve(ground: Ground) -> None:
    """Serves the orders: one row for each, with no key, so that a double shows."""

    def handle(order: str, context: onceq.Context) -> str:
        client, number = order.split()
        if int(number) % SLOW_EVERY == 0:  # so that a client is killed, and lives again, meanwhile
            context.connection.execute("select pg_sleep(%s)", (SLOW_S,))
        context.connection.execute(
            "insert into effects values (%s, %s, %s)", (client, int(number), os.getpid())
        )
        return number

    server = onceq.Server([ORDERS.handled_by(handle)], concurrency=ABREAST)
    server.run(ground.url, repository=REPOSITORY)


def run(order: Order) -> Outcome:
    """Kills clients of every variant, and judges."""
    with prepared_ground(order.place) as ground:
        gc.collect()
        gc.freeze()
        server = forked(ground, "server", lambda: serve(ground))
        try:
            trial = Trial(ground, random.Random(order.seed), order.say)
            trial.run(VARIANTS, KILLED[order.size])
            found = {one: trial.judge(one) for one in VARIANTS}
            went_back = WentBack(ground, random.Random(order.seed), order.say, serve)
            went_back.run(order.size)
            control = Trial(ground, random.Random(order.seed), order.say)
            control.run((NAIVE,), CONTROL_KILLS)
            naive = NAIVE.replace(" ", "-")
            doubled = sum(times > 1 for times in Counter(effects_of(ground, naive)).values())
        finally:
            os.kill(server, signal.SIGKILL)
            os.waitpid(server, 0)
        said = ground.place / "said.txt"
        told = [said.read_text()] if said.exists() else []
    total = trial.kills.total() + went_back.kills
    states = sum((counts for _, counts in found.values()), went_back.states)
    wrong = (*trial.violations, *went_back.violations, *told)
    return Outcome(
        measures=[
            Measure(what=CLIENT_KILLS, reached=total),
            Measure(what=KILLS, reached=total),
            *(
                Measure(what=f"state {one} found", reached=states[one], goal=FOUND[order.size])
                for one in STATES
            ),
        ],
        violations=[f"{what}; seed {order.seed}" for what in wrong],
        controls=[Control(what=CONTROL, broke=doubled, of=control.kills.total())],
        page=page(trial, found) + went_back.page(),
    )


def page(trial: Trial, found: dict[str, tuple[int, Counter[str]]]) -> str:
    """Returns the section of the report: a row for each variant."""
    letters = ("A", "B", "C", "D", "ABD")
    lines = [
        "Clients of each variant were killed with -9 before and after every operation, and in the",
        "middle of some. Each time the state that `recover` returned was compared with the truth,",
        "read by SQL; in the end every order was executed once and processed once.",
        "",
        f"| variant | kills | orders | {' | '.join(letters[:4])} | A, B or D |",
        "|---|---:|---:|---:|---:|---:|---:|---:|",
    ]
    for variant, (orders, states) in found.items():
        counts = " | ".join(str(states[letter]) for letter in letters)
        lines.append(f"| {variant} | {trial.kills[variant]} | {orders} | {counts} |")
    return "\n".join([*lines, ""])


PART: Final = Part(
    name="clients",
    text="clients are killed at every step, with each kind of ledger and with none: they know",
    run=run,
    states=(CLIENT_KILLS, KILLS),
    controls={CONTROL: 0.25},
    in_memory=True,
    limits=Limits(small_s=170.0, proof_s=900.0),
)
