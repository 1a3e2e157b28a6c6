"""How a session of ours begins: its settings, whose it is, and what its repository says of itself.

Used by the drivers and by the links. Refuses a pooler that mixes sessions. Retries nothing: it only
offers its settings in another form where they are refused.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import psycopg

from onceq.engine.sessions import forking, session, silence
from onceq.engine.sessions.levels import stamp_of
from onceq.engine.sessions.silence import AsyncOwnConnection
from onceq.errors import OnceqError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from onceq.engine.sessions.levels import Stamp
    from onceq.engine.sessions.silence import Patience


async def open_on(
    repository: str | None,
    conninfo: str,
    settings: Mapping[str, str],
    patience: Patience | None = None,
) -> tuple[psycopg.AsyncConnection[Any], str, Stamp | None]:
    """Returns a session, the SQL that must follow each RESET ALL, and a repository's stamp.

    repository: None, or one that is not there: there is no stamp. Raises CannotConnect,
    PoolerDetected, StatementRefused (this role may not read it); nothing happened.
    """
    conninfo = silence.hasty(conninfo, patience)
    connection = await _connect(session.offers(conninfo, settings))
    forking.keep(connection)
    try:
        with silence.bounded(connection, patience):
            again, stamp = await _made_ours(connection, conninfo, settings, repository)
    except psycopg.Error as error:
        failure = session.cannot_open(error, connection)
        await connection.close()
        raise failure from error
    except OnceqError:
        await connection.close()
        raise
    return connection, again, stamp


async def _made_ours(
    connection: psycopg.AsyncConnection[Any],
    conninfo: str,
    settings: Mapping[str, str],
    repository: str | None,
) -> tuple[str, Stamp | None]:
    """Refuses a pooler that mixes sessions; sets what another one dropped, and returns the SQL."""
    backend_pid, host, stamp = await _who(connection, repository)
    if session.is_pooled(connection, backend_pid):
        async with await psycopg.AsyncConnection.connect(conninfo, autocommit=True) as second:
            other_pid, _, _ = await _who(second, None)
            session.refuse_pooler(backend_pid, other_pid)
    if host == settings[session.HOST]:
        return "", stamp
    again = session.set_text(settings, connection.info.server_version)
    await connection.execute(again.encode())
    return again, stamp


async def _connect(offers: list[str]) -> psycopg.AsyncConnection[Any]:
    for offer in offers:
        try:
            return await AsyncOwnConnection.connect(offer, autocommit=True)
        except psycopg.Error as error:
            if offer is offers[-1] or not session.is_refused(error):
                raise session.cannot_connect(error) from error
    raise ValueError("there is always an offer")


async def _who(
    connection: psycopg.AsyncConnection[Any], repository: str | None
) -> tuple[int, str | None, Stamp | None]:
    """Returns whose a session is, and the stamp of a repository: one round trip if there is one."""
    try:
        cursor = await connection.execute(session.who_text(repository))
    except psycopg.errors.UndefinedTable:  # there is no such repository
        return await _who(connection, None)
    row = await cursor.fetchone()
    pid, host = (-1, None) if row is None else (int(row[0]), row[1])
    if not cursor.nextset():
        return pid, host, None
    found = await cursor.fetchone()
    return pid, host, None if found is None else stamp_of(found[0])
