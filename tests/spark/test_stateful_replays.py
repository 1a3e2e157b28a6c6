"""A query with a state under deaths at random: Spark's order of calls, played without Spark.

The checkpoint (offsets, commits, states) is what Spark writes, and when; the database is real.
"""

from __future__ import annotations

import copy
import random
from dataclasses import dataclass, field
from typing import TYPE_CHECKING
from uuid import UUID

import msgspec
import pytest

from onceq.engine.perform.spark_driver import NAMED, REPLIES
from onceq.model import ops
from onceq.model.element import KillAnswer
from onceq.model.spark_ops import SparkAttempt, SparkClose, SparkPurge
from tests.spark.spark_life import Life
from tests.spark.spark_parts import Repository, make_repository

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from onceq.model.spark_ops import SparkRequest

State = dict[str, tuple[UUID, int]]
"""By customer: the order that waits for a second one, as in `keeping.pair`."""
REQUESTS = 18
STEPS = ("claimed", "logged", "read", "staged", "committed", "noted", "purged")


class DeathError(Exception):
    """The driver dies here."""


@dataclass
class Checkpoint:
    """What Spark has on its disk. offsets: by batch, the claim group that it ends with."""

    offsets: list[int] = field(default_factory=list[int])
    commits: int = 0
    states: dict[int, State] = field(default_factory=lambda: dict[int, State]({0: {}}))


class Query:
    """A run of the query, until it dies or nothing is left."""

    def __init__(self, repository: Repository, disk: Checkpoint, chance: random.Random) -> None:
        """Begin; who is to blame for the death before is not always known."""
        innocent = chance.random() < 0.5
        self.life = Life(repository, stateful=True, hold_s=3600, innocent=innocent)
        self.disk = disk
        self.chance = chance

    def at(self, step: str) -> None:
        assert step in STEPS
        if self.chance.random() < 0.06:
            raise DeathError(step)

    def run(self) -> None:
        while self.batch():
            pass

    def batch(self) -> bool:
        disk, life = self.disk, self.life
        number = disk.commits
        if len(disk.offsets) == number:
            start = disk.offsets[-1] if disk.offsets else 0
            group = life.claim(start, n=self.chance.randint(1, 5))
            self.at("claimed")
            if group == start:
                return False
            disk.offsets.append(group)
            self.at("logged")
            if number > 0:
                self.purge(disk.offsets[number - 1])
        group = disk.offsets[number]
        requests = life.plan(group)
        self.at("read")
        state = copy.deepcopy(disk.states[number])
        staged = self.stage(number, paired(state, requests))
        disk.states[number + 1] = state
        self.at("staged")
        life.commit(staged, number)
        self.at("committed")
        disk.commits += 1
        self.at("noted")
        return True

    def purge(self, group: int) -> None:
        who = self.life.who
        purge = SparkPurge(server_id=who.server_id, epoch=who.epoch, group=group)
        self.life.driver.perform(purge)
        self.at("purged")

    def stage(self, number: int, replies: Sequence[tuple[UUID, int]]) -> tuple[list[int], int]:
        who = {"server_id": self.life.who.server_id, "epoch": self.life.who.epoch}
        op = SparkAttempt(**who, query_id="q", batch_id=number)
        with self.life.driver.staging(op) as stage:
            lines = "".join(f"{stage.attempt},{eid},{total}\n" for eid, total in replies)
            stage.copy(REPLIES, ["attempt", "eid", "reply"], lines.encode())
            names = "".join(f"{stage.attempt},{eid}\n" for eid, _ in replies)
            stage.copy(NAMED, ["attempt", "eid"], names.encode())
        self.life.tables = []
        return [stage.attempt], stage.rows


def paired(state: State, requests: Sequence[SparkRequest]) -> list[tuple[UUID, int]]:
    """Answer each customer's orders in pairs, with their sum; the state is what waits."""
    replies: list[tuple[UUID, int]] = []
    for request in requests:
        order = msgspec.json.decode(request.body)
        first = state.pop(order["customer"], None)
        if first is None:
            state[order["customer"]] = (request.eid, order["cents"])
        else:
            total = first[1] + order["cents"]
            replies += [(first[0], total), (request.eid, total)]
    return replies


@pytest.fixture
def repository(conninfo: str, repository_name: str) -> Iterator[Repository]:
    made = make_repository(conninfo, repository_name, abort_limit=1000)
    yield made
    made.close()


def kill_some(repository: Repository, eids: dict[str, UUID], chance: random.Random) -> None:
    """Kill a few requests; what a kill answers is the truth."""
    for rid, eid in eids.items():
        if chance.random() < 0.02:
            answer = repository.driver.perform(ops.Kill(eid=eid))
            waits = "select 1 from {}.element where eid = %s and role = 'request'"
            assert bool(repository.ask(waits, eid)) <= (answer is KillAnswer.TOO_LATE), rid


@pytest.mark.parametrize("seed", range(15))
def test_the_state_is_that_of_what_was_read_once(repository: Repository, seed: int) -> None:
    chance = random.Random(seed)
    disk = Checkpoint()
    repository.send(REQUESTS)
    eids = repository.eids()
    died: list[str] = []
    for _ in range(60):
        query = Query(repository, disk, chance)
        try:
            query.run()
            break
        except DeathError as death:
            died.append(str(death))
            kill_some(repository, eids, chance)
            if chance.random() < 0.3:
                who = query.life.who
                close = SparkClose(server_id=who.server_id, epoch=who.epoch)
                query.life.driver.perform(close)
        finally:
            query.life.end()
    check(repository, disk.states[disk.commits], died)


def check(repository: Repository, state: State, died: list[str]) -> None:
    """Each request is answered in a pair with its sum, once, or waits in the state, or is killed.

    died: where, for the message.
    """
    replies = repository.replies()
    pairs: dict[tuple[int, int], list[int]] = {}
    for rid, (outcome, body) in replies.items():
        number = int(rid[1:])
        if outcome == "done":
            pairs.setdefault((number % 3, int(body)), []).append(number)
    for (_, total), numbers in pairs.items():
        assert len(numbers) % 2 == 0, died
        assert sum(numbers) == total * len(numbers) // 2, died
    waiting = repository.ask("select eid from {}.element where role = 'request'")
    assert sorted(row[0] for row in waiting) == sorted(eid for eid, _ in state.values()), died
