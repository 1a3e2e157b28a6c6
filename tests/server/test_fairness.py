"""Claims are fair: over a server's queues, and between what is fresh and what came back (G12)."""

from __future__ import annotations

import dataclasses
import itertools
import math
import uuid
from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import onceq
from onceq.engine.perform import together
from onceq.engine.perform.driver import PostgresDriver, connect
from onceq.engine.perform.stop import Stop
from onceq.errors import HandlerFailed
from onceq.manager.program import declare
from onceq.model import ops
from onceq.server.program import Served, ServerSession, serve
from proof.oracle.memory import MemoryDriver, memory_repository
from tests.parts import LIMIT_S

if TYPE_CHECKING:
    from collections.abc import Callable

    from onceq.model.element import Element

GOOD, FIRST_FAILS, FAILS = "good", "its first always fails", "always fails"
SETTINGS: dict[str, Any] = {"backoff_ms": 0, "abort_limit": 1000}


@dataclasses.dataclass(frozen=True)
class Load:
    """What waits in a queue, and how it goes.

    Only the first claim can come to nothing as a batch: it takes as many as are fresh, up to
    `batch`, and whoever raises in it starts twice. After that, what raises has failed before and
    runs alone, or, if all raise, no claim is for more than one. And every second claim takes what
    is fresh first, the others what came back.
    """

    kind: str
    count: int
    batch: int

    @property
    def claims(self) -> int:
        """How many claims its fresh elements take at least."""
        return math.ceil(self.count / self.batch)

    @property
    def claims_most(self) -> int:
        """The same at most: the first takes a batch, then every second one takes one."""
        return self.claims if self.kind == GOOD else 1 + 2 * max(0, self.count - self.batch)

    @property
    def before_last(self) -> int:
        """How many starts come before the last fresh one at most: two for each of the others."""
        return self.count - 1 if self.kind == GOOD else 2 * (self.count - 1)

    @property
    def returns(self) -> int:
        """How often the first, if it fails, starts at least before all fresh ones have."""
        return 1 + (self.claims - 1) // 2

    def starts_most(self, claims: int) -> int:
        """Returns how many starts so many claims are at most."""
        if self.kind == GOOD:
            return min(self.batch * claims, self.count)
        if self.kind == FIRST_FAILS:
            return self.batch * claims + 1
        return 2 * self.batch - 1 + (claims - 1)

    def fails(self, body: bytes) -> bool:
        """Returns whether the element with this body fails whenever it runs."""
        return self.kind == FAILS or (self.kind == FIRST_FAILS and body == b"0")


class Mix:
    """Queues, and the starts in them, in order, until all that can be done is."""

    def __init__(self, loads: list[Load], stop: Callable[[], None]) -> None:
        self.loads = {f"q{n}": load for n, load in enumerate(loads)}
        self.starts: list[tuple[str, bytes]] = []
        rounds = max(load.claims_most for load in loads)  # then each fresh one has started
        self._left = sum(load.starts_most(rounds) for load in loads)
        self._stop = stop

    def calls(self) -> dict[str, Callable[[Element, Any], bytes]]:
        """Returns the handlers, as a driver calls them."""
        return {name: self._call(name, load) for name, load in self.loads.items()}

    def _call(self, name: str, load: Load) -> Callable[[Element, Any], bytes]:
        def call(element: Element, _: Any) -> bytes:
            self.starts.append((name, element.body))
            if len(self.starts) >= self._left:
                self._stop()
            if load.fails(element.body):
                raise HandlerFailed("ValueError", "as planned")
            return b""

        return call

    def fill(self, driver: Any) -> None:
        """Makes the queues, and enqueues all of it."""
        for name, load in self.loads.items():
            driver.run(declare(onceq.Queue(name, bytes, bytes, **SETTINGS)))
            bodies = [str(n).encode() for n in range(load.count)]
            driver.perform(ops.EnqueueMany(queue=name, bodies=bodies))

    def session(self) -> ServerSession:
        """Returns a session that serves all of them."""
        served = [Served(n, "read committed", load.batch) for n, load in self.loads.items()]
        return ServerSession(process=uuid.uuid4(), host="here", pid=1, served=tuple(served))

    def check(self) -> None:
        """Checks that each queue had its share, and in each what is fresh and what came back."""
        for name, load in self.loads.items():
            own = [body for queue, body in self.starts if queue == name]
            assert set(own) == {str(n).encode() for n in range(load.count)}
            self._check_lanes(load, own)
        for one, other in itertools.permutations(self.loads, 2):
            self._check_share(one, other)

    def _check_lanes(self, load: Load, own: list[bytes]) -> None:
        """Fresh ones wait for no more than as many that came back, and these likewise."""
        last = max(own.index(str(n).encode()) for n in range(load.count))
        assert last <= load.before_last
        if load.kind == FIRST_FAILS:
            assert own[: last + 1].count(b"0") >= load.returns

    def _check_share(self, one: str, other: str) -> None:
        """While one queue has work, another has as many turns, and no more."""
        load = self.loads[one]
        last = max(self.starts.index((one, str(n).encode())) for n in range(load.count))
        theirs = Counter(queue for queue, _ in self.starts[:last])[other]
        assert theirs <= self.loads[other].starts_most(load.claims_most)


LOADS = st.builds(
    Load,
    kind=st.sampled_from([GOOD, FIRST_FAILS, FAILS]),
    count=st.integers(1, 12),
    batch=st.integers(1, 3),
)
ENDLESS = st.builds(Load, kind=st.just(FAILS), count=st.integers(1, 12), batch=st.integers(1, 3))


def begin_later(driver: Any) -> None:
    """Makes whatever begins next another life than the first: its turns begin elsewhere."""
    opened = ops.OpenIncarnation(process=uuid.uuid4(), host="here", pid=1, former=None)
    driver.perform(ops.CloseIncarnation(incarnation=driver.perform(opened).incarnation))


@settings(max_examples=60, deadline=None)
@given(st.lists(LOADS, max_size=4), ENDLESS, st.integers(0, 4), st.integers(0, 3))
@example([], Load(FAILS, 3, 1), 0, 0)  # no other queue: a claim is chained to each finish
@example([], Load(FAILS, 3, 1), 0, 1)
def test_each_queue_and_lane_has_its_share(
    loads: list[Load], endless: Load, place: int, lives: int
) -> None:
    stop = Stop()
    loads.insert(place, endless)
    mix = Mix(loads, stop.set)
    driver = MemoryDriver(*memory_repository(), calls=mix.calls(), stop=stop.is_set)
    mix.fill(driver)
    for _ in range(lives):
        begin_later(driver)
    driver.run(serve(mix.session()))
    mix.check()


@pytest.mark.parametrize(
    "loads",
    [
        [Load(FAILS, 1, 1), Load(GOOD, 6, 1)],
        [Load(GOOD, 6, 1), Load(FAILS, 3, 1)],
        [Load(FAILS, 2, 2), Load(GOOD, 4, 1), Load(FIRST_FAILS, 5, 1), Load(GOOD, 4, 3)],
        [Load(FAILS, 3, 1)],
    ],
)
def test_a_failing_queue_starves_no_other(
    conninfo: str, repository: str, monkeypatch: pytest.MonkeyPatch, loads: list[Load]
) -> None:
    monkeypatch.setattr(together, "LASTS_S", LIMIT_S)  # a batch that is cut makes the next smaller
    stop = Stop()
    mix = Mix(loads, stop.set)
    with connect(conninfo) as connection:
        driver = PostgresDriver(connection, repository, calls=mix.calls(), stop=stop)
        mix.fill(driver)
        driver.run(serve(mix.session()))
    mix.check()
