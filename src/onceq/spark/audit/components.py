"""Which clients and elements belong together, so that each part can be judged separately.

Used by `onceq.spark.audit.auditing`. Everything in a place has a key: its client, or its
eid if it has none. Events tell by an eid, or by a rid alone, which key they belong to. If one
names two keys, these are one part; there are few such, so the driver can join them.
Source: spec P6.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql import functions as sf

from onceq.model.element import RequestOutcome, Role
from onceq.spark.audit.evidence import CLIENT, EFFECT, OTHER, PLACE, PLACES_IN_ARROW

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

_BEGUN: Final = "EnqueueBegun"
_FAILED: Final = RequestOutcome.FAILED.value
_UNIT: Final = "\x1f"
_WHOLE: Final = {"ignoreNullFields": "false"}


def keyed(places: DataFrame, *, by_client: bool) -> DataFrame:
    """Returns places, each with its key.

    by_client: there are events of clients, so all of a client is one part; otherwise each of its
    requests is one.
    """
    return places.withColumn("key", _key_of_place(by_client=by_client))


def eids_of(own: DataFrame) -> DataFrame:
    """Returns the key of each eid of places with their keys: asked more than once, so keep it.

    If there are several keys, the first and the last.
    """
    return _keys(own, "eid")


def in_parts(
    own: DataFrame, eids: DataFrame, said: DataFrame, *, nameless: bool, count: int
) -> DataFrame:
    """Returns (stage, payload) in partitions of what belongs together, each ordered by stage.

    own: places with their keys; eids: from `eids_of`. nameless: something is said by a rid alone.
    count: of partitions.
    """
    others = said.where(sf.col("stage").isin(EFFECT, OTHER))
    by_eid = _with_key(others.where("eid is not null"), eids, "eid")
    of_clients = said.where(sf.col("stage") == CLIENT).withColumn("key", _client())
    payload = sf.to_json(sf.struct(*PLACES_IN_ARROW.names), _WHOLE).cast("binary").alias("payload")
    every = own.select(sf.lit(PLACE).alias("stage"), payload, "key")
    every = every.unionByName(_told(of_clients)).unionByName(_told(by_eid))
    links = _shared(own, eids, "eid").unionByName(_redriven(by_eid, eids))
    links = links.unionByName(_answering(own))
    if nameless:
        by_rid, shared = _by_rid(own, others.where("eid is null"))
        every, links = every.unionByName(_told(by_rid)), links.unionByName(shared)
    pairs: list[Any] = links.where("old <> key").distinct().collect()
    if pairs:
        every = _put_together(every, roots((one["old"], one["key"]) for one in pairs))
    return every.repartition(count, "key").sortWithinPartitions("stage").select("stage", "payload")


def _told(said: DataFrame) -> DataFrame:
    return said.select("stage", "payload", "key")


def _by_rid(own: DataFrame, nameless: DataFrame) -> tuple[DataFrame, DataFrame]:
    """Returns what is said by a rid alone, with its key; and what such a rid joins."""
    nameless = nameless.withColumn("begins", sf.col("kind") == _BEGUN)
    named = _named(own, nameless)
    rids = _keys(named, "rid", "begins")
    return _with_key(nameless, rids, "rid", "begins"), _shared(named, rids, "rid", "begins")


def _client() -> Column:
    return sf.concat_ws(_UNIT, sf.lit("client"), "registrant", sf.coalesce("thread", sf.lit("")))


def _key_of_place(*, by_client: bool) -> Column:
    own = _client() if by_client else sf.concat_ws(_UNIT, _client(), "rid")
    return sf.when(sf.col("registrant").isNotNull(), own).otherwise(_of("eid"))


def _of(name: str) -> Column:
    return sf.concat_ws(_UNIT, sf.lit(name), name)


def _with_key(said: DataFrame, keys: DataFrame, *names: str) -> DataFrame:
    """Returns what is said with the key of its subject or, if there is none, one of its own."""
    joined = said.join(keys.select("key", *names), [*names], "left")
    return joined.withColumn("key", sf.coalesce("key", _of(names[0])))


def _keys(own: DataFrame, *names: str) -> DataFrame:
    """Returns the key of each eid or rid; if there are several, the first and the last."""
    return own.groupBy(*names).agg(sf.min("key").alias("key"), sf.max("key").alias("last"))


def _named(own: DataFrame, nameless: DataFrame) -> DataFrame:
    """Returns the places of rids named without an eid; datagrams, if one begins like that."""
    wanted = nameless.select("rid", "begins").distinct()
    found = own.select("rid", "role", "key").join(wanted, "rid")
    return found.where(f"not begins or role = '{Role.DATAGRAM}'")


def _shared(own: DataFrame, keys: DataFrame, *names: str) -> DataFrame:
    """Returns what one eid, or one rid, joins."""
    several = keys.where("key <> last").select(sf.col("key").alias("old"), *names)
    return own.join(sf.broadcast(several), [*names]).select("old", "key")


def _redriven(by_eid: DataFrame, eids: DataFrame) -> DataFrame:
    """Returns the redrives: the old one and the new one belong together."""
    redrives = by_eid.where("other is not null").select(
        sf.col("other").alias("eid"), sf.col("key").alias("old")
    )
    return _with_key(redrives, eids, "eid").select("old", "key")


def _answering(own: DataFrame) -> DataFrame:
    """Returns the datagrams that name a failed element: each may be its redrive."""
    failed = own.where(f"outcome = '{_FAILED}' and role <> '{Role.REPLY}'").select(
        sf.col("eid").alias("correlation_id"), sf.col("key").alias("old")
    )
    news = own.where(f"role = '{Role.DATAGRAM}' and correlation_id is not null")
    linked = news.select("correlation_id", "key").join(failed, "correlation_id")
    return linked.select("old", "key")


def roots(links: Iterable[tuple[str, str]]) -> dict[str, str]:
    """Returns for each linked key one key that all connected with it have in common."""
    above: dict[str, str] = {}

    def root(key: str) -> str:
        path = [key]
        while (following := above.setdefault(path[-1], path[-1])) != path[-1]:
            path.append(following)
        for one in path:
            above[one] = path[-1]
        return path[-1]

    for one, other in links:
        above[root(one)] = root(other)
    return {key: root(key) for key in list(above)}


def _put_together(every: DataFrame, root_of: dict[str, str]) -> DataFrame:
    spark: Any = every.sparkSession  # its types are partial
    rows = [(key, root) for key, root in root_of.items() if key != root]
    known = sf.broadcast(spark.createDataFrame(rows, "key string, root string"))
    joined = every.join(known, "key", "left").withColumn("key", sf.coalesce("root", "key"))
    return joined.drop("root")
