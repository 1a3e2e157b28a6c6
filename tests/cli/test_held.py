"""`onceq error list`, its groups, and `onceq redrive`; `qm.held`, `held_groups`, `redrive_held`."""

from __future__ import annotations

import asyncio
import uuid
from dataclasses import asdict, replace
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Final

import pytest

import onceq
from onceq.engine.bind.held_binding import HELD_BINDINGS
from onceq.errors import InvalidName, InvalidValue, QueueNotFound
from onceq.manager import held as holding
from onceq.model.held import FindHeld, HeldWhere
from tests.parts import plain, rows, serving, wait_until

if TYPE_CHECKING:
    from tests.cli.parts import Cli

SHARED: Final = "shared.error"
LEFT: Final = onceq.Queue("left", bytes, bytes, abort_limit=1, error_queue=SHARED)
RIGHT: Final = onceq.Queue("right", bytes, bytes, abort_limit=1, error_queue=SHARED)
OWN: Final = onceq.Queue("own", bytes, bytes, abort_limit=1)
CODES: Final = {"KeyError": KeyError, "ValueError": ValueError, "OSError": OSError}
MENDED: Final = "mended"


def handler(request: bytes, context: onceq.Context) -> bytes:
    """Raises what the request says: a class, and a text; unless it was sent before."""
    code, _, text = request.decode().partition(" ")
    if code == MENDED or context.correlation_id is not None:
        return request
    raise CODES[code](text)


def fail(qm: onceq.QueueManager, conninfo: str, *requests: tuple[Any, str]) -> list[uuid.UUID]:
    """Has these requests fail, one after the other; their eids."""
    eids: list[uuid.UUID] = []
    for queue in (LEFT, RIGHT, OWN):
        qm.declare(queue)
    with serving(conninfo, qm.repository, *(one.handled_by(handler) for one in (LEFT, RIGHT, OWN))):
        for queue, request in requests:
            eids.append(qm.enqueue(queue, request.encode()))
            wait_until(lambda: len(qm.lookup(eid=eids[-1], state="held")) == 1)
    return eids


ALIKE: Final = (
    (LEFT, "KeyError order 17 of 0xdeadbeef"),
    (LEFT, "KeyError order 4,711.5 of 0x1F"),
    (RIGHT, "KeyError order 17 of 0xdeadbeef"),
    (LEFT, "ValueError order 17 of 0xdeadbeef"),
    (LEFT, f"KeyError order {uuid.uuid4()} of {uuid.uuid4().hex}"),
    (OWN, "OSError no room"),
)
MASKED: Final = "order # of #"


def test_what_failed_alike_is_counted_in_groups(
    cli: Cli, qm: onceq.QueueManager, conninfo: str
) -> None:
    """By the queue in which it failed, though they share an error queue; by code, and by text."""
    eids = fail(qm, conninfo, *ALIKE)
    quoted = repr(MASKED)  # as Python shows the text of a KeyError
    groups = qm.held_groups()
    found = {(one.count, one.queue, one.error_queue, one.code, one.text) for one in groups}
    assert found == {
        (3, "left", SHARED, "KeyError", quoted),
        (1, "right", SHARED, "KeyError", quoted),
        (1, "left", SHARED, "ValueError", MASKED),
        (1, "own", "own.error", "OSError", "no room"),
    }
    largest = groups[0]
    assert (largest.count, largest.eid) == (3, eids[4])
    ended = {one.eid: one.finished_at for one in qm.find(queue="left")}
    assert (largest.first_at, largest.last_at) == (ended[eids[0]], ended[eids[4]])
    lines = cli.json("error", "list", "--group").lines
    assert [(one["count"], one["eid"]) for one in lines] == [
        (one.count, str(one.eid)) for one in groups
    ]
    assert lines[0]["where"].endswith(" in handler")
    shown = cli("error", "list", "--group", "--code", "OSError").out
    assert "no room" in shown
    assert str(eids[5]) in shown
    assert "KeyError" not in shown
    assert len(cli.json("error", "list", "--group", "--limit", "2").lines) == 2


@pytest.mark.parametrize(
    ("text", "masked"),
    [
        ("17", "#"),
        ("-17.5e3", "-#e#"),
        ("2026-11-28 19:02:11", "#-#-# #"),
        ("<object at 0x7f00DEAD>", "<object at #>"),
        (str(uuid.UUID(int=2**127 + 5)), "#"),
        ("id 8f14e45fceea167a5a36dedd4bea2543", "id #"),
        ("deadbeef decade feedface", "deadbeef decade feedface"),  # words, not numbers
        ("row_12ab of t7", "row_#ab of t#"),
        ("Grüße 1.2.3", "Grüße #"),
        ("#", "#"),
        ("", ""),
    ],
)
def test_a_text_is_masked(qm: onceq.QueueManager, conninfo: str, text: str, masked: str) -> None:
    """And a masked one is masked to itself, so that it chooses its group."""
    hold(qm, conninfo, text)
    assert [one.text for one in qm.held_groups()] == [masked]
    assert [one.error for one in qm.held(text=masked)] == [text]
    assert [one.error for one in qm.held(text=text)] == [text]
    assert qm.held(text=f"{masked}!") == []


def hold(qm: onceq.QueueManager, conninfo: str, error: str) -> uuid.UUID:
    """Has an element held, without a server, and without a history that tells of it."""
    qm.declare(OWN)
    eid = qm.enqueue(OWN, b"mended")
    with plain(conninfo) as connection:
        connection.execute(
            f"select {qm.repository}.fail_element(e, 'Bad', %s, null, q.error_queue_id) "
            f"from {qm.repository}.element e join {qm.repository}.queue q using (queue_id) "
            "where eid = %s".encode(),
            (error, eid),
        )
        connection.execute(f"delete from {qm.repository}.history where eid = %s".encode(), (eid,))
    return eid


def test_what_history_forgot_counts_as_failed_when_it_was_sent(
    qm: onceq.QueueManager, conninfo: str
) -> None:
    """Its queue is known if no other has this error queue."""
    eid = hold(qm, conninfo, "it is bad")
    (held,) = qm.held()
    assert (held.queue, held.error_queue, held.failed_at) == ("own", "own.error", None)
    assert held.attempts == 0
    assert qm.held(until=held.enqueued_at) == []
    assert qm.held(since=held.enqueued_at, until=held.enqueued_at + timedelta(seconds=1)) == [held]
    qm.declare(onceq.Queue("another", bytes, bytes, error_queue="own.error"))
    assert qm.held() == [replace(held, queue=None)]
    assert qm.held(queue="own") == []
    assert [one.eid for one in qm.held(queue="own.error")] == [eid]
    (group,) = qm.held_groups()
    assert (group.queue, group.first_at, group.last_at) == (None, None, None)


def test_errors_are_chosen(cli: Cli, qm: onceq.QueueManager, conninfo: str) -> None:
    eids = fail(qm, conninfo, *ALIKE)
    moments = {one.eid: one.failed_at for one in qm.held()}
    assert [one.eid for one in qm.held()] == eids[::-1]
    third = moments[eids[2]]
    assert third is not None

    def some(**search: Any) -> list[int]:
        return sorted(eids.index(one.eid) for one in qm.held(**search))

    assert some(queue="left") == [0, 1, 3, 4]
    assert some(queue=SHARED) == [0, 1, 2, 3, 4]
    assert some(code="KeyError") == [0, 1, 2, 4]
    assert some(code="KeyError", queue="right") == [2]
    assert some(text="order 1 of 2") == [3]
    assert some(since=third) == [2, 3, 4, 5]
    assert some(until=third) == [0, 1]
    assert some(eid=eids[1]) == [1]
    assert some(registrant="ann") == []
    assert [one.eid for one in qm.held(limit=2)] == [eids[5], eids[4]]
    found = cli.json("error", "list", "--code", "KeyError", "--queue", "right").lines
    assert [one["eid"] for one in found] == [str(eids[2])]
    assert found[0]["failed_at"] is not None
    since = cli.json("error", "list", "--since", third.isoformat(), "--limit", "2").lines
    assert [one["eid"] for one in since] == [str(eids[5]), str(eids[4])]
    assert cli.json("error", "list", "--client", "ann").lines == []
    with qm.clerk("ann", OWN) as clerk, serving(conninfo, qm.repository, OWN.handled_by(handler)):
        clerk.send("1", b"OSError full")
        clerk.receive(timeout_s=60)
    (anns,) = qm.held(registrant="ann")
    assert (anns.rid, anns.registrant, anns.code) == ("1", "ann", "OSError")
    assert [one["rid"] for one in cli.json("error", "list", "--client", "ann").lines] == ["1"]


def test_a_dry_run_says_how_many_and_which_and_redrives_nothing(
    cli: Cli, qm: onceq.QueueManager, conninfo: str
) -> None:
    eids = fail(qm, conninfo, *ALIKE)
    answer = cli.json("redrive", "--code", "KeyError", "--queue", "left", "--dry-run")
    *which, how_many = answer.lines
    assert [one["eid"] for one in which] == [str(eids[at]) for at in (0, 1, 4)]
    assert (how_many["event"], how_many["count"]) == ("dry_run", 3)
    assert "3 would be redriven, and nothing was" in answer.err
    assert str(eids[1]) in cli("redrive", "--code", "KeyError", "--dry-run", "--all").out
    assert [one["eid"] for one in cli.json("redrive", str(eids[3]), "--dry-run").lines[:-1]] == [
        str(eids[3])
    ]
    dry = qm.redrive_held(dry_run=True)
    assert [one.old.eid for one in dry] == eids  # the earliest failure first
    assert {(one.eid, one.rid, one.refused) for one in dry} == {(None, None, None)}
    assert len(qm.held()) == len(eids)
    assert "0 would be redriven" in cli("redrive", "--code", "None", "--dry-run").err


def test_what_is_chosen_is_redriven_and_nothing_else(
    cli: Cli, qm: onceq.QueueManager, conninfo: str
) -> None:
    eids = fail(qm, conninfo, *ALIKE)
    words = ("--code", "KeyError", "--text", f"'{MASKED}'", "--queue", "left", "--all")
    first = cli.json("redrive", *words, "--limit", "2").lines
    assert [one["old_eid"] for one in first] == [str(eids[0]), str(eids[1])]
    assert {one.eid for one in qm.held()} == {*eids[2:]}
    (rest,) = cli.json("redrive", *words).lines
    assert rest["old_eid"] == str(eids[4])
    assert "nothing was there to redrive" in cli("redrive", *words).err
    waiting = {one.eid for one in qm.lookup(queue="left", state="queued")}
    assert waiting == {uuid.UUID(one["eid"]) for one in (*first, rest)}
    redriven = qm.redrive_held(queue=SHARED)
    assert [one.old.eid for one in redriven] == [eids[2], eids[3]]
    assert [(one.eid, one.refused) for one in redriven] == [(eids[2], None), (eids[3], None)]
    assert [one.eid for one in qm.held()] == [eids[5]]


def test_what_fails_again_meanwhile_is_not_redriven_again(
    qm: onceq.QueueManager, conninfo: str
) -> None:
    """Those that owe no reply go back as themselves, and are held again as soon as they fail."""
    eids = fail(qm, conninfo, (OWN, "OSError full"), (OWN, "OSError full"))
    with serving(conninfo, qm.repository, OWN.handled_by(handler)):
        assert len(qm.redrive_held()) == 2
        wait_until(lambda: {one.eid for one in qm.held()} == set(eids))
        ended = len(qm.find(queue="own", outcome=onceq.RequestOutcome.FAILED))
    assert ended == 4


def test_what_cannot_be_redriven_is_told_and_the_rest_is(
    cli: Cli, qm: onceq.QueueManager, conninfo: str
) -> None:
    eids = fail(qm, conninfo, (LEFT, "KeyError 1"), (RIGHT, "KeyError 1"))
    qm.destroy("left")
    answer = cli.json("redrive", "--queue", SHARED, "--all", code=1)
    assert [one["old_eid"] for one in answer.lines] == [str(eids[1])]
    assert f"{eids[0]} was not redriven: " in answer.err
    assert "does not exist any more" in answer.err
    (refused,) = qm.redrive_held()
    assert (refused.eid, refused.refused is not None) == (None, True)
    cli("redrive", str(eids[0]), code=3)


def test_an_element_that_went_meanwhile_is_told(qm: onceq.QueueManager, conninfo: str) -> None:
    (eid,) = fail(qm, conninfo, (OWN, "OSError full"))
    program = holding.redrive({"eid": eid}, dry_run=False)
    asked = next(program)
    assert isinstance(asked, FindHeld)
    assert asked.where == HeldWhere(eid=eid)
    program.send(qm.held(eid=eid))
    with pytest.raises(StopIteration) as ended:
        program.send(None)
    (one,) = ended.value.value
    assert (one.old.eid, one.eid, one.refused) == (eid, None, "it is not held any more")


@pytest.mark.parametrize(
    "words",
    [
        (),
        ("--all",),
        ("--dry-run",),
        ("--all", "--dry-run"),
        ("--code", "KeyError"),
        ("--queue", "own"),
        ("0190aaaa-0000-7000-8000-000000000000", "--all"),
        ("0190aaaa-0000-7000-8000-000000000000", "--code", "KeyError"),
        ("0190aaaa-0000-7000-8000-000000000000", "--code", "KeyError", "--dry-run"),
    ],
)
def test_too_little_or_too_much_is_refused(
    cli: Cli, qm: onceq.QueueManager, conninfo: str, words: tuple[str, ...]
) -> None:
    hold(qm, conninfo, "it is bad")
    assert "--dry-run to see it first" in cli("redrive", *words, code=2).err
    assert len(qm.held()) == 1


def test_what_is_asked_wrongly_is_refused(cli: Cli, qm: onceq.QueueManager) -> None:
    wrong: tuple[dict[str, Any], ...] = (
        {"limit": 0},
        {"limit": True},
        {"code": 7},
        {"text": "a\0b"},
        {"since": datetime.now()},  # noqa: DTZ005 # no time zone is the mistake
        {"until": "today"},
        {"eid": "7"},
        {"cod": "KeyError"},
    )
    for search in wrong:
        for call in (qm.held, qm.held_groups, qm.redrive_held):
            with pytest.raises((InvalidValue, InvalidName)):
                call(**search)
    with pytest.raises(InvalidValue, match=r"held_groups has no keyword 'cod'; 'code' was meant\?"):
        qm.held_groups(cod="KeyError")  # type: ignore[call-arg] # that is the mistake
    with pytest.raises(InvalidValue, match="dry_run is True or False"):
        qm.redrive_held(dry_run=1)  # type: ignore[arg-type] # that is the mistake
    for call in (qm.held, qm.held_groups, qm.redrive_held):
        with pytest.raises(QueueNotFound):
            call(queue="nowhere")
    cli("error", "list", "--queue", "nowhere", code=3)
    assert "is a time like" in cli("error", "list", "--group", "--since", "noon", code=2).err


def test_a_held_reply_is_shown_as_one(cli: Cli, qm: onceq.QueueManager, conninfo: str) -> None:
    """A reply whose processing failed has no code; redriven it goes back to its client."""
    qm.declare(OWN)
    with serving(conninfo, qm.repository, OWN.handled_by(handler)), qm.clerk("ann", OWN) as clerk:
        clerk.send("1", b"mended")
        wait_until(lambda: bool(qm.lookup("1", state="replied")))
        (reply,) = qm.lookup("1", state="replied")
    name = qm.repository
    with plain(conninfo) as connection:
        connection.execute(
            f"update {name}.queue set abort_limit = 1 where name = %s".encode(), (reply.queue,)
        )
        connection.execute(
            f"select {name}.abort_reply(e, null, null) from {name}.element e "
            "where eid = %s".encode(),
            (reply.eid,),
        )
    (held,) = qm.held()
    assert (held.is_reply, held.code, held.attempts, held.registrant) == (True, None, 1, "ann")
    assert held.queue == reply.queue
    (group,) = cli.json("error", "list", "--group").lines
    assert (group["code"], group["text"], group["where"]) == (None, None, None)
    (redriven,) = qm.redrive_held(registrant="ann")
    assert redriven.eid == reply.eid
    assert [one.state for one in qm.lookup("1") if one.role == "reply"] == ["replied"]


def test_async_says_the_same(qm: onceq.QueueManager, conninfo: str) -> None:
    eids = fail(qm, conninfo, *ALIKE)

    async def asked() -> tuple[Any, ...]:
        async with await onceq.open_async(conninfo, repository=qm.repository) as there:
            found = await there.held(code="KeyError")
            groups = await there.held_groups(limit=10)
            dry = await there.redrive_held(code="OSError", dry_run=True)
            return found, groups, dry, await there.redrive_held(code="OSError")

    held, groups = qm.held(code="KeyError"), qm.held_groups(limit=10)
    found = asyncio.run(asked())
    assert found[:2] == (held, groups)
    assert [asdict(one.old)["eid"] for one in found[2]] == [eids[5]]
    assert [(one.old.eid, one.eid) for one in found[3]] == [(eids[5], eids[5])]
    assert qm.held(code="OSError") == []


def test_few_are_found_by_the_index_of_their_queues(qm: onceq.QueueManager, conninfo: str) -> None:
    """What waits is not read: 20,000 elements wait, and one is held."""
    hold(qm, conninfo, "it is bad")
    qm.enqueue_many(OWN, [b"x"] * 20_000)
    op = FindHeld(where=HeldWhere(), limit=100)
    binding = HELD_BINDINGS[FindHeld]
    with plain(conninfo) as connection:
        connection.execute(f"analyze {qm.repository}.element".encode())
        text = f"explain (analyze, buffers, format json) {binding.text(qm.repository)}"
        ((plan,),) = connection.execute(text.encode(), binding.arguments(op)).fetchall()
    assert plan[0]["Plan"]["Actual Rows"] == 1
    assert plan[0]["Plan"]["Shared Hit Blocks"] + plan[0]["Plan"]["Shared Read Blocks"] < 200
    assert rows(conninfo, f"select count(*) from {qm.repository}.element") == [(20_001,)]
