"""procrastinate: as it comes, a call of a dead process stays as it is for ever.

Safest: with the periodic recipe of its documentation, which retries stalled calls.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any

import procrastinate
import psycopg

from proof.scoreboard.servers.base import EFFECT, HALF_S, LEASE_S, Reports, main

if TYPE_CHECKING:
    from proof.scoreboard.servers.base import Asked

CALL = "handle"
EVERY = "* * * * * */2"  # the sixth field is seconds


def _app(asked: Asked) -> Any:
    logging.getLogger("procrastinate").setLevel(logging.ERROR)
    return procrastinate.App(connector=procrastinate.PsycopgConnector(conninfo=asked.conninfo))


async def _prepare(asked: Asked) -> None:
    app = _app(asked)
    async with app.open_async():
        await app.schema_manager.apply_schema_async()


async def _send(asked: Asked) -> None:
    app = _app(asked)
    async with app.open_async():
        for rid in asked.rids:
            await app.configure_task(CALL).defer_async(rid=rid)


def _add_recipe(app: Any) -> None:
    async def retry_stalled(_context: Any, timestamp: int) -> None:  # noqa: ARG001 - as it is called
        stalled = await app.job_manager.get_stalled_jobs(seconds_since_heartbeat=LEASE_S)
        for one in stalled:
            await app.job_manager.retry_job(one)

    call = app.task(name="retry_stalled", queueing_lock="retry_stalled", pass_context=True)
    app.periodic(cron=EVERY)(call(retry_stalled))


async def _serve(asked: Asked) -> None:
    app, reports = _app(asked), Reports(asked.reports)
    own = await psycopg.AsyncConnection.connect(asked.conninfo, autocommit=True)

    async def handle(rid: str) -> None:
        reports.begin(rid)
        await asyncio.sleep(HALF_S)
        await own.execute(EFFECT, (rid,))
        await asyncio.sleep(HALF_S)

    app.task(name=CALL, retry=asked.limit or False)(handle)
    if asked.is_safest:
        _add_recipe(app)
    async with app.open_async():
        await app.run_worker_async(
            concurrency=1, update_heartbeat_interval=1.0, stalled_worker_timeout=float(LEASE_S)
        )


class Procrastinate:
    """The system, for `main`."""

    def prepare(self, asked: Asked) -> None:
        """Apply its schema."""
        asyncio.run(_prepare(asked))

    def send(self, asked: Asked) -> None:
        """Defer one by one."""
        asyncio.run(_send(asked))

    def serve(self, asked: Asked) -> None:
        """Run its server, one call at a time."""
        asyncio.run(_serve(asked))


if __name__ == "__main__":
    main(Procrastinate())
