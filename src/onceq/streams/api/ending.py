"""How a program has a stream deregistered: what a person decides, and no source may do."""

from __future__ import annotations

import math
from typing import Any

from onceq.errors import InvalidValue
from onceq.model.names import shown
from onceq.streams.api.given import Shared, store_list
from onceq.streams.api.numbers import check_wait
from onceq.streams.model import asks
from onceq.streams.net.asker import Asker
from onceq.streams.net.asking import Deregistered, stream_deregistered
from onceq.streams.topic import Topic

TIMEOUT_S = 5.0
CLOSE_S = 1.0


async def deregister(
    shared: Shared, topic: Topic[Any], *, stores: str, session_id: int | None, timeout_s: float
) -> frozenset[str]:
    """Have stores drop a stream; return those that must be asked again. See AsyncStreamContext."""
    session = shared.session(session_id)
    if session == 0:
        raise InvalidValue(
            f"the stream of topic {topic.name!r} to be deregistered is its source's: give its"
            " session_id"
        )
    waits_s = check_wait("timeout_s", timeout_s)
    if waits_s is None or waits_s <= 0 or timeout_s == math.inf:
        raise InvalidValue(f"timeout_s is {shown(timeout_s)}: give seconds, more than 0")
    own = store_list(shared, stores)
    certificates = shared.certificates
    asker = Asker(None if certificates is None else certificates.connecting())
    try:
        named = asks.Look(topic=topic.name, session=session)
        done = await stream_deregistered(asker, own, named, waits_s)
    finally:
        await asker.wait_closed(CLOSE_S)
    over = {Deregistered.DONE, Deregistered.UNKNOWN}
    return frozenset(store for store, one in done.items() if one not in over)
