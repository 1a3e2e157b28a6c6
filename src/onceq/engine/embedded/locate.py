"""Where a repository is: the URL that the user gave, resolved to a libpq connection string.

Called by whatever is given a URL: queue managers, servers, ledgers, the command line, and Spark's
executors. A URL is `embedded:PATH`, `postgresql://...`, `service=...` or any libpq connection
string; None reads ONCEQ_URL, then DATABASE_URL, then libpq's own variables. Nothing else about a
repository comes from the environment, except ONCEQ_EXECUTOR_URL (onceq/spark/given/route.py) and,
on the command line, ONCEQ_REPOSITORY.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass

from psycopg import ProgrammingError
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from onceq import version
from onceq.engine.embedded import EmbeddedServer, open_embedded
from onceq.errors import InvalidValue

EMBEDDED = "embedded:"
_LIBPQ = ("PGHOST", "PGHOSTADDR", "PGSERVICE", "PGDATABASE")

SESSION_SETTINGS = {
    "application_name": f"onceq level {version.LEVEL}",
    "connect_timeout": "10",
    "keepalives_idle": "10",
    "keepalives_interval": "5",
    "keepalives_count": "3",
    "tcp_user_timeout": "30000",
}
"""What onceq sets on every connection unless the URL says otherwise: libpq alone waits for long."""


@dataclass(frozen=True, slots=True)
class Located:
    """A repository's database. embedded: the embedded server, if this process uses one."""

    url: str
    embedded: EmbeddedServer | None

    @property
    def conninfo(self) -> str:
        """For libpq. An embedded server's may change when it is restarted: ask again each time."""
        return _complete(self.url if self.embedded is None else self.embedded.conninfo)

    def ensure_running(self) -> None:
        """Restarts the embedded server if it has died; does nothing for others."""
        if self.embedded is not None:
            self.embedded.ensure_running()

    def close(self) -> None:
        """Ends this process's use of the embedded server; idempotent."""
        if self.embedded is not None:
            self.embedded.close()


def resolve_url(url: str | None, environment: Mapping[str, str] = os.environ) -> str:
    """Returns the given URL, or the one in the environment.

    Raises InvalidValue if there is neither, or if the given one is not text; nothing happened.
    """
    _check_text(url)
    found = url or environment.get("ONCEQ_URL") or environment.get("DATABASE_URL")
    if found:
        return found
    if any(environment.get(name) for name in _LIBPQ):
        return ""
    raise InvalidValue(
        "no repository is named: give a URL (embedded:./data, postgresql://...), "
        "or set ONCEQ_URL, DATABASE_URL or libpq's PGHOST"
    )


def _check_text(url: object) -> None:
    if not isinstance(url, str | None):
        raise InvalidValue(
            f"a URL is text, not {type(url).__module__}.{type(url).__qualname__}: give "
            "embedded:PATH or postgresql://...; a connection of your own goes to the calls that "
            "take `connection`"
        )


def locate(url: str | None) -> Located:
    """Returns where the URL leads; starts the embedded server if it is not running.

    Raises InvalidValue (not a URL), EmbeddedError (it cannot be started); nothing happened.
    """
    found = resolve_url(url)
    if found.startswith(EMBEDDED):
        path = found.removeprefix(EMBEDDED)
        if not path:
            raise InvalidValue("embedded: needs a path, as in embedded:./data")
        return Located(found, open_embedded(path))
    _complete(found)
    return Located(found, None)


def _complete(conninfo: str) -> str:
    try:
        given = conninfo_to_dict(conninfo)
    except (ProgrammingError, ValueError) as error:  # ValueError: lone surrogates, a NUL
        raise InvalidValue(
            f"not a database URL: {str(error).strip()}; "
            "give embedded:PATH, postgresql://USER@HOST/DATABASE or service=NAME"
        ) from None
    return make_conninfo("", **{**SESSION_SETTINGS, **given})
