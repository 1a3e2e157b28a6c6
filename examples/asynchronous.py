"""The quickstart with asyncio: an async handler, and ten clients on one event loop.

Every method of `QueueManager` and `Clerk` exists in an awaited form. Source: spec C13, S1.
"""

from __future__ import annotations

import asyncio
import tempfile
import threading

import onceq

GREETINGS = onceq.Queue("greetings", str, str)


async def greet(name: str, context: onceq.AsyncContext) -> str:
    """An async handler gets an async connection, inside the same kind of transaction."""
    cursor = await context.connection.execute("select 'hello ' || %s::text", (name,))
    row = await cursor.fetchone()
    assert row is not None
    return str(row[0])


server = onceq.Server([GREETINGS.handled_by(greet)], concurrency=2)


async def one_client(qm: onceq.AsyncQueueManager, name: str) -> str:
    async with qm.clerk(name, GREETINGS) as clerk:
        reply = await clerk.transceive("1", name, timeout_s=30)
        return reply.value


async def clients(url: str) -> None:
    async with onceq.open_async(url) as qm:
        await qm.declare(GREETINGS)
        greetings = await asyncio.gather(*(one_client(qm, f"client {n}") for n in range(10)))
        print(min(greetings))
        print(len(set(greetings)), "different greetings")


def main() -> None:
    with tempfile.TemporaryDirectory() as directory:
        url = f"embedded:{directory}/data"
        serving = threading.Thread(target=server.run, args=(url,))
        serving.start()
        try:
            asyncio.run(clients(url))
        finally:
            server.stop()
            serving.join()


if __name__ == "__main__":
    main()
