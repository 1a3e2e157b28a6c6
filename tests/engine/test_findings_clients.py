"""Spec findings 1, 2 and 3, against PostgreSQL: each cure, and what happens without it.

Each test installs a broken variant of the SQL in its own schema, and shows that the anomaly is
there; the same steps on the schema as it is show that it is not.
"""

from __future__ import annotations

import contextlib

import pytest

import onceq
from onceq.errors import Cancelled, Fenced, ReceiveTimeout, ReplyGone, RidReused
from onceq.model import ops
from onceq.model.client_state import NotSubmitted, Submitted
from onceq.model.element import KillAnswer
from tests.parts import (
    Background,
    driving,
    install_variant,
    rows,
    scalar,
    serving,
    wait_blocked,
    wait_until,
)

RAW = onceq.Queue("raw", bytes, bytes)

broken = pytest.mark.parametrize("broken", [False, True], ids=["as it is", "broken"])

ANCHOR_LOCK = "perform pg_advisory_xact_lock('onceq.registrant'::regclass::oid::integer, "
SHARED_LOCK = (
    "pg_advisory_xact_lock_shared('onceq.registrant'::regclass::oid::integer, p_registrant)"
)


def send_op(life: ops.Connection, rid: str, body: bytes = b"x") -> ops.Send:
    return ops.Send(
        who=life.who,
        queue="raw",
        request=ops.Request(rid=rid, body=body),
        send_no=life.s_no + 1,
        ack=[],
    )


@broken
def test_1_connect_waits_for_a_ghost_of_the_former_life(
    qm: onceq.QueueManager, conninfo: str, repository: str, *, broken: bool
) -> None:
    """The client died in its send; its transaction still runs in the database, and commits."""
    qm.declare(RAW)
    if broken:
        change = (f"{ANCHOR_LOCK}registrant_id);", "")
        install_variant(conninfo, repository, "connect", change)
    with driving(conninfo, repository) as ghost, contextlib.ExitStack() as stack:
        life = ghost.perform(ops.Connect(name="till"))
        ghost.connection.execute("begin")
        ghost.perform(send_op(life, "1"))
        clerk = stack.enter_context(contextlib.closing(qm.clerk("till", RAW)))
        connecting = Background(clerk.connect)
        if broken:
            connecting.result()
            assert isinstance(clerk.recover(), NotSubmitted)
        else:
            wait_blocked(conninfo, f"{repository}.connect", connecting)
        ghost.perform(ops.Commit())
        connecting.result()
        # The client was told "not submitted", and the request is there: it would run.
        assert (clerk.last_sent is None) is broken
        assert qm.show("raw").depth == 1


sends = pytest.mark.parametrize("name", ["send", "send_one"])
"""The general function, and the plain case in a clerk's own session."""


@broken
@sends
def test_1_an_older_life_has_no_effect_after_connect(
    qm: onceq.QueueManager, conninfo: str, repository: str, name: str, *, broken: bool
) -> None:
    qm.declare(RAW)
    if broken:
        install_variant(conninfo, repository, name, (" and r.epoch = p_epoch", ""))
    lean = name == "send_one"
    with driving(conninfo, repository, lean=lean) as old, qm.clerk("till", RAW) as clerk:
        life = old.perform(ops.Connect(name="till"))
        clerk.connect()
        assert isinstance(clerk.recover(), NotSubmitted)
        if broken:
            assert old.perform(send_op(life, "1")).state == "new"
        else:
            with pytest.raises(Fenced):
                old.perform(send_op(life, "1"))
        assert qm.show("raw").depth == int(broken)


@broken
@sends
def test_1_the_epoch_is_read_after_the_lock(
    qm: onceq.QueueManager, conninfo: str, repository: str, name: str, *, broken: bool
) -> None:
    """In one statement with the lock, its snapshot is older than what the lock waited for."""
    qm.declare(RAW)
    lean = name == "send_one"
    if broken:
        earlier = f"{SHARED_LOCK},\n{' ' * (12 if lean else 8)}pg_advisory", "pg_advisory"
        tables = "from onceq.registrant r" + ("\n" if lean else ", onceq.queue q\n")
        at_once = tables.replace("from", f"from (select {SHARED_LOCK} offset 0) l,")
        if lean:
            install_variant(conninfo, repository, "send_one", earlier, (tables, at_once))
        else:
            install_variant(conninfo, repository, "prepare_tagged", earlier)
            install_variant(conninfo, repository, "send", (tables, at_once))
    with (
        driving(conninfo, repository, lean=lean) as old,
        driving(conninfo, repository) as new,
    ):
        life = old.perform(ops.Connect(name="till"))
        new.connection.execute("begin")
        assert new.perform(ops.Connect(name="till")).s_rid is None
        sending = Background(lambda: old.perform(send_op(life, "1")))
        wait_blocked(conninfo, f"{repository}.send", sending)
        new.perform(ops.Commit())
        if broken:
            assert sending.result().state == "new"
        else:
            with pytest.raises(Fenced):
                sending.result()


def test_1_whatever_else_is_tagged_reads_the_epoch_after_the_lock(
    qm: onceq.QueueManager, conninfo: str, repository: str
) -> None:
    qm.declare(RAW)
    with driving(conninfo, repository) as old, driving(conninfo, repository) as new:
        life = old.perform(ops.Connect(name="till"))
        new.connection.execute("begin")
        new.perform(ops.Connect(name="till"))
        outstanding = ops.Outstanding(who=life.who)
        asking = Background(lambda: old.perform(outstanding))
        wait_blocked(conninfo, f"{repository}.outstanding", asking)
        new.perform(ops.Commit())
        with pytest.raises(Fenced):
            asking.result()


@broken
def test_2_a_kill_leaves_a_cancelled_reply(
    qm: onceq.QueueManager, conninfo: str, repository: str, *, broken: bool
) -> None:
    qm.declare(RAW)
    if broken:
        conclude = (
            "perform onceq.conclude_one(e.seq, null, 'cancelled', p_code => 'killed',\n"
            "            p_error => 'cancelled before it took effect');"
        )
        remove = "delete from onceq.element where seq = e.seq;"
        install_variant(conninfo, repository, "kill", (conclude, remove))
    with qm.clerk("till", RAW) as clerk:
        eid = clerk.send("1", b"x").eid
        assert qm.kill(eid) is KillAnswer.KILLED
    with qm.clerk("till", RAW) as recovered:
        if broken:  # it waits for ever, and knows nothing of its request any more
            recovered.send("2", b"y")
            with pytest.raises(ReceiveTimeout):
                recovered.receive(timeout_s=0.3)
            assert qm.lookup("1") == []
        else:
            reply = recovered.receive(timeout_s=60)
            with pytest.raises(Cancelled):
                _ = reply.value
            assert qm.kill(eid) is KillAnswer.KILLED
            assert len(qm.lookup("1")) == 2  # history, and the reply: exactly one


@broken
def test_3_a_lost_answer_to_disconnect_does_not_run_a_rid_twice(
    qm: onceq.QueueManager, conninfo: str, repository: str, *, broken: bool
) -> None:
    """In [BHM90 4.3] Deregister destroys all: the next connect looks new, and rid 1 runs again."""
    qm.declare(RAW)
    if broken:
        tombstone = (
            "update onceq.registrant set state = 'disconnected', epoch = epoch + 1\n"
            "        where registrant_id = p_registrant;"
        )
        destroy = (
            "delete from onceq.registration where registrant_id = p_registrant;"
            " delete from onceq.registrant where registrant_id = p_registrant;"
        )
        install_variant(conninfo, repository, "disconnect", (tombstone, destroy))
    executions: list[str] = []

    def handle(request: bytes, context: onceq.Context) -> bytes:
        executions.append(context.rid)
        return request

    with serving(conninfo, repository, RAW.handled_by(handle)):
        with qm.clerk("till", RAW) as clerk:
            clerk.transceive("1", b"pay", timeout_s=60)
            clerk.disconnect()  # and its answer is lost: the client begins again with rid 1
        with qm.clerk("till", RAW) as clerk:
            assert clerk.was_disconnected is not broken
            assert clerk.last_sent == (None if broken else "1")
            if broken:
                clerk.transceive("1", b"pay", timeout_s=60)
                assert executions == ["1", "1"]
                return
            assert clerk.send("1", b"pay").state == "done"
            with pytest.raises(ReplyGone):
                clerk.receive(timeout_s=60)
            with pytest.raises(RidReused):
                clerk.send("1", b"pay more")
            assert clerk.transceive("2", b"on", timeout_s=60).value == b"on"
    assert executions == ["1", "2"]


@broken
def test_the_last_receive_is_read_by_a_later_statement_than_the_lock(
    qm: onceq.QueueManager, conninfo: str, repository: str, *, broken: bool
) -> None:
    """`order by .. desc limit 1 for update` alone finds no row once the ghost has committed."""
    qm.declare(RAW)
    serve = serving(conninfo, repository, RAW.handled_by(lambda request, _: request))
    with serve, qm.clerk("till", RAW) as clerk:
        clerk.transceive("1", b"x", checkpoint=b"one", timeout_s=60)
        clerk.send("2", b"x")
        wait_until(lambda: bool(qm.lookup("2", state="replied")))
    if broken:
        install_variant(
            conninfo,
            repository,
            "connect",
            (f"{ANCHOR_LOCK}registrant_id);", ""),
        )
        install_variant(
            conninfo,
            repository,
            "session_tags",
            ("plpgsql stable", "plpgsql volatile"),
            ("order by r.registration_id desc limit 1;", "order by 1 desc limit 1 for update;"),
        )
    with driving(conninfo, repository) as ghost, contextlib.ExitStack() as stack:
        life = ghost.perform(ops.Connect(name="till"))
        ghost.connection.execute("begin")
        receive = ops.Receive(
            who=life.who,
            skip=["1"],
            ckpt=b"two",
            s_rid=life.s_rid,
            s_no=life.s_no,
        )
        assert [one.rid for one in ghost.perform(receive)] == ["2"]
        clerk = stack.enter_context(contextlib.closing(qm.clerk("till", RAW)))
        connecting = Background(clerk.connect)
        wait_blocked(conninfo, f"{repository}.connect")
        ghost.perform(ops.Commit())
        connecting.result()
        found = (clerk.last_received, clerk.checkpoint)
        assert found == (("1", None) if broken else ("2", b"two"))  # "1": by the send of "2"
    assert rows(conninfo, f"select rid, tag from {repository}.registration") == [("2", b"two")]


def test_a_tagged_operation_refuses_an_older_snapshot(
    qm: onceq.QueueManager, conninfo: str, repository: str
) -> None:
    qm.declare(RAW)
    with driving(conninfo, repository) as driver:
        life = driver.perform(ops.Connect(name="till"))
        driver.connection.execute("begin isolation level repeatable read")
        with pytest.raises(onceq.OnceqError, match="READ COMMITTED"):
            driver.perform(send_op(life, "1"))
        driver.perform(ops.Rollback())
    with qm.clerk("till", RAW) as clerk:
        assert isinstance(clerk.recover(), NotSubmitted)
        clerk.send("1", b"x")
        assert isinstance(clerk.recover(), Submitted)
    assert scalar(conninfo, f"select count(*) from {repository}.element") == 1
