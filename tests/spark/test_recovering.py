"""Bulk recovery: it says of each client what that client's own clerk says, and what is stuck."""

from __future__ import annotations

import contextlib
import csv
import itertools
import sqlite3
import uuid
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

import onceq
from onceq import errors
from onceq.clerk.ledger.sqlite import TABLE, VERSION
from onceq.engine.perform.spark_driver import Route, spark_driver
from onceq.model import ops
from onceq.model.client_state import STATES
from onceq.model.ledger import Entry, LastRequest, Owner, encode_entry
from onceq.spark.archive.sessions import SPARK_FAILED
from onceq.spark.pipelines import archive, recovery
from onceq.spark.recover.recovering import conclude
from proof.harness.ledger import ask
from tests.cli.parts import Cli
from tests.parts import serving, wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

    from onceq.engine.perform.spark_driver import SparkDriver

RAW = onceq.Queue("raw", bytes, bytes, abort_limit=1)
RIDS = (None, "1", "2")
ENTRIES = [
    Entry(
        last_request=None if last is None else LastRequest(rid=last),
        last_enqueued=enqueued,
        last_dequeued=dequeued,
    )
    for last, enqueued, dequeued in itertools.product(RIDS, RIDS, RIDS)
]
SITUATIONS = {
    "unknown": ("", "", ""),
    "new": ("connect", "", ""),
    "1 queued": ("connect", "", "send_1"),
    "1 replied": ("connect send_1", "", ""),
    "1 received": ("connect send_1", "receive", ""),
    "1 done": ("connect send_1", "receive acknowledge", ""),
    "1 done, trimmed": ("connect send_1", "receive acknowledge", ""),
    "1 done, 2 queued": ("connect send_1", "receive acknowledge", "send_2"),
    "1 done, 2 replied": ("connect send_1", "receive acknowledge send_2", ""),
    "1 queued, 2 replied": ("connect send_2", "", "send_1"),
    "ended": ("connect send_1", "receive acknowledge end", ""),
}
"""What a client does in each of three rounds; after the first and the second all is served.

Trimmed: history has nothing of it any more.
"""
TWO = "1 queued, 2 replied"
LEDGERS = "registrant string, last_request string, last_enqueued string, last_dequeued string"
LETTERS = {kind: letter for letter, (kind, _) in STATES.items()}
TRIM = """
delete from {r}.history h using {r}.registrant a
    where a.registrant_id = h.registrant_id and a.name like '%trimmed%'
"""
LEFT = "select count(*) from {}.element where role = 'request'"


def serve(request: bytes, _: onceq.Context) -> bytes:
    """Fails what is bad."""
    if request == b"bad":
        raise ValueError("it is bad")
    return request


class Client:
    """A client, in one of the situations, which its name says."""

    def __init__(self, driver: SparkDriver, situation: str, number: int) -> None:
        self.name = f"{situation} / {number:02}"
        self.situation = situation
        self._driver = driver
        self._sent = 0
        self._who = ops.Identity(registrant_id=0, epoch=0)

    def connect(self) -> None:
        life = self._driver.perform(ops.Connect(name=self.name))
        self._who = life.who

    def send_1(self) -> None:
        self._send("1")

    def send_2(self) -> None:
        self._send("2")

    def _send(self, rid: str) -> None:
        self._sent += 1
        request = ops.Request(rid=rid, body=b"x")
        sending: dict[str, Any] = {"queue": RAW.name, "send_no": self._sent, "ack": []}
        self._driver.perform(ops.Send(who=self._who, request=request, **sending))

    def receive(self) -> None:
        which: dict[str, Any] = {"rid": "1", "skip": [], "limit": 1, "ckpt": b"c"}
        op = ops.Receive(who=self._who, s_rid="1", s_no=self._sent, **which)
        assert self._driver.perform(op)

    def acknowledge(self) -> None:
        op = ops.Acknowledge(who=self._who, rids=["1"], ckpt=b"d", s_rid="1", s_no=self._sent)
        assert self._driver.perform(op) == 1

    def end(self) -> None:
        last: dict[str, Any] = {"r_rid": "1", "ckpt": b"d", "s_rid": "1", "s_no": self._sent}
        self._driver.perform(ops.Disconnect(who=self._who, received=[], **last))


def serve_all(url: str, repository: str) -> None:
    with serving(url, repository, RAW.handled_by(serve, batch=500)):
        wait_until(lambda: ask(url, LEFT.format(repository)) == [(0,)], 200)


def make_clients(driver: SparkDriver, url: str, repository: str) -> list[Client]:
    """Brings a client for each entry, and one without a ledger, into each of the situations."""
    numbers = range(len(ENTRIES) + 1)
    clients = [Client(driver, one, number) for one in SITUATIONS for number in numbers]
    for turn in range(3):
        for client in clients:
            for step in SITUATIONS[client.situation][turn].split():
                getattr(client, step)()
        if turn < 2:
            serve_all(url, repository)
    ask(url, TRIM.format(r=repository))
    return clients


@pytest.fixture
def driver(onceq_url: str, qm: onceq.QueueManager) -> Iterator[SparkDriver]:
    qm.declare(RAW)
    route = Route(url="", conninfo=onceq_url, repository=qm.repository)
    with spark_driver(route) as driver:
        yield driver


def owner(driver: SparkDriver, repository: str, name: str) -> Owner:
    (((found,),),) = driver.rows("select repository_id from {schema}.repository", [], 1)
    return Owner(repository=repository, repository_id=found, registrant=name, thread="")


def row(name: str, entry: Entry) -> tuple[str | None, ...]:
    last = None if entry.last_request is None else entry.last_request.rid
    return (name, last, entry.last_enqueued, entry.last_dequeued)


def table(spark: SparkSession, rows: list[Any], schema: str = LEDGERS) -> DataFrame:
    found: DataFrame = spark.createDataFrame(rows, schema)
    return found


@pytest.mark.timeout(600)
def test_bulk_recovery_says_what_each_clerk_says(
    spark: SparkSession,
    driver: SparkDriver,
    qm: onceq.QueueManager,
    onceq_url: str,
    tmp_path: Path,
) -> None:
    """In each situation of a client, with each ledger that it could have, and with none."""
    clients = make_clients(driver, onceq_url, qm.repository)
    entries = dict(zip((one.name for one in clients), itertools.cycle([*ENTRIES, None])))
    given = [row(name, entry) for name, entry in entries.items() if entry is not None]
    with recovery(spark, table(spark, given), onceq_url, repository=qm.repository) as found:
        said = {one["registrant"]: one for one in found.clients.collect()}
    assert said.keys() == {name for name, one in entries.items() if one or "unknown" not in name}
    whose = owner(driver, qm.repository, "")
    for number, (name, entry) in enumerate(entries.items()):
        if name not in said or (entry is not None and name.startswith(TWO)):
            continue  # a clerk with a ledger has one request at a time
        how: dict[str, Any] = {"window": 2}
        if entry is not None:
            how["window"] = 1
            how["ledger"] = onceq.SqliteLedger(tmp_path / f"{number}.ledger")
            write_ledger(how["ledger"].path, whose, name, entry)
        with qm.clerk(name, RAW, **how) as clerk:
            answer = clerk.recover()
        one = said[name]
        ckpt = None if one["ckpt"] is None else bytes(one["ckpt"])
        told = (LETTERS[type(answer)], answer.rid, answer.ckpt, answer.next_step)
        assert (one["state"], one["rid"], ckpt, one["next_step"]) == told, (name, entry, answer)
        assert answer.rests_on.startswith(one["rests_on"]), (name, entry)
        assert one["has_ledger"] is (entry is not None)
    assert {one["state"] for one in said.values()} == set("ABCDE")


def write_ledger(path: Path, whose: Owner, name: str, entry: Entry) -> None:
    mine = msgspec.structs.replace(whose, registrant=name)
    with contextlib.closing(sqlite3.connect(path)) as connection:
        connection.execute(TABLE)
        values = (1, VERSION, msgspec.json.encode(mine).decode(), "", *encode_entry(entry))
        connection.execute("insert into onceq_ledger values (?, ?, ?, ?, ?, ?)", values)
        connection.commit()


@pytest.mark.parametrize(
    ("states", "letter"), [(["queued", "finished"], "B"), (["replied", "finished"], "C")]
)
def test_what_moves_while_it_is_read_is_where_the_queues_had_it(
    states: list[str], letter: str
) -> None:
    """They are read before history, which may have it too by then."""
    names = ("registrant", "thread", "was", "s_rid", "s_state", "r_rid", "ckpt", "outstanding")
    ledger = {"is_torn": False, "last_request": "1", "last_enqueued": "1", "last_dequeued": None}
    found = [{"rid": "1", "state": state} for state in states]
    seen = {**dict.fromkeys(names), **ledger, "s_rid": "1", "s_state": "request", "found": found}
    assert conclude(seen)["state"] == letter


def only(spark: SparkSession, url: str, repository: str, *rows: Any) -> Any:
    """Returns what is said of the one client there is."""
    with recovery(spark, table(spark, list(rows)), url, repository=repository) as found:
        (one,) = found.clients.collect()
        return one


def test_a_request_in_the_archive_alone_is_done(
    spark: SparkSession, driver: SparkDriver, qm: onceq.QueueManager, onceq_url: str, tmp_path: Path
) -> None:
    client = Client(driver, "1 done", 1)
    for step in ("connect", "send_1", "", "receive", "acknowledge", "send_2"):
        if step:
            getattr(client, step)()
        else:
            serve_all(onceq_url, qm.repository)
    where: dict[str, Any] = {"repository": qm.repository, "spark": spark}
    archive(tmp_path / "archive", onceq_url, keep_days=0, **where)
    archive(tmp_path / "archive", onceq_url, keep_days=0, **where)
    ask(onceq_url, f"delete from {qm.repository}.registration")
    assert ask(onceq_url, f"select 1 from {qm.repository}.history") == [(1,)]
    ask(onceq_url, f"delete from {qm.repository}.history")  # as a later run trims it
    before = (client.name, "2", "2", "1")
    assert only(spark, onceq_url, qm.repository, before)["state"] == "B"
    lost = only(spark, onceq_url, qm.repository, (client.name, "2", "2", "0"))
    assert (lost["state"], lost["next_step"]) == ("E", STATES["E"][1])
    assert "'0' as sent" in lost["rests_on"]


def test_ledgers_as_they_are_kept_are_read(
    spark: SparkSession, driver: SparkDriver, qm: onceq.QueueManager, onceq_url: str
) -> None:
    whose = owner(driver, qm.repository, "ann")
    entry = encode_entry(Entry(last_request=LastRequest(rid="7")))
    schema = "owner string, entry string, digest string"

    def said(owner: Owner, text: str, digest: str) -> Any:
        rows = table(spark, [(msgspec.json.encode(owner).decode(), text, digest)], schema)
        with recovery(spark, rows, onceq_url, repository=qm.repository) as found:
            (one,) = found.clients.collect()
            return one

    assert (said(whose, *entry)["state"], said(whose, *entry)["rid"]) == ("A", "7")
    torn = said(whose, entry[0].replace("7", "8"), entry[1])
    assert (torn["state"], torn["has_ledger"]) == ("A", False)
    assert torn["rests_on"].startswith("the ledger is torn or corrupt")
    other = msgspec.structs.replace(whose, repository_id=uuid.uuid4())
    with pytest.raises(SPARK_FAILED, match="leave it out"):
        said(other, *entry)


def test_ledgers_that_cannot_be_are_refused(
    spark: SparkSession, qm: onceq.QueueManager, onceq_url: str
) -> None:
    entry = ("ann", "1", None, None)
    with pytest.raises(errors.InvalidValue, match="2 ledgers of client 'ann'"):
        only(spark, onceq_url, qm.repository, entry, entry)
    wrong = table(spark, [("ann",)], "client string")
    with (
        pytest.raises(errors.InvalidValue, match="no column 'registrant'"),
        recovery(spark, wrong, onceq_url, repository=qm.repository),
    ):
        pass


AGES = """
update {r}.element set enqueued_at = now() - interval '2 h', lane = case rid
    when 'suspect' then 11 /* suspect */ else lane end,
    claimed_by = case when rid = 'claimed' then 7 end
    where rid not like '%now%';
"""


def test_what_is_stuck_is_listed_with_its_reason(
    spark: SparkSession, qm: onceq.QueueManager, onceq_url: str
) -> None:
    qm.declare(RAW)
    with qm.clerk("till", RAW, window=9) as clerk:
        clerk.send("held", b"bad")
        clerk.send("replied", b"x")
        clerk.send("replied now", b"x")
        serve_all(onceq_url, qm.repository)
        for rid in ("waiting", "waiting now", "claimed", "suspect"):
            clerk.send(rid, b"x")
    qm.enqueue(RAW, b"x", rid="datagram")
    ask(onceq_url, AGES.format(r=qm.repository))
    reasons = {
        ("held", "failed"): "held in an error queue",
        ("held", "reply"): "reply not collected",
        ("replied", "reply"): "reply not collected",
        ("waiting", "request"): "waiting for long",
        ("datagram", "datagram"): "waiting for long",
        ("claimed", "request"): "executing for long",
        ("suspect", "request"): "suspect",
    }
    with recovery(spark, None, onceq_url, repository=qm.repository) as found:
        stuck = found.stuck.collect()
        (client,) = found.clients.collect()
    assert {(one["rid"], one["role"]): one["reason"] for one in stuck} == reasons
    assert {one["registrant"] for one in stuck} == {"till", None}
    assert all(7200 <= one["waited_s"] < 9000 for one in stuck)
    assert (client["outstanding"], client["state"]) == (7, "B")


def test_the_command_writes_both_tables(
    spark: SparkSession,
    driver: SparkDriver,
    qm: onceq.QueueManager,
    onceq_url: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(spark, "stop", lambda: None)
    client = Client(driver, "1 received", 1)
    client.connect()
    client.send_1()
    serve_all(onceq_url, qm.repository)
    client.receive()
    cli = Cli(onceq_url, qm.repository)
    ledgers = tmp_path / "ledgers.csv"
    ledgers.write_text(f"registrant,last_request,last_enqueued,last_dequeued\n{client.name},1,1,\n")
    words = ("spark", "recover", str(tmp_path / "out"), "--ledgers", str(ledgers))
    found = cli.json(*words, "--stuck-after", "0").item
    assert (found["clients"], found["stuck"]) == ({"C": 1}, {"reply not collected": 1})
    assert spark.read.parquet(str(tmp_path / "out" / "clients")).collect()[0]["ckpt"] == b"c"
    assert "there already" in cli(*words, code=2).err
    lost = Entry(last_request=LastRequest(rid="9"), last_enqueued="9")
    whose = msgspec.json.encode(owner(driver, qm.repository, "bob")).decode()
    with ledgers.open("w", newline="") as file:
        csv.writer(file).writerows([("owner", "entry", "digest"), (whose, *encode_entry(lost))])
    as_csv = (*words[:2], str(tmp_path / "csv"), *words[3:], "--format", "csv")
    assert "1 client(s) in state E" in cli(*as_csv, code=1).err
    lines = [one.read_text() for one in (tmp_path / "csv" / "clients").glob("*.csv")]
    assert any('bob,"",E,9,' in one for one in lines)
    assert any(",Yw==," in one for one in lines)
    for wrong, code in ((("--format", "xml"), 2), (("--ledgers", "x.doc"), 2)):
        cli(*words[:2], str(tmp_path / "new"), *wrong, code=code)
    cli(*words[:2], str(tmp_path / "new"), "--ledgers", "nowhere.csv", code=3)
