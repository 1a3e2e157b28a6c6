"""How a session reaches its database, and who has rights and locks there, for `onceq doctor`.

Used by the command line, which judges it. Reads PostgreSQL's own views, and changes nothing.
"""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from psycopg.rows import class_row, dict_row

from onceq.engine.sessions.faults import translated

if TYPE_CHECKING:
    import psycopg

SYSTEM_USER_SINCE: Final = 16
"""The major version of PostgreSQL from which on `system_user` says how a login was proved."""

_REACH: Final = """
select session_user::text as role, host(inet_client_addr()) as seen_from,
       coalesce((select ssl from pg_stat_ssl where pid = pg_backend_pid()), false) as seen_tls,
       (select version from pg_stat_ssl where pid = pg_backend_pid()) as tls_version,
       current_setting('password_encryption') as password_encryption
"""
# What everybody may do. Functions have no rights of their own until some are changed: then PUBLIC
# may execute them.
_PUBLIC: Final = """
with granted as (
    select 'schema' as kind, n.nspname::text as name, n.nspacl as acl, false as is_owners
    from pg_namespace n where n.nspname = %(repository)s
  union all
    select case c.relkind when 'S' then 'sequence' else 'table' end, c.relname::text, c.relacl,
        false
    from pg_class c where c.relnamespace = to_regnamespace(%(repository)s)
  union all
    select 'table', c.relname || '.' || a.attname, a.attacl, false
    from pg_attribute a join pg_class c on c.oid = a.attrelid
    where c.relnamespace = to_regnamespace(%(repository)s)
  union all
    select 'function', p.proname::text, coalesce(p.proacl, acldefault('f', p.proowner)), p.prosecdef
    from pg_proc p where p.pronamespace = to_regnamespace(%(repository)s)
)
select g.kind, g.name, g.is_owners,
       string_agg(distinct x.privilege_type, ', ' order by x.privilege_type) as rights
from granted g, aclexplode(g.acl) x where x.grantee = 0 group by 1, 2, 3 order by 1, 2
"""
# Our locks name a table, or an index, of the repository; that of migrate is one number. Whoever may
# not use the schema has no business there. A prepared transaction has no session: which one has a
# lock is known by the lock that it has on itself.
_STRANGERS: Final = """
select l.pid, r.rolname::text as login, a.application_name as application, count(*) as locks,
       string_agg(distinct coalesce(c.relname, 'migrate'), ', ') as of_what
from pg_locks l
left join pg_class c on c.oid = l.classid and l.objsubid = 2
    and c.relnamespace = to_regnamespace(%(repository)s)
left join pg_stat_activity a on a.pid = l.pid
left join pg_locks x on l.pid is null and x.pid is null and x.locktype = 'transactionid'
    and x.virtualtransaction = l.virtualtransaction
left join pg_prepared_xacts p on p.transaction = x.transactionid
join pg_roles r on r.oid = a.usesysid or r.rolname = p.owner
where l.locktype = 'advisory'
    and l.database = (select oid from pg_database where datname = current_database())
    and (c.oid is not null or l.objsubid = 1
        and (l.classid::bigint << 32) | l.objid::bigint = hashtext('onceq.migrate'))
    and not has_schema_privilege(r.oid, %(repository)s, 'usage')
group by 1, 2, 3 order by 1
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reach:
    """How this session reaches the database.

    address: the database's, as this end sees it; seen_from: ours, as the database does. None: a
    Unix socket. is_tls, seen_tls: whether there is TLS, as each end sees it; a proxy between them
    sees more. sslmode: what this end asks for. method: how the login was proved, "trust" if it was
    not; None: this PostgreSQL does not say.
    """

    role: str
    address: str | None
    is_tls: bool
    sslmode: str
    seen_from: str | None
    seen_tls: bool
    tls_version: str | None
    password_encryption: str
    method: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class PublicRight:
    """What PUBLIC may do with a schema, a table (or a column of it), a sequence or a function.

    is_owners: a function that runs with its owner's rights.
    """

    kind: str
    name: str
    rights: str
    is_owners: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Stranger:
    """A session that has locks of the repository, and whose login may not use its schema.

    pid: None: a prepared transaction. of_what: the tables and indexes that the locks name.
    """

    pid: int | None
    login: str
    application: str | None
    locks: int
    of_what: str

    def __str__(self) -> str:
        what = "a prepared transaction" if self.pid is None else f"pid {self.pid}"
        known = ", ".join(part for part in (self.login, self.application) if part)
        return f"{what} ({known}): {self.locks} of {self.of_what}"


def is_near(address: str | None) -> bool:
    """Whether an address does not leave the machine: a Unix socket (None), or loopback."""
    return address is None or ipaddress.ip_address(address).is_loopback


def reach(connection: psycopg.Connection[Any]) -> Reach:
    """Returns how a session reaches the database. EnvironmentFault, ConnectionLost."""
    link = connection.pgconn
    options = {one.keyword: one.val for one in link.info}
    with translated(connection), connection.cursor(row_factory=dict_row) as cursor:
        (seen,) = cursor.execute(_REACH.encode())
    return Reach(
        address=link.hostaddr.decode() or None,
        is_tls=link.ssl_in_use,
        sslmode=(options.get(b"sslmode") or b"").decode(),
        method=_method(connection),
        **seen,
    )


def _method(connection: psycopg.Connection[Any]) -> str | None:
    if connection.info.server_version // 10000 < SYSTEM_USER_SINCE:
        return None
    with translated(connection):
        row = connection.execute("select system_user").fetchone()
    said = None if row is None else row[0]
    return "trust" if said is None else str(said).partition(":")[0]


def public_rights(connection: psycopg.Connection[Any], repository: str) -> list[PublicRight]:
    """Returns what PUBLIC may do in the schema of a repository, by kind and name."""
    rows = class_row(PublicRight)
    with translated(connection), connection.cursor(row_factory=rows) as cursor:
        cursor.execute(_PUBLIC.encode(), {"repository": repository})
        return cursor.fetchall()


def strangers(connection: psycopg.Connection[Any], repository: str) -> list[Stranger]:
    """Returns who has, or waits for, locks of a repository and may not use its schema."""
    rows = class_row(Stranger)
    with translated(connection), connection.cursor(row_factory=rows) as cursor:
        cursor.execute(_STRANGERS.encode(), {"repository": repository})
        return cursor.fetchall()
