"""A repository of 0.1.0 that has elements wherever they can be is upgraded in its place (R, G1)."""

from __future__ import annotations

import time
from uuid import UUID, uuid4

import psycopg
import pytest

import onceq
from onceq.engine.schema import migrate
from onceq.model import ops
from tests.parts import LIMIT_S, driving, rows, scalar, serving, wait_until
from tests.upgrade.former import make_former

RAW = onceq.Queue("raw", bytes, bytes, abort_limit=2, backoff_ms=1)
DEAD = uuid4()
BIG = ("element", "history", "attempt", "registrant", "registration", "queue")
"""The tables that a migration must not rewrite: they may be large, or are locked by all."""
REQUESTS = (
    *("done", "failed", "cancelled", "returned", "suspect", "started", "claimed", "waiting"),
    *("later", "expired"),
)
MADE = "select from {r}.create_queue('raw', true, 2, 1, 60000, 3600, 1048576, 65536, false, null)"
SENT = """
select eid from {r}.send(%s, %s, 'raw', %s, %s, %s, null, 5::smallint,
    case when %s = 'later' then now() + interval '1 hour' end,
    case when %s = 'expired' then now() + interval '1 second' end,
    'application/octet-stream', null, false, false, 20)
"""
CLAIMED = """
update {r}.element set claimed_by = %s where rid = any (%s) and role = 'request' returning seq, rid
"""


class Former:
    """The functions of 0.1.0, by which a client, and a server that dies, do their work."""

    def __init__(self, conninfo: str, repository: str) -> None:
        self._connection = psycopg.connect(conninfo, autocommit=True)
        self._repository = repository
        self.eids: dict[str, UUID] = {}

    def ask(self, query: str, *parameters: object) -> list[tuple[object, ...]]:
        text = query.replace("{r}", self._repository)
        cursor = self._connection.execute(text.encode(), parameters or None)
        return cursor.fetchall() if cursor.description else []

    def close(self) -> None:
        self._connection.close()

    def send_all(self) -> None:
        """Sends one request for each place."""
        self.ask(MADE)
        connected = "select registrant_id, epoch from {r}.connect('till', '', 20)"
        ((registrant, epoch),) = self.ask(connected)
        for number, rid in enumerate(REQUESTS, 1):
            said = (registrant, epoch, rid, rid.encode(), number, rid, rid)
            ((eid,),) = self.ask(SENT, *said)
            assert isinstance(eid, UUID)
            self.eids[rid] = eid

    def serve_some(self) -> None:
        """Brings each to its place, and dies with two in hand, of which it had started one."""
        opened = "select slot, incarnation from {r}.open_incarnation(%s, 'there', 1, null)"
        ((slot, incarnation),) = self.ask(opened, DEAD)
        held = ["done", "failed", "returned", "suspect", "started", "claimed"]
        seqs = {rid: seq for seq, rid in self.ask(CLAIMED, incarnation, held)}
        ended = "select from {r}.abort(%s, %s, %s, 'Bad', 'as the test says')"
        self.ask(ended, seqs["failed"], incarnation, "reject")
        self.ask(ended, seqs["returned"], incarnation, "charge")
        self.ask(ended, seqs["suspect"], incarnation, "suspect")
        self.ask("select from {r}.kill(%s, 1)", self.eids["cancelled"])
        with self._connection.transaction():
            self.ask("select set_config('onceq_setting.token', 'test', true)")
            finished = (
                "select from {r}.finish(array[%s::bigint], %s, array[%s::bytea], null, 'test', 1,"
                " true, 1, 0, 1, true, %s, null, false)"
            )
            self.ask(finished, seqs["done"], incarnation, b"reply to done", slot)
        self.ask(f"select setval('{{r}}.started_{slot}', %s)", seqs["started"])


@pytest.fixture
def former(conninfo: str, repository_name: str) -> Former:
    make_former(conninfo, repository_name, "0.1.0")
    made = Former(conninfo, repository_name)
    made.send_all()
    made.serve_some()
    made.close()
    return made


def test_elements_in_every_place_go_on_where_they_were(
    conninfo: str, repository_name: str, former: Former
) -> None:
    repository = repository_name
    before = filenodes(conninfo, repository)
    places = f"select rid, role::text, lane, aborts from {repository}.element order by seq"
    stood = rows(conninfo, places)
    assert len(stood) == len(REQUESTS) + 1, "with the failed one in its error queue"
    ended = f"select eid, outcome::text, reply from {repository}.history order by eid"
    past = rows(conninfo, ended)
    assert migrate.apply_with(conninfo, repository)
    assert filenodes(conninfo, repository) == before, "no large table is rewritten"
    assert (rows(conninfo, places), rows(conninfo, ended)) == (stood, past)
    with driving(conninfo, repository) as driver:
        driver.perform(ops.TakeOver(process=uuid4()))
        assert driver.perform(ops.Judge(process=DEAD, verdict=ops.Verdict.ENDED))
    handled = RAW.handled_by(lambda body, _: b"reply to " + body)
    with onceq.open(conninfo, repository=repository) as queues:
        assert [one.rid for one in queues.lookup(state="held")] == ["failed"]
        time.sleep(1)  # what expires in a second has expired
        with queues.clerk("till", RAW, window=20) as clerk, serving(conninfo, repository, handled):
            clerk.connect()
            assert sorted(clerk.outstanding) == sorted(REQUESTS)
            received = [clerk.receive(timeout_s=LIMIT_S) for _ in REQUESTS[1:]]
            replies = {one.rid: one for one in received}
            assert set(replies) == {*REQUESTS} - {"later"}
            outcomes = {rid: one.outcome.value for rid, one in replies.items()}
            other = {"failed": "failed", "cancelled": "cancelled", "expired": "expired"}
            assert outcomes == dict.fromkeys(replies, "done") | other
            assert replies["done"].body == b"reply to done"
            charges = {
                rid: [one.charge.value for one in queues.attempts(eid)]
                for rid, eid in former.eids.items()
            }
            wanted = {"failed": ["reject"], "returned": ["charge"], "suspect": ["suspect"]}
            wanted |= {"started": ["charge"]}
            assert {rid: found for rid, found in charges.items() if found} == wanted
            assert queues.kill(former.eids["later"]).value == "KILLED"
            assert clerk.receive(timeout_s=LIMIT_S).rid == "later"
            clerk.acknowledge([*REQUESTS])
        assert queues.redrive(former.eids["failed"]) is not None
        with serving(conninfo, repository, handled):
            wait_until(lambda: queues.show("raw").depth == 0)
    assert scalar(conninfo, f"select count(*) from {repository}.element") == 0


def filenodes(conninfo: str, repository: str) -> dict[str, int]:
    """Returns the file of each large table: a rewrite makes another."""
    query = (
        "select relname, pg_relation_filenode(oid) from pg_class"
        " where relnamespace::regnamespace::text = %s"
    )
    found = dict(rows(conninfo, query, repository))
    return {name: found[name] for name in BIG}
