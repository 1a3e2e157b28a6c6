"""Damage as a part of the proof: bits flipped under a store that serves, and before it starts."""

from __future__ import annotations

import asyncio
import random
from dataclasses import dataclass, field
from typing import TYPE_CHECKING
from unittest import mock

from onceq.streams.model.frames import decode
from onceq.streams.receiver.ops import Message
from onceq.streams.store import healing
from onceq.streams.store.disk_store import DiskStore
from proof import goals
from proof.part import Limits, Measure, Outcome, Part, Size
from proof.streams_damage.cluster import catch_up, fill, serving, until
from proof.streams_damage.flipping import flip
from proof.streams_damage.logs import opened

if TYPE_CHECKING:
    from onceq.streams.receiver.ops import Shown
    from proof.part import Order
    from proof.streams_damage.cluster import Cluster

FLIPS = {Size.SMALL: 40, Size.PROOF: 1_000, Size.LONG: 20_000}
OPENINGS = {Size.SMALL: 60, Size.PROOF: 10_000, Size.LONG: 200_000}
MESSAGES = {Size.SMALL: 2_000, Size.PROOF: 20_000, Size.LONG: 100_000}
EACH = 5
"""Bits that are flipped before others have their turn."""
ROUND_S = 0.3
"""A store rests so long before it looks through its log again; 60 s where there is no hurry."""
HARMED = "a"
HEAD = """\
Three stores on disks serve; a source has filled them. In the log of one, bits are flipped below
what the log says was synced, while one receiver after the other catches up: each must be shown
every message as it was sent. At the end the store has healed all of its log from the others. And
logs in which one bit was flipped are opened: a store must know all that it had acknowledged, or
count as one that forgot; it never cuts what was acknowledged, and never gives other bytes.
"""


@dataclass(slots=True)
class Damage:
    """What was done, and found wrong."""

    flips: int = 0
    read: int = 0
    wrong: list[str] = field(default_factory=list[str])


async def harmed(order: Order) -> Damage:
    """Flip bits while receivers catch up."""
    made = Damage()
    chance = random.Random(order.seed)
    count = MESSAGES[order.size]
    messages = [b"%08d" % number + chance.randbytes(92) for number in range(count)]
    async with serving(order.place / "cluster", chance.randbytes) as cluster:
        stream = await fill(cluster.own, messages)
        session = 100
        while made.flips < FLIPS[order.size]:
            flipping = asyncio.ensure_future(_flip(cluster, chance, made, FLIPS[order.size]))
            session += 1
            _judge(await catch_up(cluster.own, session, count), messages, made)
            flipping.cancel()
            await asyncio.gather(flipping, return_exceptions=True)
            order.say("bits flipped", min(made.flips, FLIPS[order.size]), FLIPS[order.size])
        await _heal(cluster, stream, messages, made)
    return made


async def _flip(cluster: Cluster, chance: random.Random, made: Damage, most: int) -> None:
    store = cluster.stores[HARMED]
    while made.flips < most:
        for _ in range(EACH):
            made.flips += flip(cluster.places[HARMED], store.geometry, chance) is not None
        await asyncio.sleep(0.01)


def _judge(shown: list[Shown], messages: list[bytes], made: Damage) -> None:
    """Judge what a receiver was shown: all, as it was sent."""
    made.read += len(shown)
    got = [one.body if isinstance(one, Message) else one for one in shown]
    if got != messages:
        at = next((n for n, one in enumerate(got) if one != messages[n]), len(got))
        made.wrong.append(
            f"after {made.flips} flips, {at} of {len(messages)} is {got[at : at + 1]}"
        )


async def _heal(cluster: Cluster, stream: int, messages: list[bytes], made: Damage) -> None:
    """Wait until the store has looked through all of its log twice; it then has everything."""
    store, scrubbing = cluster.stores[HARMED], cluster.daemons[HARMED].serving.programs.scrubbing
    if scrubbing is None:
        raise TypeError("a store on a disk looks through its log")
    rounds = scrubbing.rounds + 2

    def is_healed() -> bool:
        is_whole = scrubbing.rounds >= rounds and not store.catalogue.of(stream).damaged
        return is_whole and _messages(store, stream) == messages

    try:
        await until(is_healed, "a log without damage")
    except TimeoutError as error:
        left = store.catalogue.of(stream).damaged
        made.wrong.append(f"{error}: {len(left)} numbers are damaged")


def _messages(store: DiskStore, stream: int) -> list[bytes]:
    end = store.catalogue.of(stream).end
    found = (decode(data) for data in store.read(stream, range(end)))
    return [bytes(body) for frame in found for body in frame.messages()]


def run(order: Order) -> Outcome:
    """Flip bits under a store that serves, then in logs that are opened."""
    with mock.patch.object(healing, "ROUND_S", ROUND_S):  # sooner than it ships
        made = asyncio.run(harmed(order))
    logs = opened(order, OPENINGS[order.size])
    return Outcome(
        measures=[
            Measure(what=goals.STREAM_FLIPS, reached=made.flips),
            Measure(what=goals.STREAM_OPENINGS, reached=logs.opened),
            Measure(what="messages shown while bits were flipped, each right", reached=made.read),
            Measure(what="logs with a flipped bit whose store forgot", reached=logs.forgot),
        ],
        violations=[*made.wrong, *logs.wrong],
        page=HEAD,
    )


PART = Part(
    name="streams-damage",
    text="Bits flipped in the log of a store while receivers catch up, and before it starts.",
    run=run,
    states=(goals.STREAM_FLIPS, goals.STREAM_OPENINGS),
    limits=Limits(small_s=180.0),
)
