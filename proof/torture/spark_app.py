"""The Spark server of torture, run by `onceq spark serve`: books each order once.

Loaded by name in a process of its own, which is killed again and again. The environment names
the repository.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from onceq.spark import Server, ServerSettings, insert
from proof.harness.ledger import EFFECTS
from proof.torture.life import SPARK

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_REPLY = "named_struct('rid', rid, 'pid', 0)"
_EFFECT = "named_struct('key', request.key, 'rid', rid, 'eid', cast(eid as string), 'pid', 0)"


def book(requests: DataFrame) -> DataFrame:
    """Answers each order, with one row for the ledger."""
    return requests.selectExpr("eid", f"{_REPLY} as reply", f"{_EFFECT} as {EFFECTS}")


server = Server(
    SPARK,
    batch=book,
    tables={EFFECTS: insert(into=f"{os.environ.get('ONCEQ_REPOSITORY', 'onceq')}.{EFFECTS}")},
    settings=ServerSettings(backoff_s=0.1, backoff_max_s=1.0, grace_s=5.0, partitions=2),
)
