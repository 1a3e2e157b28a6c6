"""The bindings of the Ops of the Spark server and of the archive, to be merged by a driver."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from onceq.engine.statement import Binding, call
from onceq.model import archive_ops as archive
from onceq.model import spark_ops as ops

if TYPE_CHECKING:
    from collections.abc import Sequence

    from onceq.engine.statement import Row
    from onceq.model.ops import Op

_WHO = "server_id integer, epoch bigint, "


def _scalar(rows: Sequence[Row]) -> Any:
    return rows[0][0]


def _registration(rows: Sequence[Row]) -> ops.SparkRegistration:
    row = rows[0]
    return ops.SparkRegistration(
        server_id=row[0], epoch=row[1], queue_id=row[2], query_id=row[3], batch_id=row[4]
    )


def _committed(rows: Sequence[Row]) -> ops.SparkCommitted:
    row = rows[0]
    return ops.SparkCommitted(verdict=row[0], done=row[1], failed=row[2], returned=row[3])


def _position(rows: Sequence[Row]) -> archive.ArchivePosition:
    row = rows[0]
    return archive.ArchivePosition(epoch=row[0], archived=row[1], begun_at=row[2])


def _each_first(rows: Sequence[Row]) -> list[Any]:
    return [row[0] for row in rows]


def _settled(rows: Sequence[Row]) -> archive.Settled:
    return archive.Settled(until=rows[0][0], is_new=rows[0][1])


def _manifest(rows: Sequence[Row]) -> archive.Manifest:
    root, archived = rows[0][:2] if rows else (None, 0)
    files = [
        archive.ArchivedFile(
            path=row[2],
            kind=archive.Kind(row[3]),
            day=row[4],
            rows=row[5],
            bytes=row[6],
            first_us=row[7],
            last_us=row[8],
            since=row[9],
            until=row[10],
            sha256=row[11],
            is_trimmed=row[12],
            run=row[13],
        )
        for row in rows
        if row[2] is not None
    ]
    return archive.Manifest(root=root, archived=archived, files=files)


ARCHIVE_BINDINGS: dict[type[Op[Any]], Binding] = {
    archive.ArchiveBegin: call("archive_begin", "root text", _position),
    archive.ArchiveSettle: call("archive_settle", "epoch bigint", _settled),
    archive.ArchivePlan: call("archive_plan", "epoch bigint, run uuid", _scalar),
    archive.ArchiveDead: call("archive_dead", "epoch bigint", _each_first),
    archive.ArchiveCommit: call(
        "archive_commit",
        "epoch bigint, since bigint, until bigint, run uuid, files jsonb",
        _scalar,
    ),
    archive.ArchiveReplace: call(
        "archive_replace", "epoch bigint, replaced uuid[], run uuid, files jsonb", _scalar
    ),
    archive.ArchiveCount: call("archive_count", "kind text, since bigint, until bigint", _scalar),
    archive.ArchiveTables: call("archive_tables", "kind text", list),
    archive.ArchiveDue: call(
        "archive_due_days",
        "kind text, before timestamptz, table oid, page bigint, pages integer",
        lambda rows: [
            archive.DueDay(day=row[0], archived=row[1], unarchived=row[2]) for row in rows
        ],
    ),
    archive.ArchiveTrim: call(
        "archive_trim",
        "epoch bigint, kind text, before timestamptz, days date[], unarchived boolean, table oid,"
        " page bigint, pages integer",
        _scalar,
    ),
    archive.ArchiveTrimmed: call("archive_trimmed", "epoch bigint, before timestamptz", _scalar),
    archive.ArchiveManifest: call(
        "archive_manifest",
        "kind text",
        _manifest,
        "root, archived, (file).path, (file).kind, (file).day, (file).rows, (file).bytes,"
        " (file).first_us, (file).last_us, (file).since, (file).until,"
        " encode((file).sha256, 'hex'), (file).is_trimmed, (file).run",
    ),
    archive.ArchiveRestore: call("archive_restore", "epoch bigint, path text", _scalar),
    archive.ArchiveRedriven: call("archive_redriven", "eids uuid[]", dict),
}

_ABORTED = ("record", "rid", "eid", "attempt", "charge", "code", "failed", "traceback")

SPARK_BINDINGS: dict[type[Op[Any]], Binding] = {
    ops.SparkOpen: call(
        "spark_open",
        "name text, queue text, hold_s double precision, innocent boolean, stateful boolean",
        _registration,
    ),
    ops.SparkClaim: call("spark_claim", f"{_WHO} start bigint, n integer, bound bigint", _scalar),
    ops.SparkBound: call("spark_bound", "", _scalar),
    ops.SparkLeft: call("spark_left", f"{_WHO} bound bigint", _scalar),
    ops.SparkAborts: call(
        "spark_aborts",
        "name text, since bigint",
        lambda rows: [ops.SparkAborted(**dict(zip(_ABORTED, row, strict=True))) for row in rows],
        "record_no, rid, eid, attempt, charge, code, failed, traceback",
    ),
    ops.SparkLastRecord: call("spark_last_record", "", _scalar),
    ops.SparkPlan: call("spark_plan", f"{_WHO} group bigint", _scalar),
    ops.SparkRead: call("spark_read", "group bigint, first integer, last integer", list),
    ops.SparkRefuse: call(
        "spark_refuse", "group bigint, eids uuid[], codes text[], errors text[]", _scalar
    ),
    ops.SparkAttempt: call("spark_attempt", f"{_WHO} query_id text, batch_id bigint", _scalar),
    ops.SparkDiscard: call("spark_discard", "attempts bigint[]", _scalar),
    ops.SparkCommit: call(
        "spark_commit",
        f"{_WHO} query_id text, batch_id bigint, attempts bigint[], rows bigint, tables jsonb,"
        " content_type text",
        _committed,
    ),
    ops.SparkBlame: call("spark_blame", f"{_WHO} attempts bigint[], tables jsonb", _scalar),
    ops.SparkCheckTable: call("spark_try", "table jsonb", _scalar),
    ops.SparkClose: call("spark_close", _WHO, _scalar),
    ops.SparkPurge: call("spark_purge", f"{_WHO} group bigint", _scalar),
    ops.SparkTakeOver: call(
        "spark_take_over", "server_id integer, grace_s double precision", _scalar
    ),
    ops.SparkEnqueue: call(
        "enqueue_each_row",
        "registrant_id integer, epoch bigint, queue text, send_no bigint, rids text[],"
        " bodies bytea[], priorities smallint[], not_before bigint[], expires_at bigint[],"
        " correlation_ids text[], content_types text[], properties text[], content_type text",
        _scalar,
    ),
}
