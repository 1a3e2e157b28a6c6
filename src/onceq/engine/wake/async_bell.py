"""The waits of `bell.py`, for asyncio.

Used by the async driver.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from onceq.engine.wake.bell import DEAF_S

if TYPE_CHECKING:
    from onceq.engine.wake.bell import Bell


async def wait_rung(bell: Bell, timeout_s: float, other: int | None = None) -> bool:
    """`Bell.wait`, awaited."""
    loop = asyncio.get_running_loop()
    end = loop.time() + timeout_s
    others = () if other is None else (other,)
    if bell.fileno() not in await _arrived(timeout_s, bell.fileno(), *others):
        return bell.awoke(timeout_s, rung=False)
    if bell.is_rung():
        return bell.awoke(timeout_s, rung=True)
    await asyncio.sleep(min(DEAF_S, max(0.0, end - loop.time())))
    return bell.awoke(timeout_s, rung=False)


async def doze(bell: Bell, timeout_s: float, other: int) -> bool:
    """`Bell.doze`, awaited."""
    await _arrived(timeout_s, bell.fileno(), other)
    rubbish = bell.wakes.rubbish
    rung = bell.is_rung()
    if bell.wakes.rubbish > rubbish and not rung:
        await asyncio.sleep(min(DEAF_S, timeout_s))
    return rung


async def _arrived(timeout_s: float, *files: int) -> set[int]:
    """Waits until one of these files can be read, at most this long; returns which can."""
    loop = asyncio.get_running_loop()
    arrived = asyncio.Event()
    found: set[int] = set()

    def note(file: int) -> None:
        found.add(file)
        arrived.set()

    for file in files:
        loop.add_reader(file, note, file)
    try:
        async with asyncio.timeout(timeout_s):
            await arrived.wait()
    except TimeoutError:
        pass
    finally:
        for file in files:
            loop.remove_reader(file)
    return found
