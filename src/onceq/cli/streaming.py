"""What `onceq stream` asks stores: which streams there are, and who receives them."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from onceq.cli import listing
from onceq.cli.exits import NOT_FOUND, OK, VIOLATION
from onceq.cli.listing import Found, Told
from onceq.cli.output import Output, hint
from onceq.cli.units import receiver_of, session_of, session_text
from onceq.errors import InvalidValue
from onceq.streams.model import asks, listings
from onceq.streams.net.asking import (
    Deregistered,
    deregistered,
    listed_all,
    stream_deregistered,
)

if TYPE_CHECKING:
    from onceq.cli.streams import Asked, Named

LIST_COLUMNS: Final = (
    "topic",
    "session",
    "stream",
    "epoch",
    "end",
    "stable",
    "receivers",
    "stores",
)
RECEIVER_COLUMNS: Final = ("receiver", "below", "lag", "stores")
STORE_COLUMNS: Final = (
    *("store", "epoch", "admitted", "begin", "end", "stable", "damaged", "receivers"),
)
DEREGISTERED_COLUMNS: Final = ("store", "text")


async def _answers(asked: Asked) -> tuple[Found, Told]:
    async with listing.asking(asked) as (asker, own):
        found = await listing.found_by(asker, own, asked.timeout)
        return found, await listing.told_by(asker, found, asked.timeout)


def _of_stream(found: Found, topic: str, session: int) -> dict[str, listings.Listed]:
    """Returns what stores have of the stream of a topic and a session."""
    return {
        store: one
        for store, known in found.items()
        for one in known
        if (one.topic, one.session) == (topic, session)
    }


def list_streams(output: Output, asked: Asked) -> int:
    """Lists streams, each once, as the store says that has most of it."""
    found, told = asyncio.run(_answers(asked))
    by_stream: dict[int, dict[str, listings.Listed]] = {}
    for store, known in found.items():
        for one in known:
            by_stream.setdefault(one.stream, {})[store] = one
    rows = [_row(of_stores, told) for of_stores in by_stream.values()]
    output.rows(LIST_COLUMNS, rows)
    for row in rows:
        listing.tell_kept(output, f"{row['topic']} of session {row['session']}", row)
    if not by_stream:
        hint("onceq: the stores know no stream")
    return OK


def _kept(of_stores: Mapping[str, listings.Listed], told: Told) -> dict[str, Any]:
    """Returns what is told of a stream by the stores that have it, as a part of a row."""
    its = (told.get((store, one.stream)) for store, one in of_stores.items())
    return listing.kept(listing.newest(its))


def _row(of_stores: Mapping[str, listings.Listed], told: Told) -> dict[str, Any]:
    best = max(of_stores.values(), key=lambda one: (one.admitted, one.end))
    return {
        "topic": best.topic,
        "session": session_text(best.session),
        "stream": f"{best.stream:016x}",
        "epoch": best.admitted,
        "end": best.end,
        "stable": max(one.stable for one in of_stores.values()),
        "receivers": len({one.key for known in of_stores.values() for one in known.receivers}),
        "stores": len(of_stores),
        "address": best.address,
        "lists": [own.text() for own in best.lists],
        **_kept(of_stores, told),
    }


async def _stream(topic: str, named: Named) -> tuple[dict[str, listings.Listed], Told]:
    """Returns what stores have of a stream, and tell of it; of others they are asked nothing."""
    session = session_of(named.source, "--source")
    async with listing.asking(named) as (asker, own):
        known = await listing.found_by(asker, own, named.timeout)
        found = _of_stream(known, topic, session)
        its = {store: (one,) for store, one in found.items()}
        return found, await listing.told_by(asker, its, named.timeout)


def _session(named: Named) -> str:
    """Returns the session of the source that is named, as it is shown."""
    return session_text(session_of(named.source, "--source"))


def _unknown(topic: str, named: Named) -> int:
    hint(f"onceq: no store knows a stream of topic {topic!r} and session {_session(named)}")
    return NOT_FOUND


def show(output: Output, topic: str, named: Named) -> int:
    """Shows how far the receivers of a stream are; programs are told of the stream itself first.

    Programs also get the id of each at each store, as `stream_full` has it in `blocking`.
    """
    found, told = asyncio.run(_stream(topic, named))
    if not found:
        return _unknown(topic, named)
    stable = max(one.stable for one in found.values())
    below: dict[str, list[int]] = {}
    regids: dict[str, dict[str, int]] = {}
    for store, known in sorted(found.items()):
        for one in known.receivers:
            below.setdefault(one.key, []).append(one.below)
            if one.regid:
                regids.setdefault(one.key, {})[store] = one.regid
    rows = [
        {
            "receiver": key,
            "below": max(ones),
            "lag": max(0, stable - max(ones)),
            "stores": len(ones),
            "regids": regids.get(key, {}),
        }
        for key, ones in sorted(below.items())
    ]
    stream = {
        "topic": topic,
        "session": _session(named),
        **_kept(found, told),
    }
    if output.as_json:
        output.line(stream)
    output.rows(RECEIVER_COLUMNS, rows)
    listing.tell_kept(output, f"{topic} of session {stream['session']}", stream)
    if not rows:
        hint(f"onceq: the stream of topic {topic!r} has no receiver")
    return OK


def show_stores(output: Output, topic: str, named: Named) -> int:
    """Shows what each store has of a stream."""
    found, told = asyncio.run(_stream(topic, named))
    if not found:
        return _unknown(topic, named)
    rows = [
        {
            "store": store,
            "epoch": one.epoch,
            "admitted": one.admitted,
            "begin": one.begin,
            "end": one.end,
            "stable": one.stable,
            "damaged": one.damaged,
            "receivers": len(one.receivers),
            "lists": [own.text() for own in one.lists],
            **listing.kept(told.get((store, one.stream))),
        }
        for store, one in sorted(found.items())
    ]
    output.rows(STORE_COLUMNS, rows)
    for row in rows:
        listing.tell_kept(output, str(row["store"]), row)
    return OK


def _name_of(receiver: str, at: Mapping[str, listings.Listed]) -> str:
    """Returns the name of a receiver at all stores.

    at: what the stores say that were named. Where nobody is called so, a RegID, as `regid 4`, means
    the receiver that has it there: stores and sources name the one that blocks by it.
    """
    there = [one for known in at.values() for one in known.receivers]
    having = {one.key for one in there if f"regid {one.regid}" == receiver}
    if len(having) != 1 or any(one.key == receiver for one in there):
        return receiver
    return having.pop()


def deregister(output: Output, topic: str, named: Named, receiver: str) -> int:
    """Has all stores of a stream forget a receiver."""
    session, receiver = session_of(named.source, "--source"), receiver_of(receiver)

    async def run() -> Mapping[str, Deregistered]:
        async with listing.asking(named) as (asker, own):
            answers = await listing.found_by(asker, own, named.timeout)
            found = _of_stream(answers, topic, session)
            lists = [one_list for one in found.values() for one_list in one.lists]
            all_stores = {store for each in lists for store in each.stores} | found.keys()
            known = await listed_all(asker, all_stores, named.timeout)
            of_stream = _of_stream(known, topic, session)
            silent = dict.fromkeys(all_stores - known.keys(), Deregistered.SILENT)
            key = _name_of(receiver, _of_stream(answers, topic, session))
            done = await deregistered(asker, of_stream, key, named.timeout)
            return {**silent, **done}

    done = asyncio.run(run())
    return _told(
        output, done, f"no store that answers knows {receiver!r} as a receiver of {topic!r}"
    )


def deregister_stream(output: Output, topic: str, named: Named, *, yes: bool) -> int:
    """Has all stores of a stream delete it, when a person has typed its topic."""
    session = session_of(named.source, "--source")
    if not yes:
        _confirm(topic, named)

    async def run() -> Mapping[str, Deregistered]:
        async with listing.asking(named) as (asker, own):
            look = asks.Look(topic=topic, session=session)
            return await stream_deregistered(asker, own, look, named.timeout)

    text = f"no store that answers knows a stream of topic {topic!r} and session {_session(named)}"
    return _told(output, asyncio.run(run()), text)


def _confirm(topic: str, named: Named) -> None:
    """Raises InvalidValue unless a person types the topic."""
    hint(
        f"onceq: this deletes all that the source of session {_session(named)} ever sent on topic"
        f" {topic!r}, and where its receivers are."
    )
    sys.stderr.write("Type the topic to go on: ")
    sys.stderr.flush()
    if sys.stdin.readline().strip() != topic:
        raise InvalidValue(
            f"that is not {topic!r}: nothing happened; type the topic, or give --yes"
        )


def _told(output: Output, done: Mapping[str, Deregistered], unknown: str) -> int:
    """Tells what came of it at each store; returns the exit code."""
    output.rows(
        DEREGISTERED_COLUMNS, [{"store": one, "text": done[one].value} for one in sorted(done)]
    )
    if set(done.values()) <= {Deregistered.UNKNOWN, Deregistered.SILENT}:
        hint(f"onceq: {unknown}")
        return NOT_FOUND
    return OK if set(done.values()) <= {Deregistered.DONE, Deregistered.UNKNOWN} else VIOLATION
