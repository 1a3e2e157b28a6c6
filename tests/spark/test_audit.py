"""The audit: what is healthy is clean, and what is broken is found, as by the checker alone."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

import onceq
from onceq import errors
from onceq.history import check_files
from onceq.history.events import Recorder, files
from onceq.spark.audit.components import roots
from onceq.spark.pipelines import Audited, Known, archive, audit, audit_files
from proof.audit.plants import PLANTS, Of, Plant
from proof.harness.ledger import LedgerHandler, Order, Receipt, ask, make_ledger
from proof.harness.orders import recorded
from proof.history.clients import invent
from proof.history.corruptions import CORRUPTIONS, REQUESTS
from proof.history.wreck import NoPlaceForIt, Wreck
from tests.cli.parts import Cli
from tests.parts import serving
from tests.spark.audit_ground import EACH, ORDERS, RIDS, Ground, live

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import SparkSession

    from proof.history.invention import History


# --- files of events --------------------------------------------------------------------------


def test_events_are_judged_as_by_the_checker_alone(spark: SparkSession, tmp_path: Path) -> None:
    """Every kind of corruption, in one history of many clients, and one without any."""
    final = invent(1, 1, effects_each=2).final()
    wanted = {corrupt(name, f"h{n}-", tmp_path) for n, name in enumerate(CORRUPTIONS)}
    invent(2, REQUESTS, "sound-", effects_each=2).append_to(tmp_path)
    (tmp_path / "torn.events").write_bytes(b'{"event":"Doubted","what":"send"}\n{"event":"Sat')
    alone = check_files(tmp_path)
    found = audit_files(tmp_path, spark=spark, save=tmp_path / "found")
    assert {str(one) for one in found.found} == {str(one) for one in alone.violations}
    told = (found.events, found.places + found.effects, found.acknowledged, found.violations)
    assert told == (alone.events, alone.rows, alone.acknowledged, len(alone.violations))
    named = {(one.guarantee, one.rid) for one in found.found}
    assert len(wanted & named) >= len(wanted) - 3  # faults of one excuse charges of another
    assert not any((one.rid or "").startswith("sound-") for one in found.found)
    assert final.effects_each == 2
    lines = [
        msgspec.json.decode(line)
        for path in (tmp_path / "found").glob("*.json")
        for line in path.read_bytes().splitlines()
    ]
    assert len(lines) == found.violations


def corrupt(name: str, prefix: str, folder: Path) -> tuple[str, str | None]:
    """Adds a history that is corrupted; returns what must be named."""
    for turn in range(50):
        history: History = invent(turn, REQUESTS, prefix, effects_each=2)
        try:
            wanted = CORRUPTIONS[name](Wreck(history, f"{turn} {name}"))
        except NoPlaceForIt:
            continue
        history.append_to(folder)
        return wanted
    raise NoPlaceForIt(name)


def test_a_final_state_must_be_there(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        audit_files(tmp_path, spark=spark)
    with pytest.raises(errors.InvalidValue, match="is no directory"):
        audit_files(tmp_path / "none", spark=spark)


def test_the_parts_of_a_file_are_all_of_it_once(tmp_path: Path) -> None:
    invent(1, 20).append_to(tmp_path)
    path = max(tmp_path.glob("*.events"), key=lambda one: one.stat().st_size)
    path.write_bytes(path.read_bytes() + b'{"event"')
    whole = [event for piece in files.read(path) for event in piece]
    for size in (1, 7, 300, 1 << 20):
        parts = files.parts(path, size)
        pieces = [piece for part in parts for piece in files.read_part(part, files.EVENTS)]
        assert [event for _, piece in pieces for event in piece] == whole


def test_what_is_linked_has_one_root() -> None:
    found = roots([("a", "b"), ("c", "d"), ("b", "c"), ("x", "y")])
    assert len({found[one] for one in "abcd"}) == 1
    assert found["x"] == found["y"] != found["a"]


# --- a repository -----------------------------------------------------------------------------


@pytest.fixture
def ground(onceq_url: str, qm: onceq.QueueManager) -> Ground:
    made = Ground(onceq_url, qm)
    live(made)
    return made


@pytest.fixture
def cli(spark: SparkSession, ground: Ground, monkeypatch: pytest.MonkeyPatch) -> Cli:
    """The command line, in the session of these tests, which it does not stop."""

    def run_here(once: Callable[[SparkSession], None], *_: object, **__: object) -> int:
        once(spark)
        return 0

    monkeypatch.setattr("onceq.cli.auditing.run_pipeline", run_here)
    return Cli(ground.url, ground.name)


def audited(spark: SparkSession, ground: Ground) -> Audited:
    known = Known(effects=f"{ground.name}.booked", effects_each=EACH, abort_limit=2)
    return audit(ground.url, repository=ground.name, known=known, spark=spark)


def test_a_healthy_repository_is_clean_live_and_archived(
    spark: SparkSession, ground: Ground, tmp_path: Path
) -> None:
    def look() -> Audited:
        found = audited(spark, ground)
        assert found.found == []
        return found

    here = look()
    rows = ground.count("requests")
    assert (here.places, here.archived) == (rows, 0)
    archive(tmp_path / "archive", ground.url, repository=ground.name, spark=spark, keep_days=0)
    ground.eids["new"] = ground.qm.enqueue(ORDERS, b"good", rid="new")
    ground.qm.kill(ground.eids["new"])
    there = look()
    assert (there.places, there.archived) == (rows + 1, here.days and sum(n for *_, n in here.days))
    assert ground.count("history") < there.archived


def planted(ground: Ground) -> dict[Plant, str]:
    """Breaks everything, each at a request of its own; returns the rids of these."""
    left = {of: list(rids) for of, rids in RIDS.items()}
    broken = {plant: left[plant.of].pop() for plant in PLANTS}
    for plant, rid in broken.items():
        ground.do(plant.do.replace("{eid}", str(ground.eids[rid])))
    return broken


def test_what_is_broken_in_a_repository_is_found(spark: SparkSession, ground: Ground) -> None:
    broken = planted(ground)
    found = audited(spark, ground)
    named = {(one.guarantee, one.rid) for one in found.found}
    for plant, rid in broken.items():
        assert (plant.guarantee, plant.names or rid) in named, plant.name
    assert {rid for _, rid in named} == {one.names or rid for one, rid in broken.items()}


def test_a_repository_is_judged_by_what_its_processes_have_recorded_too(
    spark: SparkSession, conninfo: str, qm: onceq.QueueManager, tmp_path: Path
) -> None:
    """What is in no table, a client remembers: its request was acknowledged, and is nowhere."""
    queue = onceq.Queue("ledger", Order, Receipt, backoff_ms=0)
    qm.declare(queue)
    make_ledger(conninfo, qm.repository)
    known = Known(
        events=tmp_path, effects=f"{qm.repository}.effects", effects_each=1, abort_limit=5
    )
    with (
        Recorder(tmp_path / "server.events", "server 1") as recorder,
        serving(conninfo, qm.repository, queue.handled_by(LedgerHandler(recorder, qm.repository))),
        recorded(qm, "till", queue, tmp_path, window=3) as clerk,
    ):
        clerk.send_many([(f"r{n}", Order("fail" if n == 1 else "book")) for n in range(3)])
        for _ in range(3):
            clerk.receive()
        clerk.satisfied()
    found = audit(conninfo, repository=qm.repository, known=known, spark=spark)
    assert (found.found, found.acknowledged) == ([], 3)
    ask(conninfo, f"delete from {qm.repository}.history where rid = 'r2'")
    found = audit(conninfo, repository=qm.repository, known=known, spark=spark)
    assert {one.rid for one in found.found} == {"r2"}
    assert "G4" in {one.guarantee for one in found.found}


def test_the_audit_knows_the_retry_limits_of_queues(
    spark: SparkSession, conninfo: str, qm: onceq.QueueManager
) -> None:
    """The largest one, or what is said: then a request that was tried again more often is found."""
    limits = {"few": 2, "many": 12}
    queues = {
        name: onceq.Queue(name, bytes, bytes, abort_limit=1, retry_limit=limit, backoff_ms=0)
        for name, limit in limits.items()
    }

    def handle(_: bytes, context: onceq.Context) -> bytes:
        raise onceq.Retry(context.rid)

    for name, queue in queues.items():
        with (
            serving(conninfo, qm.repository, queue.handled_by(handle)),
            qm.clerk(name, queue) as clerk,
        ):
            assert clerk.transceive(name, b"", timeout_s=60).code == "Retry"
    where: dict[str, Any] = {"repository": qm.repository, "spark": spark}
    assert audit(conninfo, **where).found == []
    found = audit(conninfo, known=Known(retry_limit=2), **where).found
    assert [(one.guarantee, one.rid) for one in found] == [("G7", "many")]


# --- the command ------------------------------------------------------------------------------


def test_the_command_says_what_is_broken_and_writes_a_page(
    ground: Ground, cli: Cli, tmp_path: Path
) -> None:
    page = tmp_path / "audit.html"
    words = ("spark", "audit", "--effects", f"{ground.name}.booked", "--effects-each", str(EACH))
    rid = RIDS[Of.KILLED][0]
    plant = next(one for one in PLANTS if one.of is Of.KILLED)
    ground.do(plant.do.replace("{eid}", str(ground.eids[rid])))
    answer = cli.json(*words, "--report", str(page), code=1).item
    assert answer["by_guarantee"] == {"G8": 1}
    assert [one["rid"] for one in answer["found"]] == [rid]
    text = page.read_text(encoding="utf-8")
    assert rid in text
    assert text.count("<svg") == 2


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--effects", "nowhere"), "there is no table"),
        (("--effects", "pg_catalog.pg_class"), "has no column eid"),
        (("--effects-each", "1"), "give both"),
        (("--save", "x", "--every", "1"), "without --every"),
        (("--events", "/nowhere"), "is no directory"),
    ],
)
def test_what_cannot_be_audited_is_refused(cli: Cli, words: tuple[str, ...], said: str) -> None:
    assert said in cli("spark", "audit", *words, code=2).err
