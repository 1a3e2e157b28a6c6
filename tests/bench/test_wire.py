"""Round trips are counted as they are on the wire: a pipeline of statements is one."""

from __future__ import annotations

from typing import TYPE_CHECKING

import psycopg

from bench.wire import relayed

if TYPE_CHECKING:
    from pathlib import Path

    from onceq import QueueManager


def test_each_statement_is_a_round_trip_and_a_pipeline_is_one(
    qm: QueueManager, tmp_path: Path
) -> None:
    with (
        relayed(qm.located.conninfo, tmp_path) as relay,
        psycopg.connect(relay.conninfo, autocommit=True, prepare_threshold=None) as connection,
    ):
        connection.execute("select 1")
        before = relay.count
        for _ in range(7):
            connection.execute("select 1")
        assert relay.count - before == 7
        before = relay.count
        with connection.pipeline():
            for _ in range(7):
                connection.execute("select 1")
        assert relay.count - before <= 2  # the first answers may come before the last is sent
