"""Claims are fair: over a server's queues, and between what is fresh and what came back (G12)."""

from __future__ import annotations

import dataclasses
import itertools
import math
import uuid
from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import onceq
from onceq.engine.perform.driver import PostgresDriver, connect
from onceq.engine.perform.stop import Stop
from onceq.errors import HandlerFailed
from onceq.manager.program import declare
from onceq.model import ops
from onceq.server.program import Served, ServerSession, serve
from proof.oracle.memory import MemoryDriver, memory_repository

if TYPE_CHECKING:
    from collections.abc import Callable

    from onceq.model.element import Element

GOOD, FIRST_FAILS, FAILS = "good", "its first always fails", "always fails"
SETTINGS: dict[str, Any] = {"backoff_ms": 0, "abort_limit": 1000}


@dataclasses.dataclass(frozen=True)
class Load:
    """What waits in a queue, and how it goes."""

    kind: str
    count: int
    batch: int

    @property
    def claims(self) -> int:
        """How many claims its fresh elements take at least."""
        return math.ceil(self.count / self.batch)

    @property
    def claims_most(self) -> int:
        """The same at most: what fails in a batch halves the next claims."""
        return self.claims if self.kind == GOOD else self.count

    @property
    def starts_each(self) -> int:
        """How often an element starts for one claim at most: what fails in a batch runs again."""
        return 1 if self.batch == 1 or self.kind == GOOD else 2

    def fails(self, body: bytes) -> bool:
        """Returns whether the element with this body fails whenever it runs."""
        return self.kind == FAILS or (self.kind == FIRST_FAILS and body == b"0")


class Mix:
    """Queues, and the starts in them, in order, until all that can be done is."""

    def __init__(self, loads: list[Load], stop: Callable[[], None]) -> None:
        self.loads = {f"q{n}": load for n, load in enumerate(loads)}
        self.starts: list[tuple[str, bytes]] = []
        self._left = sum(load.claims_most for load in loads) * 16 * max(one.batch for one in loads)
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
        assert last < load.batch * (2 * load.claims_most + 2) * load.starts_each
        if load.kind == FIRST_FAILS:
            assert own[: last + 1].count(b"0") >= min(load.claims, last) // 2

    def _check_share(self, one: str, other: str) -> None:
        """While one queue has work, another has as many turns, and no more."""
        load = self.loads[one]
        last = max(self.starts.index((one, str(n).encode())) for n in range(load.count))
        turns = 2 * load.claims_most + 2 if load.kind != GOOD else load.claims + 1
        theirs = Counter(queue for queue, _ in self.starts[:last])[other]
        assert theirs <= self.loads[other].batch * turns * self.loads[other].starts_each


LOADS = st.builds(
    Load,
    kind=st.sampled_from([GOOD, FIRST_FAILS, FAILS]),
    count=st.integers(1, 12),
    batch=st.integers(1, 3),
)


@settings(max_examples=60, deadline=None)
@given(st.lists(LOADS, max_size=4), st.integers(0, 4))
def test_each_queue_and_lane_has_its_share(loads: list[Load], place: int) -> None:
    stop = Stop()
    loads.insert(place, Load(FAILS, 1, 1))  # it is what never ends
    mix = Mix(loads, stop.set)
    driver = MemoryDriver(*memory_repository(), calls=mix.calls(), stop=stop.is_set)
    mix.fill(driver)
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
    conninfo: str, repository: str, loads: list[Load]
) -> None:
    stop = Stop()
    mix = Mix(loads, stop.set)
    with connect(conninfo) as connection:
        driver = PostgresDriver(connection, repository, calls=mix.calls(), stop=stop)
        mix.fill(driver)
        driver.run(serve(mix.session()))
    mix.check()
