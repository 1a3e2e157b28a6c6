"""What a repository consists of, and what else is in its schema, or depends on it.

Used by `destroying`. Changes nothing.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from psycopg.rows import class_row

from onceq.engine.schema import scripts
from onceq.engine.schema.repositories import quoted
from onceq.errors import IllegalState

if TYPE_CHECKING:
    import psycopg

SHOWN: Final = 10
"""Of so many things that are in the way an error tells."""
FENCE: Final = "being_destroyed"
"""A trigger of each table, and its function: whoever is connected writes nothing any more."""
CREATED: Final = re.compile(
    r"^\s*create (?:or replace )?(?:unlogged )?(table|view|sequence|type|function) onceq\.(\w+)",
    re.MULTILINE,
)
FORMER: Final = ("archive_due", "charge_of_crash", "enqueue_rows", "enqueue_tagged")
"""Functions of former versions that an upgrade leaves where they are."""
MADE_LATER: Final = re.compile(r"started_\d+|low_\d+_\d+")
"""The sequences that `make_sequence` makes."""

# What is in a schema, in an order in which it can be dropped: first the functions that return rows
# of views, and after the tables those that triggers call. A table takes its identities along.
_MEMBERS: Final = """
with found as (
    select d.classid, d.objid, case
            when d.classid = 'pg_type'::regclass then 7
            when d.classid = 'pg_class'::regclass then
                case (select relkind from pg_class where oid = d.objid)
                    when 'v' then 2 when 'r' then 4 when 'p' then 4 when 'S' then 6 else 0 end
            when d.classid <> 'pg_proc'::regclass then 0
            when exists (select from pg_trigger where tgfoid = d.objid) then 5
            when exists (select from pg_depend v join pg_type t on t.oid = v.refobjid
                    join pg_class c on c.oid = t.typrelid and c.relkind = 'v'
                where v.classid = d.classid and v.objid = d.objid
                    and v.refclassid = 'pg_type'::regclass) then 1
            else 3 end as turn
    from pg_depend d
    where d.refclassid = 'pg_namespace'::regclass and d.refobjid = to_regnamespace(%(schema)s)
        and d.deptype = 'n' and not exists (select from pg_depend o where o.classid = d.classid
            and o.objid = d.objid and o.objsubid = 0 and o.deptype in ('i', 'a')
            and o.refclassid = 'pg_class'::regclass)
    order by turn, d.objid limit %(most)s)
select m.type, coalesce(p.proname, m.name)::text as name, m.identity, turn
from found cross join lateral pg_identify_object(classid, objid, 0) m
left join pg_proc p on classid = 'pg_proc'::regclass and p.oid = objid
order by turn, m.identity
"""
# What depends on something of a schema, and is no part of it: it would be broken, so it refuses.
_OUTSIDE: Final = """
with recursive own(classid, objid) as (
    select classid, objid from pg_depend
        where refclassid = 'pg_namespace'::regclass and refobjid = to_regnamespace(%(schema)s)
    union
    select d.classid, d.objid from pg_depend d
        join own on (d.refclassid, d.refobjid) = (own.classid, own.objid)
        where d.deptype in ('i', 'a', 'P', 'S'))
select distinct pg_describe_object(d.classid, d.objid, d.objsubid)
from own join pg_depend d on (d.refclassid, d.refobjid) = (own.classid, own.objid)
where d.deptype = 'n' and not exists (
    select from own o where (o.classid, o.objid) = (d.classid, d.objid))
union
select pg_describe_object(own.classid, own.objid, 0) from own
    join pg_class c on own.classid = 'pg_class'::regclass and c.oid = own.objid
    where c.relnamespace not in (to_regnamespace(%(schema)s), 'pg_toast'::regnamespace)
order by 1
"""


@dataclass(frozen=True, slots=True)
class Member:
    """Something in a schema. type: as DROP calls it. turn: the order in which it can be dropped."""

    type: str
    name: str | None
    identity: str
    turn: int


def members(
    connection: psycopg.Connection[Any], name: str, most: int | None = None
) -> list[Member]:
    """Returns what is in the schema, or what is to be dropped first of it."""
    with connection.cursor(row_factory=class_row(Member)) as cursor:
        given = {"schema": quoted(name), "most": most}
        return cursor.execute(_MEMBERS.encode(), given).fetchall()


def _made() -> frozenset[tuple[str, str]]:
    """Returns the kind and the name of all that a repository consists of."""
    texts = [scripts.tables(0, scripts.newest()), *(text for _, text in scripts.function_sources())]
    found = {(kind, name) for text in texts for kind, name in CREATED.findall(text)}
    return frozenset(found | {("function", name) for name in (FENCE, *FORMER)})


def check_foreign(connection: psycopg.Connection[Any], name: str) -> None:
    """Refuses a repository among whose tables are others, or on which others depend."""
    refuse_others(name, members(connection, name))
    outside = connection.execute(_OUTSIDE.encode(), {"schema": quoted(name)}).fetchall()
    if outside:
        raise IllegalState(in_use(name, some([str(text) for (text,) in outside])))


def refuse_others(name: str, found: list[Member]) -> None:
    """Raises IllegalState if something in a schema is not the repository's own."""
    made = _made()
    others = [
        f"{one.type} {one.identity}"
        for one in found
        if (one.type, one.name) not in made
        and not (one.type == "sequence" and MADE_LATER.fullmatch(one.name or ""))
    ]
    if others:
        raise IllegalState(
            f"repository {name!r} is not destroyed: schema {name!r} holds what is not the "
            f"repository's: {some(others)}; move that to another schema, or drop it"
        )


def in_use(name: str, what: str) -> str:
    """Returns the error that says what depends on a repository."""
    return (
        f"repository {name!r} is not destroyed, as others depend on it: {what}; drop them first: "
        "nothing of another schema is ever dropped"
    )


def some(texts: list[str]) -> str:
    """Returns the first of these, and how many more there are."""
    more = len(texts) - SHOWN
    return ", ".join(texts[:SHOWN]) + (f" and {more} more" if more > 0 else "")
