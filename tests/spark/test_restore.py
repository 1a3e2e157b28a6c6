"""Restoring: what was trimmed comes back as it was, is not archived twice, and is trimmed again."""

from __future__ import annotations

import signal
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final

import pytest

import onceq
from onceq import errors
from onceq.engine.faultpoints import VARIABLE
from onceq.engine.perform.spark_driver import Route, spark_driver
from onceq.model.archive_ops import ArchiveBegin, ArchiveManifest
from onceq.spark.archive import restoring
from onceq.spark.pipelines import Archived, Restored, archive, restore
from proof.harness.ledger import ask
from tests.cli.parts import Cli
from tests.parts import serving

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from pyspark.sql import SparkSession

ORDERS = onceq.Queue("orders", bytes, bytes, abort_limit=2, backoff_ms=1, keep_body=True)
WORDS = onceq.Queue("words", str, str)
OLD: Final = date(2020, 2, 29)
DAY: Final = timedelta(days=1)
OLDER: Final = "update {}.history set finished_at = '2020-02-29 23:59:59.999999+00' where rid = '1'"
ROWS: Final = """
select 'history', record_no, to_jsonb(h)::text from {0}.history h
union all select 'attempt', record_no, (to_jsonb(t) - 'traceback')::text from {0}.attempt t
order by 2
"""
SPOILER: Final = """
create function {0}.spoil() returns trigger language plpgsql as
    'begin new.aborts := 7; return new; end';
create trigger spoil before insert on {0}.history_default for each row execute function {0}.spoil()
"""


def handler(request: bytes, _: onceq.Context) -> bytes:
    """Fails what is bad."""
    if request == b"bad":
        raise ValueError("it is bad\\\n\tvery")
    return request + b"\x00\xff"


@dataclass(frozen=True, slots=True)
class Ground:
    """A repository, and its archive."""

    spark: SparkSession
    route: Route
    root: Path

    def run(self, keep_days: int | None = None) -> Archived:
        where = self.route
        return archive(
            self.root,
            where.conninfo,
            repository=where.repository,
            keep_days=keep_days,
            spark=self.spark,
        )

    def restore(self, since: date = OLD, until: date | None = None) -> Restored:
        end = datetime.now(UTC).date() + DAY if until is None else until
        where = self.route
        return restore(where.conninfo, since=since, until=end, repository=where.repository)

    def ask(self, query: str) -> list[Any]:
        return ask(self.route.conninfo, query.format(self.route.repository))

    def rows(self) -> list[Any]:
        """Returns all that the tables hold."""
        return self.ask(ROWS)

    def trimmed(self) -> list[bool]:
        with spark_driver(self.route) as driver:
            return [one.is_trimmed for one in driver.perform(ArchiveManifest()).files]


@pytest.fixture
def ground(spark: SparkSession, onceq_url: str, qm: onceq.QueueManager, tmp_path: Path) -> Ground:
    route = Route(url="", conninfo=onceq_url, repository=qm.repository)
    return Ground(spark, route, tmp_path / "archive")


@pytest.fixture
def ended(ground: Ground, qm: onceq.QueueManager) -> list[Any]:
    """The rows of four: "1" of long ago, "2" that failed, "3" the client's last, a datagram."""
    qm.declare(ORDERS)
    qm.declare(WORDS)
    with (
        serving(ground.route.conninfo, qm.repository, ORDERS.handled_by(handler)),
        qm.clerk("till", ORDERS, window=3) as clerk,
    ):
        for rid in ("1", "2", "3"):
            clerk.send(rid, b"bad" if rid == "2" else rid.encode())
            clerk.receive(rid=rid, timeout_s=60)
        clerk.acknowledge(clerk.unacknowledged)
    qm.enqueue(WORDS, "\N{SNOWMAN}")
    assert qm.dequeue(WORDS.name) is not None
    ground.ask("delete from {}.element")  # what is held of "2" would keep its rows
    ground.ask(OLDER)
    return ground.rows()


def test_what_was_trimmed_comes_back_as_it_was(ground: Ground, ended: list[Any]) -> None:
    done = ground.run(keep_days=0)
    assert done.trimmed == {"history": 3, "attempt": 2}  # "3" was sent last, and stays
    assert ground.restore().rows == done.trimmed
    assert ground.rows() == ended
    assert not any(ground.trimmed())
    assert ground.restore().rows == {"history": 0, "attempt": 0}
    again = ground.run(keep_days=0)
    assert (again.rows, again.trimmed) == ({"history": 0, "attempt": 0}, done.trimmed)
    assert ground.restore().rows == done.trimmed
    assert ground.rows() == ended


def test_days_come_back_and_with_them_what_was_sent_before(
    ground: Ground, ended: list[Any], qm: onceq.QueueManager
) -> None:
    ground.run(keep_days=0)
    assert ground.restore(OLD + DAY, OLD + 2 * DAY).files == 0
    assert ground.restore(OLD, OLD + DAY).rows == {"history": 1, "attempt": 0}
    with qm.clerk("till", ORDERS) as clerk:
        assert clerk.send("1", b"1").state == "done"
    assert {row for row in ended if '"rid": "1"' in row[2]} < set(ground.rows())


def test_what_was_there_before_the_archive_comes_back_as_record_one(
    ground: Ground, ended: list[Any]
) -> None:
    for name in ("history", "attempt"):
        ground.ask(f"update {{}}.{name} set record_no = null")
    trimmed = ground.run(keep_days=0).trimmed
    assert ground.restore().rows == trimmed
    assert len(ground.rows()) == len(ended)
    again = ground.run(keep_days=0)
    assert (sum(again.rows.values()), again.trimmed) == (0, trimmed)


def test_a_row_goes_back_to_the_queue_that_had_its_name_then(
    ground: Ground, qm: onceq.QueueManager
) -> None:
    for _ in range(2):
        qm.declare(WORDS)
        qm.enqueue(WORDS, "word")
        assert qm.dequeue(WORDS.name) is not None
        qm.destroy(WORDS.name)
    rows = ground.rows()
    ground.run(keep_days=0)
    assert ground.rows() == []
    ground.restore()
    assert ground.rows() == rows


@dataclass(frozen=True)
class Armed(Cli):
    """The command line, with a fault point that is armed in its processes."""

    fault: str

    def environment(self) -> Mapping[str, str]:
        return {**super().environment(), VARIABLE: self.fault}


@pytest.mark.parametrize("point", ["ArchiveRestore.after", "Commit.after"])
def test_a_restore_that_is_killed_is_repeated(
    ground: Ground, ended: list[Any], point: str, tmp_path: Path
) -> None:
    ground.run(keep_days=0)
    until = str(datetime.now(UTC).date() + DAY)
    words = ("spark", "restore", "--since", str(OLD), "--until", until)
    where = (ground.route.conninfo, ground.route.repository)
    with Armed(*where, f"{point} 1 kill {tmp_path}").start(*words) as killed:
        said = killed.communicate(timeout=300)
        assert killed.returncode == -signal.SIGKILL, said
    assert len(ground.rows()) < len(ended)
    assert Cli(*where).json(*words).item["files"] == len(ground.trimmed())
    assert ground.rows() == ended
    assert "nothing: all of it was there" in Cli(*where)(*words).out


@pytest.fixture
def archived(ground: Ground, ended: list[Any]) -> list[Any]:
    """The rows that are left, when all that may be trimmed was."""
    assert ended
    ground.run(keep_days=0)
    return ground.rows()


def test_a_file_that_was_damaged_is_not_restored(ground: Ground, archived: list[Any]) -> None:
    paths = list(ground.root.rglob("*.parquet"))
    for path in paths:
        content = bytearray(path.read_bytes())
        content[20] ^= 1
        path.write_bytes(content)
    with pytest.raises(errors.FileMismatch, match="is not what was archived: nothing of it"):
        ground.restore()
    for path in paths:
        path.unlink()
    with pytest.raises(errors.FileMismatch, match="cannot be read: nothing of it is restored"):
        ground.restore()
    assert ground.rows() == archived


def test_a_row_that_changes_on_its_way_is_missed(ground: Ground, archived: list[Any]) -> None:
    ground.ask(SPOILER)
    with pytest.raises(errors.EnvironmentFault, match="are not as they were"):
        ground.restore()
    assert ground.rows() == archived


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ("update {}.registrant set name = 'tills'", "registrant 'till'"),
        ("update {}.queue set name = 'order' where name = 'orders'", "queue 'orders'"),
    ],
)
def test_a_name_that_nobody_has_is_said(
    ground: Ground, archived: list[Any], change: str, said: str
) -> None:
    ground.ask(change)
    with pytest.raises(errors.IllegalState, match=said):
        ground.restore(OLD, OLD + DAY)
    assert ground.rows() == archived


def test_an_overtaken_restore_restores_nothing(
    ground: Ground, archived: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    def overtaken(*given: Any) -> Iterator[tuple[Any, ...]]:
        with spark_driver(ground.route) as driver:
            driver.perform(ArchiveBegin(root=str(ground.root)))
        yield from read(*given)

    read = restoring.rows_of
    monkeypatch.setattr(restoring, "rows_of", overtaken)
    with pytest.raises(errors.Fenced):
        ground.restore()
    assert ground.rows() == archived


def test_what_cannot_be_restored_is_refused(ground: Ground, qm: onceq.QueueManager) -> None:
    cli = Cli(ground.route.conninfo, qm.repository)
    days = ("spark", "restore", "--since", "2026-01-01", "--until")
    assert "nothing of repository" in cli(*days, "2026-01-02", code=1).err
    assert "there is no day" in cli(*days, "2026-01-01", code=2).err
    assert "--until is a day like 2026-01-31" in cli(*days, "tomorrow", code=2).err
    with spark_driver(ground.route) as driver:
        driver.perform(ArchiveBegin(root=str(ground.root)))
    assert "has nothing of these days" in cli(*days, "2026-01-02", code=3).err
