"""What clients were told last, compared with what is there: rules that need all of a client.

Used by `onceq.spark.audit.auditing`. Whoever acknowledges a reply says which request it sent
last; its own later send acknowledges too. So the reply to a client's last request of all is gone
only if its registration knows of that send. Source: spec G5, G6, P6.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pyspark.sql import functions as sf

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_WHO: Final = ["registrant", "thread"]


def unknown_to_tags(places: DataFrame, tags: DataFrame) -> DataFrame:
    """Returns violations: guarantee, rid, text. places: with send_no; tags: of all clients."""
    own = places.where("registrant is not null")
    return _nowhere(own, tags).unionByName(_gone(own, tags))


def _nowhere(own: DataFrame, tags: DataFrame) -> DataFrame:
    """Requests that a connect would show but that are nowhere (G6)."""
    shown = sf.expr("stack(2, 'sent', sent_rid, 'received', received_rid) as (what, rid)")
    named = tags.select(*_WHO, shown).where("rid is not null")
    known = named.join(own.select(*_WHO, "rid"), [*_WHO, "rid"]).distinct()
    return named.join(known, [*_WHO, "rid"], "left_anti").selectExpr(
        "'G6' as guarantee",
        "rid",
        "concat(registrant, ': connect would show it as ', what, ' last, and it is nowhere') text",
    )


def _gone(own: DataFrame, tags: DataFrame) -> DataFrame:
    """A client's last request has ended, its reply is gone, and nobody says so (G5)."""
    last = (
        own.where("send_no is not null")
        .groupBy(*_WHO)
        .agg(
            sf.max("send_no").alias("last"),
            sf.max_by("rid", "send_no").alias("rid"),
            sf.expr("max(case when state <> 'finished' then send_no end)").alias("standing"),
        )
        .where("last > coalesce(standing, -1)")
    )
    return (
        last.join(tags, _WHO, "left")
        .where("last > coalesce(sent_no, -1)")
        .selectExpr(
            "'G5' as guarantee",
            "rid",
            "concat(registrant, ': its reply is gone, and was not acknowledged') as text",
        )
    )
