"""A rid that is finished and acknowledged while it is sent once more does not run again (G4)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

import onceq
from onceq.model import ops
from tests.lives import living
from tests.parts import Background, driving, install_variant, plain, wait_blocked

if TYPE_CHECKING:
    from collections.abc import Callable

RAW = onceq.Queue("raw", bytes, bytes)
STOP = "pg_advisory_xact_lock(4711)"
CHECKS = {
    "send": ("exit when eid is not null and not found and", "exit when eid is not null and"),
    "send_one": (
        "            if not found and not (may_be_spent and",
        "            if not (may_be_spent and",
    ),
    "send_many": (
        "    if exists (select from unnest",
        "    if false and exists (select from unnest",
    ),
}
"""The look into the history, and what stands there without it."""


def send_one(life: ops.Connection) -> ops.Send:
    return ops.Send(
        who=life.who,
        queue="raw",
        request=ops.Request(rid="1", body=b"x"),
        send_no=1,
        ack=[],
    )


def send_many(life: ops.Connection) -> ops.SendMany:
    return ops.SendMany(
        who=life.who,
        queue="raw",
        rids=["1"],
        bodies=[b"x"],
        send_no=1,
        ack=[],
    )


@pytest.mark.parametrize("broken", [False, True], ids=["as it is", "broken"])
@pytest.mark.parametrize(
    ("name", "op"), [("send", send_one), ("send_one", send_one), ("send_many", send_many)]
)
def test_a_rid_that_ends_while_it_is_sent_again(  # its fixtures and parameters
    qm: onceq.QueueManager,
    conninfo: str,
    repository: str,
    name: str,
    op: Callable[[ops.Connection], ops.Op[Any]],
    *,
    broken: bool,
) -> None:
    """The second send has looked at everything but the history when the first one's reply goes."""
    qm.declare(RAW)
    stop = ("    insert into onceq.element", f"    perform {STOP}; insert into onceq.element")
    lean = name == "send_one"
    with (
        driving(conninfo, repository) as driver,
        driving(conninfo, repository, lean=lean) as other,
    ):
        life = driver.perform(ops.Connect(name="till"))
        driver.perform(send_one(life))
        changes = [stop, CHECKS[name]] if broken else [stop]
        install_variant(conninfo, repository, name, *changes)
        with plain(conninfo) as gate:
            gate.execute("begin")
            gate.execute(f"select {STOP}".encode())
            sending = Background(lambda: other.perform(op(life)))
            wait_blocked(conninfo, f"{repository}.{name}")
            with living(conninfo, repository) as server:
                server.run(server.claim_one("raw"))
            driver.perform(
                ops.Acknowledge(
                    who=life.who,
                    rids=["1"],
                    ckpt=None,
                    s_rid="1",
                    s_no=1,
                )
            )
            gate.execute("commit")
        answer = sending.result()
        (sent,) = answer if isinstance(answer, list) else [answer]
        assert sent.state == ("new" if broken else "done")
        assert qm.show("raw").depth == int(broken)
