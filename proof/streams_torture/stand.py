"""Starts the processes of a run, starts again what ended, and ends them all."""

from __future__ import annotations

import multiprocessing
import os
import signal
import socket
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any, Final

from onceq.streams.history import kinds
from onceq.streams.history.files import tail
from proof.streams_faultpoints.points import Armed
from proof.streams_torture import processes
from proof.streams_torture.processes import LifeOrder, StoreOrder
from proof.streams_torture.proxying import Proxies

NAMES: Final = ("a", "b", "c")
SEGMENT_BYTES: Final = 4 << 20
RECEIVERS: Final = {"stable": 21, "live": 22}
TICK_S: Final = 0.02
END_S: Final = 120.0
"""After the last fault all must be stable and delivered within this."""
WARM: Final = ["proof.streams_torture.processes"]
_CONTEXT: Final = multiprocessing.get_context("forkserver")


def free_ports(count: int) -> list[int]:
    """Return ports of loopback that nobody uses now."""
    held = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [one.getsockname()[1] for one in held]
    for one in held:
        one.close()
    return ports


@dataclass(slots=True)
class Role:
    """One who lives again and again. make: returns what its next life is started with.

    down_until: it is not started before. paused_until: it stands still.
    """

    name: str
    make: Callable[[int], tuple[Callable[..., None], Any]]
    process: BaseProcess | None = None
    lives: int = 0
    down_until: float = 0.0
    paused_until: float = 0.0
    paths: list[Path] = field(default_factory=list[Path])

    def tick(self, now: float) -> None:
        """Start it, if it does not run; let it go on, if it has stood still for long enough."""
        if self.process is not None and not self.process.is_alive():
            self.process = None
        if self.process is None and now >= self.down_until:
            self.lives += 1
            target, order = self.make(self.lives)
            self.process = _CONTEXT.Process(target=target, args=(order,), daemon=True)
            self.process.start()
            self.paused_until = 0.0
        if self.paused_until and now >= self.paused_until:
            self.paused_until = 0.0
            self.signal(signal.SIGCONT)

    def signal(self, what: signal.Signals) -> None:
        """Send a signal to its process, if there is one."""
        if self.process is not None and self.process.pid is not None and self.process.is_alive():
            os.kill(self.process.pid, what)

    def kill(self, down_s: float) -> bool:
        """Kill its process; whether there was one."""
        if self.process is None or not self.process.is_alive():
            return False
        self.signal(signal.SIGKILL)
        self.process.join()
        self.down_until = time.monotonic() + down_s
        return True

    def end(self, within_s: float) -> None:
        """Tell its process to end; kill one that does not."""
        self.signal(signal.SIGCONT)
        self.signal(signal.SIGTERM)
        if self.process is not None:
            self.process.join(within_s)
            self.signal(signal.SIGKILL)
            self.process.join()


class Stand:
    """Stores, proxies, a source and receivers. home: a directory that is made for them.

    armed: by the names of roles, what each suffers, once.
    """

    def __init__(
        self,
        home: Path,
        *,
        kept_bytes: int,
        segment_bytes: int = SEGMENT_BYTES,
        is_mistaken: bool = False,
        armed: Mapping[str, Armed] | None = None,
    ) -> None:
        home.mkdir()
        self.home = home
        self.is_mistaken = is_mistaken
        self.kept_bytes = kept_bytes
        self.segment_bytes = segment_bytes
        self.armed = armed or {}
        ports = free_ports(2 * len(NAMES) + 1)
        self.ports, at, (self.listen,) = ports[:3], ports[3:6], ports[6:]
        self.proxies = Proxies(list(zip(self.ports, at, strict=True)))
        self.addresses = [f"127.0.0.1:{port}" for port in at]
        self.places = {name: home / f"store-{name}" for name in NAMES}
        _CONTEXT.set_forkserver_preload(WARM)
        self.stores = [self._store(number, name) for number, name in enumerate(NAMES)]
        self.source = self._life("source", processes.source)
        self.receivers = [
            self._life(name, processes.receiver, session) for name, session in RECEIVERS.items()
        ]

    @property
    def roles(self) -> list[Role]:
        """All of them."""
        return [*self.stores, self.source, *self.receivers]

    def _store(self, number: int, name: str) -> Role:
        def make(life: int) -> tuple[Callable[..., None], StoreOrder]:
            return processes.store, StoreOrder(
                place=self.places[name],
                notes=self._notes(role, life),
                life=life,
                listen=f"127.0.0.1:{self.ports[number]}",
                own=self.addresses[number],
                kept_bytes=self.kept_bytes,
                segment_bytes=self.segment_bytes,
                armed=self.armed.get(name),
            )

        role = Role(name, make)
        return role

    def _life(self, name: str, target: Callable[[LifeOrder], None], session: int = 0) -> Role:
        def make(life: int) -> tuple[Callable[..., None], LifeOrder]:
            return target, LifeOrder(
                home=self.home,
                notes=self._notes(role, life),
                stores=" ".join(self.addresses),
                life=life,
                name=name,
                listen=f"127.0.0.1:{self.listen}",
                session=session,
                is_stable_only=name != "live",
                is_mistaken=self.is_mistaken,
                armed=self.armed.get(name),
            )

        role = Role(name, make)
        return role

    def _notes(self, role: Role, life: int) -> Path:
        path = self.home / f"{role.name}-{life}.events"
        role.paths.append(path)
        return path

    # the run

    def tick(self) -> None:
        """Look after all processes once."""
        now = time.monotonic()
        for role in self.roles:
            role.tick(now)
        time.sleep(TICK_S)

    def sent(self) -> int:
        """Return below which number all is stable, as a source was told last."""
        lasts = [
            event.last
            for path in self.source.paths[-2:]
            for event in tail(path)
            if isinstance(event, kinds.StableTold)
        ]
        return max(lasts, default=-1) + 1

    def finish(self) -> bool:
        """Let the source end, and receivers get all; whether they did in time."""
        (self.home / processes.ENOUGH).touch()
        until = time.monotonic() + END_S
        while time.monotonic() < until:
            self.tick()
            end = self._ended()
            if end is not None and all(self._shown(one) >= end for one in self.receivers):
                return True
        return False

    def _ended(self) -> int | None:
        path = self.source.paths[-1].with_suffix(processes.FINISHED)
        text = path.read_text() if path.exists() else ""
        return int(text) if text else None

    def _shown(self, role: Role) -> int:
        """Return below which number it was shown what stays: of the life that sent last."""
        sent = [event for event in tail(self.source.paths[-1]) if isinstance(event, kinds.Sent)]
        sender = sent[-1].content if sent else ""
        found = [event for event in tail(role.paths[-1]) if isinstance(event, kinds.Delivered)]
        return found[-1].last + 1 if found and sender in ("", found[-1].content) else 0

    def close(self) -> None:
        """End all processes."""
        for role in (self.source, *self.receivers, *self.stores):
            role.end(10.0)
        self.proxies.close()
