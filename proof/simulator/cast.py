"""The cast of a simulation: its actors, and how they come in.

Used by the simulator, which decides who acts when and what befalls them.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from uuid import UUID

from onceq.engine.perform.gate import Gate
from onceq.manager.program import declare
from onceq.server.program import serve
from proof.oracle.memory import MemoryDriver, memory_repository
from proof.simulator.bulk import BulkLine, Shop, trade
from proof.simulator.callers import Operator, Producer, Tagger, Taker, operate, produce, tag, take
from proof.simulator.desk import SimulatedDesk
from proof.simulator.disk import SimulatedDisk
from proof.simulator.functions import Line, as_program
from proof.simulator.participants import (
    FLASH,
    KINDS,
    NOTES,
    QUEUE,
    QUEUES,
    Client,
    ClientLife,
    ServerProcess,
    World,
    handler,
    killer,
)
from proof.simulator.windowed import WindowedLife

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from onceq.model import ops
    from onceq.server.program import ServerSession

ACTS = ("stop", "redrive", "redrive", "scratch", "kill", "look", "watch")
NEVER = 1 << 62
"""A version that no repository comes to: whoever waits for it waits to be rung."""
EXTRAS = ("windowed", "shop", "producer", "tagger", "taker", "operator", "desk")
"""Who may take part besides clients, servers and a killer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Variant:
    """What is simulated: the shipped semantics and Programs, or, in a test, broken ones.

    extras: who takes part besides the clients; None: as the schedule's chance says.
    """

    answers: Mapping[type[Any], Callable[..., Any]] = field(
        default_factory=dict[type[Any], "Callable[..., Any]"]
    )
    serve: Callable[[ServerSession], ops.Program[None]] = serve
    disk: type[SimulatedDisk] = SimulatedDisk
    extras: tuple[str, ...] | None = None


@dataclass(slots=True, eq=False)
class Actor:
    """A participant: its program, the Op that it is about to perform, and its connection.

    again: adds its next life, when its process died; None: it is a server's. awaited: the schedule
    is not over before it is. fences: its next life may begin while it lives. caller: the
    connection of a caller's own. machine: its disk. desk: of whose process it is.
    rung_at: the version of the repository that wakes it, which waits; 0: it is ready.
    wakes_at: when it looks again by itself, in seconds; None: a change alone wakes it.
    blocked_s: since when it waits for another's transaction.
    """

    name: str
    start: Callable[[], ops.Program[None]]
    driver: MemoryDriver
    again: Callable[[], None] | None = None
    awaited: bool = False
    fences: bool = False
    process: ServerProcess | None = None
    session: ServerSession | None = None
    caller: MemoryDriver | None = None
    machine: SimulatedDisk | None = None
    desk: SimulatedDesk | None = None
    program: ops.Program[None] | None = None
    op: ops.Op[Any] | None = None
    rung_at: int = 0
    wakes_at: float | None = None
    blocked_s: float | None = None

    def rise(self) -> None:
        """Makes it ready."""
        self.rung_at = 0


class Cast:
    """The participants of one schedule, and the repository that they share."""

    def __init__(self, seed: int, variant: Variant) -> None:
        self._variant = variant
        self._chance = random.Random(seed)  # a seed makes it repeatable
        self.oracle, clock = memory_repository(seed, variant.answers)
        self.world = World(self._chance, clock)
        self._actors: list[Actor] = []
        self._processes = 0
        self._gone: set[str] = set()
        self._batch = self._chance.choice((1, 1, 3, 4, 5))
        self._handle = handler(self.world)
        self._queues: tuple[str, ...] = (QUEUE.name,)

    def _set_up(self) -> None:
        setting_up = self._driver(None)
        for queue in QUEUES:
            setting_up.run(declare(queue))
        extras = self._chosen_extras()
        if {"producer", "tagger", "taker", "operator"} & set(extras):
            self._queues = tuple(queue.name for queue in QUEUES)
        clients = [
            Client(name, [(f"{name}{n}", self._chance.choice(KINDS)) for n in range(requests)])
            for name, requests in zip("abcdef", (self._chance.randint(1, 3), *[1] * 5), strict=True)
        ]
        most = (0, 1, 2) if len(extras) > 1 else (1, 2, 2, 4, 6)
        for client in clients[: self._chance.choice(most)]:
            self._add_client(client)
        for extra in extras:
            getattr(self, f"_add_{extra}")()
        for _ in range(self._chance.choice((1, 1, 2))):
            self._add_process(self._chance.choice((1, 2)))
        if self.world.likely(0.3):
            life = lambda: killer(self.world, 2)  # noqa: E731 # a start
            self._actors.append(Actor("killer", life, self._driver(None)))

    def _chosen_extras(self) -> tuple[str, ...]:
        if self._variant.extras is not None:
            return self._variant.extras
        if self.world.likely(0.4):
            return ()
        return tuple(extra for extra in EXTRAS if self.world.likely(0.35))

    def _driver(self, process: ServerProcess | None) -> MemoryDriver:
        driver = MemoryDriver(
            self.oracle,
            self.world.clock,
            calls={queue.name: self._handle for queue in QUEUES},
            stop=lambda: process is not None and process.stopping,
            gate=None if process is None else process.gate,
        )
        driver.gone = self._gone
        return driver

    def _add(self, name: str, start: Callable[[], ops.Program[None]], *, fences: bool) -> Actor:
        """Adds an actor that is awaited, and lives again when it has died."""
        actor = Actor(name, start, self._driver(None), awaited=True, fences=fences)
        actor.again = lambda: self._again(actor)
        self._actors.append(actor)
        return actor

    def _again(self, former: Actor) -> None:
        following = self._add(former.name, former.start, fences=former.fences)
        following.machine, following.desk = former.machine, former.desk

    def _add_client(self, client: Client) -> None:
        self._add(client.name, lambda: ClientLife(self.world, client).run(), fences=True)

    def _add_desk(self) -> None:
        kinds = [self._chance.choice(KINDS) for _ in range(self._chance.randint(1, 3))]
        self._open_desk(
            [
                Client(name, [(f"{name}{n}", kind) for n, kind in enumerate(kinds)])
                for name in "ghijkl"[: self._chance.randint(2, 4)]
            ]
        )

    def _open_desk(self, clients: list[Client]) -> None:
        """Begins a process with a desk, and these clients at it."""
        desk = SimulatedDesk(self.world)

        def again() -> None:
            self._open_desk([one for one in clients if one.name not in self.world.satisfied])

        self._actors.append(Actor("desk", desk.run, self._driver(None), again=again, desk=desk))
        for client in clients:
            life = lambda client=client: desk.seated(ClientLife(self.world, client).run())  # noqa: E731 # a start
            self._add(client.name, life, fences=True).desk = desk

    def _add_windowed(self) -> None:
        plan = [(f"w{n}", self._chance.choice(KINDS[:-1])) for n in range(5)]
        client = Client("w", plan)
        self._add("w", lambda: WindowedLife(self.world, client).run(), fences=True)

    def _add_shop(self) -> None:
        kinds = [self._chance.choice(KINDS[:-1]) for _ in range(self._chance.randint(1, 5))]
        shop = Shop("shop", kinds, self._variant.disk(self._chance))

        def life() -> ops.Program[None]:
            line = BulkLine(self.world, shop)
            return as_program(line, lambda: trade(self.world, shop, line))

        self._add("shop", life, fences=True).machine = shop.disk

    def _add_caller(self, name: str, plan: Any, body: Callable[[World, Any, Line], None]) -> None:
        def life() -> ops.Program[None]:
            line = Line()
            return as_program(line, lambda: body(self.world, plan, line))

        self._add(name, life, fences=body is tag)

    def _add_producer(self) -> None:
        queues = (NOTES, NOTES, QUEUE, FLASH)
        count = self._chance.randint(1, 5)
        left = [(self._chance.choice(queues), self._chance.choice(KINDS)) for _ in range(count)]
        self._add_caller("producer", Producer(left), produce)

    def _add_tagger(self) -> None:
        self._add_caller("tagger", Tagger("tagger", self._chance.randint(1, 4)), tag)

    def _add_taker(self) -> None:
        self._add_caller("taker", Taker(self._chance.randint(2, 5)), take)

    def _add_operator(self) -> None:
        acts = [self._chance.choice(ACTS) for _ in range(self._chance.randint(1, 5))]
        self._add_caller("operator", Operator(acts), operate)

    def _add_process(self, sessions: int) -> None:
        self._processes += 1
        number = UUID(int=self._chance.getrandbits(128))
        process = ServerProcess(
            self._processes,
            number,
            Gate(lambda: self.world.clock.seconds),
            self._batch,
            self._queues,
            is_local=self.world.likely(0.7),
        )
        for index in range(sessions):
            session = process.session()
            life = lambda session=session: self._variant.serve(session)  # noqa: E731 # a start
            name = f"server {process.number}.{index + 1}"
            driver = self._driver(process)
            self._actors.append(Actor(name, life, driver, process=process, session=session))
