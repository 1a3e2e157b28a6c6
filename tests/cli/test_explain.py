"""`onceq explain` and `qm.explain`: a scene for each reason why a request does not run."""

from __future__ import annotations

import asyncio
import os
import re
import uuid
from typing import TYPE_CHECKING, Any, Final

import pytest

import onceq
from onceq.engine.bind.binding import BINDINGS
from onceq.errors import InvalidName, InvalidValue
from onceq.model import admin_ops, ops
from onceq.model.reasons import NEXT, NO_ELEMENT, WHYS
from tests.cli.playing import STRICT
from tests.cli.scenes import SCENES, VOLATILE
from tests.cli.stage import RAW, Stage
from tests.parts import function_text, plain, scalar, serving, wait_until

if TYPE_CHECKING:
    from pathlib import Path

    from tests.cli.parts import Cli


@pytest.fixture
def stage(qm: onceq.QueueManager, conninfo: str, cli: Cli, tmp_path: Path) -> Stage:
    for queue in (RAW, STRICT, VOLATILE):
        qm.declare(queue)
    return Stage(qm, conninfo, cli, tmp_path)


@pytest.mark.parametrize("name", SCENES)
def test_each_reason_is_found(stage: Stage, name: str) -> None:
    """By Python and by the command, as JSON and for people."""
    with SCENES[name](stage) as asked:
        found = asked.explained(stage.qm)
        assert tuple(one.name for one in found.reasons) == asked.reasons
        assert found.answer is not None
        assert found.answer.name == name.partition(",")[0]
        code = 0 if found.state is not None else 3
        row = stage.cli.json("explain", *asked.words, code=code).item
        assert [one["name"] for one in row["reasons"]] == list(asked.reasons)
        assert row["answer"] == asked.reasons[0]
        said = stage.cli("explain", *asked.words, code=code).out
        assert re.search(rf"^1\. {found.answer.name}: .*\n   -> .", said, re.MULTILINE), said


def test_each_row_of_the_table_has_a_scene() -> None:
    names = [why.name for why in (*WHYS, NEXT, NO_ELEMENT)]
    assert len(set(names)) == len(names)
    assert {name.partition(",")[0] for name in SCENES} == set(names)


CLAIM: Final = (
    *("claim", "claim_one", "claim_next", "claim_many", "claim_suspects", "claim_in_order"),
    *("claim_eid", "may_claim_suspect", "dismiss", "lanes_in_turn", "spark_pick", "spark_suspect"),
    *("spark_sound", "relay_pick"),
)
"""The functions that decide what is claimed."""
CONDITIONS: Final = {
    "dequeue_started": {"stopped"},
    "paused_until": {"paused"},
    "ordered": {"head", "line"},
    "kind": {"rival"},
    "lanes": {"hidden", "before"},
    "low": {"hidden"},
    "lane": {"suspect", "rival", "line"},
    "turn": {"back_off", "full", "not_before", "before"},
    "not_before": {"back_off", "full", "not_before"},
    "claimed_by": {"runs", "server_gone", "verdict", "dequeued", "spark", "planned", "orphaned"},
    "life": {"lost"},
    "expires_at": {"expired"},
    "role": {"held", "on_hold"},
    "together": {"suspect"},
    "charges": {"rival", "verdict"},
    "ran_alone": {"suspect"},
    "due_first": {"before"},
}
"""The columns that a claim decides by, and the reasons that say so. `skip locked` is `locked`."""
NOT_CONDITIONS: Final = frozenset(
    """
    aborts body code content_type correlation_id eid enqueued_at error outcome priority properties
    registrant_id reply_queue_id rid send_no sha256 seq queue_id keep_body name
    server_id slot incarnation ring
    """.split()  # noqa: SIM905 - a list of words reads best as one
)
"""Columns that a claim gives out, finds rows by, or writes."""


def test_each_condition_of_a_claim_has_a_reason(conninfo: str, repository: str) -> None:
    """A claim that decides by another column needs a row and a scene."""
    text = " ".join(re.sub(r"--[^\n]*", "", function_text(name)) for name in CLAIM)
    tables = ["element", "queue", "server", "spark_server", "begun"]
    columns = scalar(
        conninfo,
        "select array_agg(distinct column_name::text) from information_schema.columns"
        " where table_schema = %s and table_name = any (%s)",
        *(repository, tables),
    )
    used = {one for one in columns if re.search(rf"\b{one}\b", text)}
    assert used - NOT_CONDITIONS == set(CONDITIONS)
    assert set().union(*CONDITIONS.values()) | {"locked"} <= {why.name for why in WHYS}
    assert "skip locked" in text


def test_the_life_of_a_request_is_told(stage: Stage, conninfo: str) -> None:
    qm = stage.qm
    fails = onceq.Queue("fails", bytes, bytes, abort_limit=2, backoff_ms=1)

    def handle(request: bytes, context: onceq.Context) -> bytes:
        if request == b"bad" and context.correlation_id is None:
            raise ValueError("it is bad")
        return request

    qm.declare(fails)

    def steps(rid: str) -> list[str]:
        found = qm.explain("till", rid)
        times = [one.at for one in found.life if one.at is not None]
        assert times == sorted(times)
        return [one.name for one in found.life]

    handled = (fails.handled_by(handle), RAW.handled_by(handle))
    with serving(conninfo, qm.repository, *handled), qm.clerk("till", fails, window=3) as clerk:
        bad = clerk.send("bad", b"bad").eid
        clerk.send("good", b"good")
        for rid in ("bad", "good"):
            assert clerk.receive(rid=rid, timeout_s=60) is not None
        failed = ["sent", "aborted", "aborted", "failed", "replied", "held"]
        assert steps("bad") == failed
        assert steps("good") == ["sent", "claimed", "finished", "replied"]
        found = qm.explain("till", "good")
        assert (found.state, found.queue, found.answer) == ("replied", "fails", None)
        assert f"by process {os.getpid()} on " in found.life[1].words
        assert "abort 2, charge: ValueError: it is bad" in qm.explain("till", "bad").life[2].words
        clerk.acknowledge(clerk.unacknowledged)
        assert steps("good") == ["sent", "claimed", "finished", "collected"]
        assert qm.explain("till", "bad").answer.name == "held"  # type: ignore[union-attr] # it fails
        again = qm.redrive(bad)
        assert again is not None
        wait_until(lambda: qm.explain(eid=again[0]).state == "finished")
        assert steps("bad") == [*failed[:4], "collected", "redriven"]
    with qm.clerk("till", RAW, window=3) as clerk:
        qm.kill(clerk.send("killed", b"x").eid)
        assert steps("killed") == ["sent", "killed", "replied"]
        reply = qm.lookup("killed", state="replied")[0].eid
        assert qm.explain(eid=reply) == qm.explain("till", "killed")
    words = stage.cli("explain", "till", "bad").out.splitlines()
    assert words[0] == f"request bad of till: finished, queue fails, eid {bad}"
    assert re.search(r"^  20\d\d-.*  sent +to queue fails$", words[1])


def test_the_head_of_a_line_is_named_and_explained(stage: Stage) -> None:
    with SCENES["head"](stage) as asked:
        (reason,) = asked.explained(stage.qm).reasons
    assert "first is before it, as it began and has not ended; of that one: " in reason.words
    assert "back-off after abort 1, until 20" in reason.words


def test_what_stands_before_is_counted_to_a_thousand(stage: Stage) -> None:
    qm = stage.qm
    qm.enqueue_many(RAW, [b"x"] * 999)
    found = qm.explain(eid=stage.put())
    assert found.reasons[-1].words.startswith("999 of queue raw come before it")
    found = qm.explain(eid=stage.put())
    assert "at least 1,000 of queue raw come before it" in found.reasons[-1].words


def test_it_costs_the_same_however_much_waits(stage: Stage, conninfo: str) -> None:
    """Pages read by its questions, of which each is answered by keys or by an index."""
    qm = stage.qm
    with qm.clerk("till", RAW) as clerk:
        clerk.send("1", b"x", priority=0)
    eid = qm.explain("till", "1").eid
    qm.enqueue_many(RAW, [b"x"] * 2_000)
    texts = {kind.__name__: BINDINGS[kind].text(qm.repository) for kind in QUESTIONS}
    given: dict[str, tuple[Any, ...]]
    given = {kind.__name__: (eid,) if kind in BY_EID else ("till", "1") for kind in QUESTIONS}
    given["ListSessions"] = ()
    given["LookUp"] = (None, eid, None, None, None, 100)

    def pages() -> dict[str, int]:
        stage.execute("vacuum analyze {0}.element")
        with plain(conninfo) as connection:
            _, found = [  # the first reads the catalog too
                {name: pages_of(connection, texts[name], given[name]) for name in texts}
                for _ in range(2)
            ]
        return found

    few = pages()
    for _ in range(10):
        qm.enqueue_many(RAW, [b"x"] * 4_000)
    assert {name: n for name, n in pages().items() if n > few[name] + 30} == {}


QUESTIONS: Final = (
    *(admin_ops.EidsOf, admin_ops.UnknownRid, admin_ops.Examine, admin_ops.ListSessions),
    *(ops.LookUp, ops.ListAttempts),
)
BY_EID: Final = (admin_ops.Examine, ops.ListAttempts)


def pages_of(connection: Any, text: str, given: tuple[Any, ...]) -> int:
    """Returns how many pages a question reads."""
    explained = f"explain (analyze, buffers, format json) {text}".encode()
    ((plan,),) = connection.execute(explained, given).fetchall()
    return int(plan[0]["Plan"]["Shared Hit Blocks"] + plan[0]["Plan"]["Shared Read Blocks"])


def test_what_is_asked_wrongly_is_refused(stage: Stage) -> None:
    qm, wrong = stage.qm, "a client's name and a rid, or an eid alone"
    some: tuple[dict[str, Any], ...] = (
        {},
        {"registrant": "till"},
        {"rid": "1"},
        {"rid": "1", "eid": uuid.uuid4()},
    )
    for asked in some:
        with pytest.raises(InvalidValue, match=wrong):
            qm.explain(**asked)
    with pytest.raises(InvalidName):
        qm.explain("till", "")
    assert "is no eid: give the client and the RID" in stage.cli("explain", "till", code=2).err
    with qm.clerk("till", RAW, thread="a") as a, qm.clerk("till", RAW, thread="b") as b:
        a.send("1", b"x")
        eid = b.send("1", b"x").eid
    with pytest.raises(InvalidValue, match=rf"{eid} \(thread 'b'\)"):
        qm.explain("till", "1")
    assert qm.explain(eid=eid).thread == "b"


async def ask(conninfo: str, repository: str) -> onceq.Explanation:
    async with onceq.open_async(conninfo, repository=repository) as qm:
        return await qm.explain("till", "1", archive=True)


def test_an_async_manager_explains_the_same(stage: Stage, conninfo: str) -> None:
    with stage.qm.clerk("till", RAW) as clerk:
        clerk.send("1", b"x")
    found = asyncio.run(ask(conninfo, stage.qm.repository))
    assert found == stage.qm.explain("till", "1")
    assert isinstance(found.answer, onceq.Reason)
    assert isinstance(found.life[0], onceq.Step)
