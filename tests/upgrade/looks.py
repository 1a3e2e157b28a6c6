"""What a repository says of itself, and all that it consists of."""

from __future__ import annotations

from typing import TYPE_CHECKING

from onceq.engine.schema import migrate
from tests.parts import plain

if TYPE_CHECKING:
    from onceq.engine.sessions.levels import Stamp


def stamp(conninfo: str, repository: str) -> Stamp | None:
    with plain(conninfo) as connection:
        return migrate.stamp(connection, repository)


SHAPE = """
select 'column', table_name::text, column_name::text, concat_ws(' ', ordinal_position, data_type,
    udt_name, is_nullable, column_default, is_identity) from information_schema.columns
    where table_schema = %(r)s
union all select 'constraint', conrelid::regclass::text, conname, pg_get_constraintdef(oid)
    from pg_constraint where connamespace = %(r)s::regnamespace
union all select 'index', tablename, indexname, indexdef from pg_indexes where schemaname = %(r)s
union all select 'view', viewname, '', definition from pg_views where schemaname = %(r)s
union all select 'sequence', sequencename, '', concat_ws(' ', data_type, start_value, min_value,
    max_value, increment_by, cache_size) from pg_sequences where schemaname = %(r)s
union all select 'trigger', tgrelid::regclass::text, tgname, pg_get_triggerdef(t.oid)
    from pg_trigger t join pg_class c on c.oid = tgrelid
    where c.relnamespace = %(r)s::regnamespace and not tgisinternal
union all select 'function', oid::regprocedure::text, '', pg_get_functiondef(oid)
    from pg_proc where pronamespace = %(r)s::regnamespace and prokind = 'f'
union all select 'storage', relname, '', concat_ws(' ', relkind, relpersistence, reloptions::text)
    from pg_class where relnamespace = %(r)s::regnamespace
order by 1, 2, 3, 4
"""


def shape(conninfo: str, repository: str) -> list[tuple[str, ...]]:
    """Returns all that a repository consists of, as of one called onceq."""
    with plain(conninfo) as connection:
        found = connection.execute(SHAPE, {"r": repository}).fetchall()
    return [tuple(str(value).replace(repository, "onceq") for value in row) for row in found]
