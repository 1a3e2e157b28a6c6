"""A database's address as a URL: what `onceq url` prints and psql is given.

Used by the command line. Never shows a password unless asked to.
"""

from __future__ import annotations

import contextlib
from typing import Final
from urllib.parse import quote, urlencode

from psycopg.conninfo import conninfo_to_dict, make_conninfo

from onceq.engine.embedded.locate import SESSION_SETTINGS
from onceq.engine.perform.driver import connect

IN_FRONT: Final = ("user", "password", "host", "port", "dbname")


def without_password(conninfo: str) -> tuple[str, str | None]:
    """Returns the connection string without its password, and the password, or None."""
    given = conninfo_to_dict(conninfo)
    secret = given.pop("password", None)
    return make_conninfo("", **given), None if secret is None else str(secret)


def search_path(conninfo: str) -> str:
    """Returns where a session looks up unqualified names. CannotConnect."""
    with contextlib.closing(connect(conninfo)) as connection:
        row = connection.execute("show search_path").fetchone()
    return "" if row is None else str(row[0])


def with_search_path(conninfo: str, path: str, inherited: str) -> str:
    """Returns the connection string with a search path. inherited: options, if it has none."""
    given = str(conninfo_to_dict(conninfo).get("options") or inherited)
    escaped = path.replace("\\", "\\\\").replace(" ", "\\ ")
    return make_conninfo(conninfo, options=f"{given} -c search_path={escaped}".strip())


def as_url(conninfo: str, *, show_password: bool) -> str:
    """Returns the connection string as a postgresql:// URL, without what onceq adds itself."""
    given = {name: str(value) for name, value in conninfo_to_dict(conninfo).items() if value != ""}
    added = SESSION_SETTINGS.items()
    rest = {n: v for n, v in given.items() if n not in IN_FRONT and (n, v) not in added}
    secret = given.get("password")
    who = quote(given.get("user", ""), safe="")
    if secret is not None:
        who += ":" + (quote(secret, safe="") if show_password else "***")
    where = _hosts(given.get("host", ""), given.get("port", ""))
    query = "?" + urlencode(rest) if rest else ""
    at = "@" if who else ""
    return f"postgresql://{who}{at}{where}/{quote(given.get('dbname', ''), safe='')}{query}"


def _hosts(hosts: str, ports: str) -> str:
    """Returns host:port for each of several hosts; one port may serve for all."""
    names, numbers = hosts.split(","), ports.split(",")
    numbers = numbers * len(names) if len(numbers) == 1 else numbers
    pairs = zip(names, numbers, strict=True)
    return ",".join(_host(name) + (f":{number}" if number else "") for name, number in pairs)


def _host(name: str) -> str:
    return f"[{name}]" if ":" in name else quote(name, safe="")
