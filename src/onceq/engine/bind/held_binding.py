"""The bindings of the Ops about what error queues hold, to be merged by a driver.

They read tables by statements of their own: an operator's question needs no function in a
repository, and is answered by one of any level.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from onceq.engine.bind.decoding import columns_of
from onceq.engine.bind.statement import bind
from onceq.model import held
from onceq.model.element import Lane
from onceq.model.ops.base import kinds_of

if TYPE_CHECKING:
    from onceq.engine.bind.statement import Binding, Special
    from onceq.model.ops import Op

_HEX: Final = "[0-9a-fA-F]"
MASKED: Final = "|".join(
    (
        rf"\m{_HEX}{{8}}(?:-{_HEX}{{4}}){{3}}-{_HEX}{{12}}\M",  # a UUID
        rf"\m0[xX]{_HEX}+\M",
        rf"\m(?=[a-fA-F]*[0-9]){_HEX}{{8,}}\M",  # a digest, a part of an id
        r"[0-9]+(?:[.,:][0-9]+)*",
    )
)
"""What differs between errors that are alike, as PostgreSQL's regular expression: it takes the
longest of these. A masked text has no digit, and is masked to itself."""


def _masked(column: str) -> str:
    """Returns the SQL that masks a text; its braces are those of a template."""
    pattern = MASKED.replace("{", "{{").replace("}", "}}")
    return f"regexp_replace({column}, $mask${pattern}$mask$, '#', 'g')"


_WANTED: Final = (
    ("where.eid", "uuid"),
    ("where.queue", "text"),
    ("where.code", "text"),
    ("where.text", "text"),
    ("where.registrant", "text"),
    ("where.since", "timestamptz"),
    ("where.until", "timestamptz"),
    ("limit", "integer"),
)
# Of each queue, what stands in the lane of what is held, by its index: what has failed, and what
# its own queue holds. Where an element failed is told by history or, as in redrive (element.sql),
# by the only queue that has this error queue.
_HELD: Final = f"""
with wanted (eid, queue, code, text, registrant, since, until, most, earliest, own)
as materialized (
    select {{marks}}
), held as (
    select e.eid, e.rid, r.name as registrant,
        case when e.role = 'failed' then coalesce(h.queue, o.queue) else q.name end as queue,
        case when e.role = 'failed' then q.name end as error_queue,
        e.code, e.error, {_masked("e.error")} as text,
        case when e.outcome is null then e.aborts else e.faults end::integer as attempts,
        e.enqueued_at, coalesce(h.finished_at, a.ended_at) as failed_at,
        e.outcome is not null as is_reply,
        coalesce(h.finished_at, a.ended_at, e.enqueued_at) as moment
    from {{schema}}.queue q
    join {{schema}}.element e
        on e.queue_id = q.queue_id and e.lane = {Lane.HELD}
    cross join wanted
    left join {{schema}}.registrant r on r.registrant_id = e.failed_of
    left join lateral (
        select x.name as queue, f.finished_at
        from {{schema}}.history f join {{schema}}.queue x on x.queue_id = f.queue_id
        where f.eid = e.eid and f.outcome = 'failed' order by f.finished_at desc limit 1) h on true
    left join lateral (
        select min(x.name) as queue from {{schema}}.queue x
        where x.error_queue_id = e.queue_id and x.destroyed_at is null having count(*) = 1
    ) o on true
    left join lateral (
        select max(x.ended_at) as ended_at from {{schema}}.attempt x
        where x.eid = e.eid and e.role <> 'failed') a on true
    where q.kind <> 'reply'
        and (wanted.own is null or wanted.own = (e.role <> 'failed'))
), found as (
    select h.*, w.earliest, w.most from held h cross join wanted w
    where (w.eid is null or h.eid = w.eid) and (w.code is null or h.code = w.code)
        and (w.queue is null or w.queue in (h.queue, h.error_queue))
        and (w.registrant is null or h.registrant = w.registrant)
        and (w.since is null or h.moment >= w.since) and (w.until is null or h.moment < w.until)
        and (w.text is null or h.text = {_masked("w.text")})
)
"""

SPECIAL: Final[dict[type[Op[Any]], Special]] = {
    held.FindHeld: {
        "sql": f"{_HELD} select {columns_of(list[held.Held])} from found"
        " order by case when earliest then moment end, case when earliest then eid end,"
        " moment desc, eid desc limit (select most from wanted)",
        "parameters": (*_WANTED, ("earliest", "boolean"), ("own", "boolean")),
    },
    held.GroupHeld: {
        "sql": _HELD.replace("{marks}", "{marks}, false, null::boolean")
        + " select count(*) as count, queue, error_queue, code, text,"
        " min(failed_at) as first_at, max(failed_at) as last_at,"
        " (array_agg(eid order by moment desc, eid desc))[1] as eid"
        " from found group by queue, error_queue, code, text"
        " order by count desc, max(moment) desc, queue, code, text limit (select most from wanted)",
        "parameters": _WANTED,
    },
}
"""What `bind` is told beside the Op."""

HELD_BINDINGS: Final[dict[type[Op[Any]], Binding]] = {
    kind: bind(kind, SPECIAL[kind]) for kind in kinds_of(held)
}
