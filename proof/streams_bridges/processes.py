"""A bridge in a process of its own, which is struck where it is armed.

It is made by what programs use, `streams.into` and `streams.relay`. Each is told everything by its
arguments, and ends when it is killed, or where it is told to.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import weakref
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import onceq
from onceq import streams
from onceq.engine import faultpoints
from onceq.engine.perform.async_driver import AsyncPostgresDriver
from onceq.engine.perform.driver import PostgresDriver
from onceq.errors import Fenced
from onceq.streams.bridge.relay import AsyncRelay
from onceq.streams.bridging import Kind
from onceq.streams.errors import SourceSucceeded
from onceq.streams.net.link import Link
from proof.harness.processes import say_into
from proof.streams_bridges.points import What

BATCH: Final = 3
PLANNED, FENCED = 77, 78
"""Exit codes: it raised as planned; a later life has taken over."""
STRUCK: Final = "links-struck"


@dataclass(frozen=True, slots=True, kw_only=True)
class Errand:
    """A life of a bridge. name: of it, its topic, its queue and its table. session: of the source.

    armed: as for `faultpoints.arm`; empty: nothing strikes. links: which of the messages that are
    sent is the one at which all links are cut; 0: none. what: before it, or after. place: where is
    counted what was reached, and what it says.
    """

    kind: Kind
    name: str
    url: str
    repository: str
    stores: str
    session: int
    place: Path
    armed: str = ""
    links: int = 0
    what: What = What.KILL


def table_of(repository: str, name: str) -> str:
    """Return the table of effects of a bridge."""
    return f"{repository}.{name}_effects"


def _into(errand: Errand) -> streams.Bridge:
    insert = (
        f"insert into {table_of(errand.repository, errand.name)} (number, body) values (%s, %s)"
    )

    def book(messages: list[streams.Message[bytes]], context: streams.IntoContext[Any]) -> None:
        for one in messages:
            context.connection.execute(insert.encode(), (one.number, one.value))

    return streams.into(
        streams.Topic(errand.name),
        book,
        name=errand.name,
        at=errand.stores,
        source_session_id=errand.session,
        batch=BATCH,
    )


def _relay(errand: Errand) -> streams.Bridge:
    return streams.relay(
        onceq.Queue(errand.name, bytes, bytes),
        streams.Topic(errand.name),
        name=errand.name,
        stores=errand.stores,
        session_id=errand.session,
        batch=BATCH,
        idle_s=0.02,
    )


MADE: Final = {Kind.INTO: _into, Kind.RELAY: _relay}


def enter(errand: Errand) -> None:
    """Be a life of a bridge until this process ends."""
    say_into(errand.place / "said")
    if errand.armed:
        faultpoints.arm(errand.armed)
        faultpoints.pointed(PostgresDriver)
        faultpoints.pointed(AsyncPostgresDriver)
    if errand.links:
        _cut_links(errand)
    try:
        MADE[errand.kind](errand).run(url=errand.url, repository=errand.repository)
    except faultpoints.PlannedFault:
        os._exit(PLANNED)
    except (Fenced, SourceSucceeded):
        os._exit(FENCED)


def _cut_links(errand: Errand) -> None:
    """Have all links cut, once, at a message that a relay sends: before it has left, or after."""
    links = weakref.WeakSet[Link]()
    made, send = Link.connection_made, AsyncRelay.__dict__["_send"]
    sent = 0

    def noted(link: Link, transport: asyncio.BaseTransport) -> None:
        links.add(link)
        made(link, transport)

    def cut() -> None:
        for one in list(links):
            one.abort()

    async def sending(relay: AsyncRelay, one: Any) -> None:
        nonlocal sent
        sent += 1
        is_due = sent == errand.links and _is_first(errand.place)
        if is_due and errand.what is What.CUT_BEFORE:
            cut()
        await _awaited(send(relay, one))
        if is_due and errand.what is What.CUT_AFTER:
            await asyncio.sleep(0)  # what was sent leaves when the loop is idle
            cut()

    steps: tuple[tuple[type[Any], str, Callable[..., Any]], ...] = (
        (Link, "connection_made", noted),
        (AsyncRelay, "_send", sending),
    )
    for of, name, by in steps:
        setattr(of, name, by)


async def _awaited(made: Awaitable[None]) -> None:
    await made


def _is_first(place: Path) -> bool:
    """Note that links are cut; return whether no former life has done so."""
    with contextlib.suppress(FileExistsError):
        (place / STRUCK).touch(exist_ok=False)
        return True
    return False
