"""What Spark can read of a repository as a table: its columns, their sources, and its slices.

Pure: SQL as text, and types. Read by `onceq.spark.read.batch`. Each relation is cut into slices by
a number that its rows have in the order in which they were written. Times are exact: they travel
as microseconds. Source: spec P3.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from onceq.errors import InvalidValue


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """A column. kind: Spark's type, as text. by: its value in the relation's FROM."""

    name: str
    kind: str
    by: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Relation:
    """A table to read. source: its FROM, with {schema}. key: the number that slices it.

    table: the one in source that has the key. without_key: the number of rows whose key is null.
    by_block: the key is a place on disk, and the number is its block: PostgreSQL reads only those.
    """

    columns: tuple[Column, ...]
    source: str
    table: str
    key: str
    without_key: int = 0
    by_block: bool = False

    @property
    def schema(self) -> str:
        """The columns, in Spark's form."""
        return ", ".join(f"{one.name} {one.kind}" for one in self.columns)

    def column(self, name: str) -> Column | None:
        """Returns the column of this name, if there is one."""
        return next((one for one in self.columns if one.name == name), None)

    def only(self, names: Sequence[str]) -> Relation:
        """Returns the relation with only these columns. Raises InvalidValue for an unknown one."""
        known = {one.name: one for one in self.columns}
        if unknown := [name for name in names if name not in known]:
            raise InvalidValue(f"column {unknown[0]!r}: what can be read is {', '.join(known)}")
        return replace(self, columns=tuple(known[name] for name in names))


def _columns(text: str) -> tuple[Column, ...]:
    """Returns columns from lines of NAME TYPE SQL."""
    rows = (line.split(None, 2) for line in text.strip().splitlines())
    return tuple(Column(name=name, kind=kind, by=by) for name, kind, by in rows)


_IN_SQL: Final = {
    "timestamp": "((extract(epoch from {}) * 1000000)::bigint)::text",
    "binary": "md5({})",
}
_IN_SPARK: Final = {
    "timestamp": "cast(unix_micros({}) as string)",
    "binary": "md5({})",
}
DIGEST: Final = "digest"


def _digested(text: str) -> tuple[Column, ...]:
    """Returns columns, and a digest of everything in them, made by PostgreSQL."""
    columns = _columns(text)
    parts = (_IN_SQL.get(one.kind, "({})::text").format(one.by) for one in columns)
    joined = ", ".join(f"coalesce({part}, chr(30))" for part in parts)
    text = f"convert_to(concat_ws(chr(31), {joined}), 'UTF8')"
    digest = f"('x' || substr(md5({text}), 1, 16))::bit(64)::bigint"
    return (*columns, Column(name=DIGEST, kind="bigint", by=digest))


def digest_in_spark(relation: Relation) -> str:
    """Returns Spark SQL that makes the same digest from the same row."""
    columns = [one for one in relation.columns if one.name != DIGEST]
    parts = (_IN_SPARK.get(one.kind, "cast({} as string)").format(one.name) for one in columns)
    joined = ", ".join(f"coalesce({part}, char(30))" for part in parts)
    return f"cast(conv(substr(md5(concat_ws(char(31), {joined})), 1, 16), 16, -10) as bigint)"


HISTORY: Final = Relation(
    columns=_digested("""
record_no bigint coalesce(h.record_no, 1)
rid string h.rid
registrant string r.name
thread string r.thread
eid string h.eid::text
queue string q.name
role string h.role::text
outcome string h.outcome::text
aborts int h.aborts::integer
code string h.code
error string h.error
enqueued_at timestamp h.enqueued_at
started_at timestamp h.started_at
finished_at timestamp h.finished_at
server bigint h.server
send_no bigint h.send_no
correlation_id string h.correlation_id
reply_eid string h.reply_eid::text
sha256 binary h.sha256
body binary h.body
reply binary h.reply
"""),
    source="{schema}.history h join {schema}.queue q on q.queue_id = h.queue_id"
    " left join {schema}.registrant r on r.registrant_id = h.registrant_id",
    table="{schema}.history h",
    key="h.record_no",
    without_key=1,
)
ATTEMPTS: Final = Relation(
    columns=_digested("""
record_no bigint coalesce(a.record_no, 1)
eid string a.eid::text
ended_at timestamp a.ended_at
server bigint a.server
host string a.host
pid int a.pid
charge string a.charge
code string a.code
error string a.error
"""),
    source="{schema}.attempt a",
    table="{schema}.attempt a",
    key="a.record_no",
    without_key=1,
)
ELEMENTS: Final = Relation(
    columns=_columns("""
eid string e.eid::text
rid string e.rid
registrant string r.name
thread string r.thread
queue string q.name
role string e.role::text
outcome string e.outcome::text
is_claimed boolean (e.claimed_by is not null)
lane int e.lane::integer
priority int e.priority::integer
aborts int e.aborts::integer
code string e.code
error string e.error
enqueued_at timestamp e.enqueued_at
not_before timestamp e.not_before
expires_at timestamp e.expires_at
correlation_id string e.correlation_id
send_no bigint e.send_no
is_volatile boolean (e.life is not null)
content_type string e.content_type
properties string e.properties::text
body binary e.body
"""),
    source="{schema}.element e join {schema}.queue q on q.queue_id = e.queue_id"
    " left join {schema}.registrant r on r.registrant_id = coalesce(e.registrant_id, e.failed_of)",
    table="{schema}.element e",
    key="e.seq",
)
_SERVERS: Final = (
    "(select incarnation as server, null as name, host, pid, started_at from {schema}.server"
    " union all select server_no, name, null, null, null from {schema}.spark_server) s"
)
SERVERS: Final = Relation(
    columns=_columns("""
server bigint s.server
name string s.name
host string s.host
pid int s.pid
started_at timestamp s.started_at
"""),
    source=_SERVERS,
    table=_SERVERS,
    key="s.server",
)
REGISTRATIONS: Final = Relation(
    columns=_columns("""
registrant string r.name
thread string r.thread
was string r.state
epoch bigint r.epoch
reply_queue string q.name
s_rid string t.s_rid
s_state string t.s_state
r_rid string t.r_rid
ckpt binary t.ckpt
"""),
    source="{schema}.registrant r join {schema}.queue q on q.queue_id = r.reply_queue_id"
    " cross join lateral {schema}.session_tags(r.registrant_id, r.reply_queue_id) t",
    table="{schema}.registrant r",
    key="r.registrant_id",
)
REDRIVES: Final = Relation(
    columns=_columns("""
old_eid string d.old_eid::text
new_eid string d.new_eid::text
new_rid string d.new_rid
redriven_at timestamp d.redriven_at
"""),
    source="{schema}.redrive d",
    table="{schema}.redrive d",
    key="d.ctid",
    by_block=True,
)
TAGS: Final = Relation(
    columns=_columns("""
registrant string r.name
thread string r.thread
sent_rid string g.sent_rid
sent_no bigint g.sent_no
received_rid string g.rid
"""),
    source="{schema}.registration g join {schema}.registrant r"
    " on r.registrant_id = g.registrant_id and r.reply_queue_id = g.queue_id",
    table="{schema}.registration g",
    key="g.registration_id",
)
RELATIONS: Final = {
    "history": HISTORY,
    "attempts": ATTEMPTS,
    "elements": ELEMENTS,
    "servers": SERVERS,
    "registrations": REGISTRATIONS,
    "redrives": REDRIVES,
    "tags": TAGS,
}


_QUOTED: Final = re.compile(r'"([^"]|"")+"\."([^"]|"")+"')
TABLE_OF: Final = "table "


def _ledger(table: str) -> Relation:
    """Returns a table of the user's that records effects. table: quoted, with its schema."""
    if not _QUOTED.fullmatch(table):
        raise InvalidValue(f"{table!r} is no table's name with its schema, both in quotes")
    escaped = table.replace("%", "%%")
    return Relation(
        columns=_columns("""
eid string t.eid::text
rid string t.rid::text
key string t.key::text
xid string t.xid::text
"""),
        source=f"{escaped} t",
        table=f"{escaped} t",
        key="t.ctid",
        by_block=True,
    )


def relation_of(name: str) -> Relation:
    """Returns the relation of a name, or the table after `TABLE_OF`. Raises InvalidValue."""
    if name.startswith(TABLE_OF):
        return _ledger(name.removeprefix(TABLE_OF))
    if name not in RELATIONS:
        raise InvalidValue(f"read {name!r}: what can be read is {', '.join(RELATIONS)}")
    return RELATIONS[name]
