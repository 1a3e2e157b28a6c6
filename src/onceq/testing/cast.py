"""The cast of a simulation: its actors, and how they come in.

Used by the simulator, which decides who acts when and what befalls them.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from uuid import UUID

from onceq.engine.gate import Gate
from onceq.manager.program import declare
from onceq.server.program import serve
from onceq.testing.memory import MemoryDriver, memory_repository
from onceq.testing.participants import (
    KINDS,
    QUEUE,
    Client,
    ClientLife,
    ServerProcess,
    World,
    handler,
    killer,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from onceq.model import ops
    from onceq.server.program import ServerSession


@dataclass(frozen=True, slots=True, kw_only=True)
class Variant:
    """What is simulated: the shipped semantics and Programs, or, in a test, broken ones."""

    answers: Mapping[type[Any], Callable[..., Any]] = field(
        default_factory=dict[type[Any], "Callable[..., Any]"]
    )
    serve: Callable[[ServerSession], ops.Program[None]] = serve


@dataclass(slots=True, eq=False)
class Actor:
    """A participant: its program, the Op that it is about to perform, and its connection.

    waits_at: the version of the repository at which it found nothing to do; None: it is ready.
    """

    name: str
    start: Callable[[], ops.Program[None]]
    driver: MemoryDriver
    process: ServerProcess | None = None
    session: ServerSession | None = None
    client: Client | None = None
    program: ops.Program[None] | None = None
    op: ops.Op[Any] | None = None
    waits_at: int | None = None


class Cast:
    """The participants of one schedule, and the repository that they share."""

    def __init__(self, seed: int, variant: Variant) -> None:
        self._variant = variant
        self._chance = random.Random(seed)  # noqa: S311 # a seed makes it repeatable
        self.oracle, clock = memory_repository(seed, variant.answers)
        self.world = World(self._chance, clock)
        self._actors: list[Actor] = []
        self._processes = 0
        self._batch = self._chance.choice((1, 1, 3, 4, 5))
        self._is_lazy = self.world.likely(0.5)
        self._handle = handler(self.world)

    def _set_up(self) -> None:
        self._driver(None).run(declare(QUEUE))
        clients = [
            Client(name, [(f"{name}{n}", self._chance.choice(KINDS)) for n in range(requests)])
            for name, requests in zip("abcdef", (self._chance.randint(1, 3), *[1] * 5), strict=True)
        ]
        for client in clients[: self._chance.choice((1, 2, 2, 4, 6))]:
            self._add_client(client)
        for _ in range(self._chance.choice((1, 1, 2))):
            self._add_process(self._chance.choice((1, 2)))
        if self.world.likely(0.3):
            life = lambda: killer(self.world, 2)  # noqa: E731 # a start
            self._actors.append(Actor("killer", life, self._driver(None)))

    def _driver(self, process: ServerProcess | None) -> MemoryDriver:
        return MemoryDriver(
            self.oracle,
            self.world.clock,
            calls={QUEUE.name: self._handle},
            stop=lambda: process is not None and process.stopping,
            gate=None if process is None else process.gate,
            lazy=process is not None and process.lazy,
        )

    def _add_client(self, client: Client) -> None:
        life = lambda: ClientLife(self.world, client).run()  # noqa: E731 # a start
        self._actors.append(Actor(client.name, life, self._driver(None), client=client))

    def _add_process(self, sessions: int) -> None:
        self._processes += 1
        number = UUID(int=self._chance.getrandbits(128))
        process = ServerProcess(self._processes, number, Gate(), self._batch, self._is_lazy)
        for index in range(sessions):
            session = process.session()
            life = lambda session=session: self._variant.serve(session)  # noqa: E731 # a start
            name = f"server {process.number}.{index + 1}"
            self._actors.append(Actor(name, life, self._driver(process), process, session))
