"""A repository that goes back: what it had acknowledged is replaced by an older copy.

State E. In each round a client comes to a good end, the repository is copied, the client goes on
and is killed at a step. Then the copy takes the place of the repository, and the client must say
whether that has lost something that, by the client's own ledger, was acknowledged. Ledgers that go
back with the repository cannot know that, so there are two variants.
"""

from __future__ import annotations

import os
import signal
from collections import Counter
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final

import psycopg

import onceq
from onceq.errors import IllegalState
from proof.clients.forks import forked
from proof.clients.ground import BACK, REPOSITORY, Ground, append, effects_of
from proof.clients.life import LETTERS, TIMEOUT_S, Errand, Ledgered, rows_of, watched
from proof.part import Size

if TYPE_CHECKING:
    import random
    from collections.abc import Callable

VARIANTS: Final = ("sqlite", "other database")
ROUNDS: Final = {Size.SMALL: 2, Size.PROOF: 60, Size.LONG: 1_200}
"""Of each variant."""
REQUESTS: Final = 4
"""How long a life lasts that is to be killed, if it is not killed before."""
STEPS: Final = 90
KNOWN: Final = (
    f"select coalesce(max(rid::int), 0) from (select rid, registrant_id from {REPOSITORY}.element"
    f" union all select rid, registrant_id from {REPOSITORY}.history) known"
    f" join {REPOSITORY}.registrant r using (registrant_id) where r.name = %s"
)


class GoneBack(Ledgered):
    """A client whose repository may have gone back since its last life."""

    def sent(self, number: int) -> None:
        """Records that it was acknowledged."""
        append(self.errand.ground.place / f"{self.client}.sent", str(number))

    def _resume(self) -> int:
        meant = self.errand.ground.meant(self.client)
        path = self.errand.ground.place / f"{self.client}.sent"
        sent = [int(line) for line in path.read_text().split()] if path.exists() else []
        processed = rows_of(self.errand, "processed")
        certain = max([*sent, *processed], default=0)
        ((known,),) = self._eye.execute(KNOWN.encode(), (self.client,)).fetchall()
        found = self._clerk.recover()
        letter = LETTERS[type(found)]
        may_be_lost = meant > known  # it was sent and not acknowledged, or never sent
        is_right = letter == "E" if certain > known else letter != "E" or may_be_lost
        self.note(letter if is_right else "WRONG", (meant, certain, known, found))
        if not isinstance(found, onceq.WentBack):
            return self.go_on(found, meant)
        return self._decided(int(found.rid or 0), processed)

    def _decided(self, number: int, processed: list[int]) -> int:
        """Does what a person would decide who knows what was processed; returns the next number.

        What was processed is not done again, whatever the repository knows of it. The last request
        is sent again if it was not processed; if another one came back outstanding, after its
        reply.
        """
        if number in processed:
            self._clerk.discard()
            found = self._clerk.recover()
            if isinstance(found, onceq.Submitted | onceq.ReplyWaiting):
                self._take_back(processed)
            return max(processed) + 1
        try:
            self._clerk.resubmit()
        except IllegalState:
            self._take_back(processed)
            self._clerk.resubmit()
        self._process()
        return number + 1

    def _take_back(self, processed: list[int]) -> None:
        """Receives a reply that came back, and processes it if that was never done."""
        reply = self._clerk.receive(timeout_s=TIMEOUT_S)
        with self._clerk.transaction() as work:
            if int(reply.value) not in processed:
                self.put_down(work, "processed", int(reply.value))
            work.done(reply)


def live(errand: Errand) -> None:
    """Lives until death, or until the last request is processed."""
    with watched(errand) as qm:
        GoneBack(errand, qm).live()


@dataclass(slots=True)
class WentBack:
    """The rounds. serve: serves a ground, until it is killed."""

    ground: Ground
    chance: random.Random
    say: Callable[[str, int, int], None]
    serve: Callable[[Ground], None]
    kills: int = 0
    states: Counter[str] = field(default_factory=Counter[str])
    violations: list[str] = field(default_factory=list[str])

    def __post_init__(self) -> None:
        self.ground = replace(self.ground, url=self.ground.back)

    def run(self, size: Size) -> None:
        """Goes back in every round, and judges in the end."""
        for variant in VARIANTS:
            for number in range(ROUNDS[size]):
                self.say("going back", number, ROUNDS[size])
                self._life(variant, death=0, requests=1)
                self._database(f"create database copy template {BACK}")
                self.kills += self._life(
                    variant, death=self.chance.randint(1, STEPS), requests=REQUESTS
                )
                self._database(f"drop database {BACK} with (force)")
                self._database(f"alter database copy rename to {BACK}")
            self._life(variant, death=0, requests=1)
            self._judge(variant)

    def _life(self, variant: str, *, death: int, requests: int) -> bool:
        """Lets a client live beside a server; returns whether it was killed."""
        client = _client(variant)
        last = self.ground.meant(client) + requests
        errand = Errand(self.ground, variant, client, death, last)
        server = forked(self.ground, "server", lambda: self.serve(self.ground))
        try:
            _, status = os.waitpid(forked(self.ground, client, lambda: live(errand)), 0)
        finally:
            os.kill(server, signal.SIGKILL)
            os.waitpid(server, 0)
        code = os.waitstatus_to_exitcode(status)
        if code not in {0, -signal.SIGKILL}:
            self.violations.append(f"{client}: a client ended with {code}")
        return code == -signal.SIGKILL

    def _database(self, command: str) -> None:
        with psycopg.connect(self.ground.other, autocommit=True) as connection:
            connection.execute(
                b"select pg_terminate_backend(pid, 10000) from pg_stat_activity where datname = %s",
                (BACK,),
            )
            connection.execute(command.encode())

    def _judge(self, variant: str) -> None:
        """Each request was processed once, and no effect is there twice."""
        client = _client(variant)
        wanted = set(range(1, self.ground.meant(client) + 1))
        processed = Counter(rows_of(Errand(self.ground, variant, client, 0), "processed"))
        twice = [number for number, times in processed.items() if times > 1]
        twice += [n for n, times in Counter(effects_of(self.ground, client)).items() if times > 1]
        if twice or set(processed) != wanted:
            lost = sorted(wanted - set(processed))
            self.violations.append(f"{client}: twice {twice[:9]}, never processed {lost[:9]}")
        states = (self.ground.place / f"{client}.states").read_text().splitlines()
        self.violations += [line for line in states if line.startswith("WRONG")]
        self.states += Counter(states)

    def page(self) -> str:
        """Returns what the report says about it."""
        counts = ", ".join(f"{self.states[one]} {one}" for one in "ABCDE")
        return (
            f"\nThe repository went back {self.kills} times to a copy that was older, a client with"
            f" a ledger elsewhere having been killed meanwhile. It found {counts}.\n"
        )


def _client(variant: str) -> str:
    return f"{variant.replace(' ', '-')}-back"
