"""A bridge in a process of its own, which a test kills."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Callable

from msgspec.structs import replace

from onceq.engine import faultpoints
from onceq.engine.embedded.locate import Located
from onceq.engine.perform.async_driver import AsyncPostgresDriver
from onceq.engine.perform.driver import PostgresDriver
from onceq.streams.bridge.effects import Application
from onceq.streams.bridge.into import AsyncInto
from onceq.streams.bridge.relay import AsyncRelay, From
from onceq.streams.bridge.target import Target
from onceq.streams.model.quorum import listed
from tests.streams.bridge.ledgers import WISHES, Booking
from tests.streams.source.running import SESSION, TOPIC, core


def into(conninfo: str, repository: str, stores: str) -> AsyncInto:
    """Return a bridge into the ledger."""
    target = Target(name="ledger", topic=TOPIC, source=SESSION, at=listed(stores), batch=3)
    application = Application(handler=Booking(f"{repository}.effects").book)
    return AsyncInto(target, application, (Located(conninfo, None), repository), wishes=WISHES)


def relay(conninfo: str, repository: str, stores: str) -> AsyncRelay:
    """Return a relay of the outbox."""
    sending = core(listed(stores))
    sending.life = replace(sending.life, life=secrets.randbits(62))
    of = From(name="out", queue="outbox", batch=3, idle_s=0.02)
    return AsyncRelay(of, sending, (Located(conninfo, None), repository))


MADE: dict[str, Callable[[str, str, str], AsyncInto | AsyncRelay]] = {"into": into, "relay": relay}


def run(what: str, where: tuple[str, str, str], fault: str) -> None:
    """Run a bridge until this process is killed, or kills itself where it is armed."""
    if fault:
        faultpoints.arm(fault)
        faultpoints.pointed(PostgresDriver)
        faultpoints.pointed(AsyncPostgresDriver)
    asyncio.run(MADE[what](*where).run())
