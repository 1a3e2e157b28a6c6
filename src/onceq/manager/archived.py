"""Ended requests in the files of an archive: found by the manifest, without Spark.

Used by `OldRequests`, which asks PostgreSQL first: what is no longer there has long been in the
manifest. A file that is not needed for an answer is not opened, and of others the columns that
decide are read first: most files hold nothing that is wanted. Source: spec P5, C10.
"""

from __future__ import annotations

import datetime as dt
import importlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from uuid import UUID

from onceq.errors import FileMismatch
from onceq.manager.arrow import require_arrow
from onceq.model.archive_ops import ENDED, ArchivedFile, Kind, Manifest, micros
from onceq.model.element import ROLES, Attempt, Charge, OldRequest, RequestOutcome, Search

LIMIT: Final = 100
_SAME: Final = ("rid", "registrant", "thread", "queue", "aborts", "code", "error")
_SAME_TOO: Final = ("enqueued_at", "started_at", "finished_at", "server", "correlation_id")
_BODIES: Final = ("body", "reply")
_COLUMNS: Final = ["eid", "role", "outcome", *_SAME, *_SAME_TOO, *_BODIES]
_OF_ATTEMPT: Final = ["ended_at", "charge", "code", "error", "server", "host", "pid"]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Wanted:
    """What to look for in files. equal: column to value. limit: only the latest; None: all.

    after: the end and the eid of what ended next, so that only what is before it counts.
    """

    kind: Kind
    columns: list[str]
    equal: dict[str, str]
    since: dt.datetime | None = None
    until: dt.datetime | None = None
    after: tuple[dt.datetime, str] | None = None
    limit: int | None = None


class ArchivedRequests:
    """The requests in the archive of a repository, by its manifest."""

    def __init__(self, manifest: Manifest, repository: str) -> None:
        self._root = Path(manifest.root or "")
        self._files = manifest.files
        self._repository = repository

    def find(self, search: Search, eid: UUID | None = None) -> list[OldRequest]:
        """Returns the wanted requests, the latest first; `redriven_as` is not known here.

        eid: only that one. Raises MissingExtra (there are files, but no pyarrow), FileMismatch: a
        file of the manifest cannot be read.
        """
        outcome, after = search.get("outcome"), search.get("after")
        equal = {
            "rid": search.get("rid"),
            "eid": None if eid is None else str(eid),
            "registrant": search.get("registrant"),
            "queue": search.get("queue"),
            "outcome": None if outcome is None else outcome.value,
        }
        wanted = _Wanted(
            kind=Kind.HISTORY,
            columns=_COLUMNS,
            equal={name: value for name, value in equal.items() if value is not None},
            since=search.get("since"),
            until=search.get("until"),
            after=None if after is None else (after.finished_at, str(after.eid)),
            limit=search.get("limit", LIMIT),
        )
        rows: list[dict[str, Any]] = []
        for file in self._of(wanted):
            if len(rows) == wanted.limit and file.last_us < micros(rows[-1]["finished_at"]):
                break
            rows += self._read(file, wanted)
            rows.sort(key=_by_time, reverse=True)
            del rows[wanted.limit :]
        return [_request(row) for row in rows]

    def attempts(self, eid: UUID) -> list[Attempt]:
        """Returns how executions of a request were aborted, the earliest first."""
        wanted = _Wanted(kind=Kind.ATTEMPT, columns=_OF_ATTEMPT, equal={"eid": str(eid)})
        found = [_attempt(row) for file in self._of(wanted) for row in self._read(file, wanted)]
        return sorted(found, key=lambda one: one.ended_at)

    def _of(self, wanted: _Wanted) -> list[ArchivedFile]:
        """Returns the files that may hold what is wanted, the latest first."""
        since, until = wanted.since, wanted.until
        found = [
            one
            for one in self._files
            if one.kind is wanted.kind
            and (since is None or one.last_us >= micros(since))
            and (until is None or one.first_us < micros(until))
            and (wanted.after is None or one.first_us <= micros(wanted.after[0]))
        ]
        return sorted(found, key=lambda one: one.last_us, reverse=True)

    def _read(self, file: ArchivedFile, wanted: _Wanted) -> list[dict[str, Any]]:
        """Returns the wanted rows of a file; with a limit, the latest."""
        require_arrow()
        pa: Any = importlib.import_module("pyarrow")  # an extra, and without types
        pc: Any = importlib.import_module("pyarrow.compute")
        ended, moment = ENDED[wanted.kind], pa.timestamp("us", "UTC")
        terms = [pc.field(name) == value for name, value in wanted.equal.items()]
        if wanted.since is not None:
            terms.append(pc.field(ended) >= pa.scalar(wanted.since, moment))
        if wanted.until is not None:
            terms.append(pc.field(ended) < pa.scalar(wanted.until, moment))
        if wanted.after is not None:
            at, eid = pa.scalar(wanted.after[0], moment), wanted.after[1]
            terms.append(
                (pc.field(ended) < at) | ((pc.field(ended) == at) & (pc.field("eid") < eid))
            )
        condition: Any = None
        for term in terms:
            condition = term if condition is None else condition & term
        try:
            if not self._table(file, [*wanted.equal, ended], condition).num_rows:
                return []
            table = self._table(file, wanted.columns, condition)
        except (OSError, pa.ArrowException) as error:
            raise FileMismatch(self._unread(file, error)) from error
        if wanted.limit is not None and table.num_rows > wanted.limit:
            latest = [(ended, "descending"), ("eid", "descending")]
            table = table.take(pc.select_k_unstable(table, k=wanted.limit, sort_keys=latest))
        rows: list[dict[str, Any]] = table.to_pylist()
        return rows

    def _table(self, file: ArchivedFile, columns: list[str], condition: Any) -> Any:
        """Returns some columns of the rows of a file that meet a condition."""
        path = self._root / file.path
        if path.stat().st_size != file.bytes:
            raise OSError(f"it has {path.stat().st_size} bytes, and not {file.bytes}")
        parquet: Any = importlib.import_module("pyarrow.parquet")
        return parquet.read_table(path, columns=columns, filters=condition, partitioning=None)

    def _unread(self, file: ArchivedFile, error: Exception) -> str:
        """Returns why a file could not be read: it, or all of the archive."""
        whose = f"the archive of repository {self._repository!r}"
        if not self._root.is_dir():
            return (
                f"{whose} is in {self._root}, and no such directory is here: ask where it is, or "
                "mount it"
            )
        runs = {self._root / one.kind / f"run={one.run}" for one in self._files}
        if not any(run.is_dir() for run in runs):
            return (
                f"{self._root} does not hold {whose}: none of its folders is there; it is empty, "
                "or another repository's"
            )
        return f"{self._root / file.path} is in the archive's manifest, and cannot be read: {error}"


def _request(row: dict[str, Any]) -> OldRequest:
    return OldRequest(
        **{name: row[name] for name in (*_SAME, *_SAME_TOO, *_BODIES)},
        eid=UUID(row["eid"]),
        role=ROLES[row["role"]],
        outcome=RequestOutcome(row["outcome"]),
        redriven_as=None,
    )


def _attempt(row: dict[str, Any]) -> Attempt:
    row["charge"] = Charge(row["charge"])
    return Attempt(**row)


def _by_time(row: dict[str, Any]) -> tuple[dt.datetime, str]:
    return row["finished_at"], row["eid"]
