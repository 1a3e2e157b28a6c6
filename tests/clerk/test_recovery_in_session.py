"""Recovery asked for in the session that was handed the reply: there is nothing to receive."""

from __future__ import annotations

import onceq
from onceq.engine.schema.migrate import apply_with


def test_a_reply_handed_out_without_a_checkpoint_is_done(
    conninfo: str, repository_name: str
) -> None:

    apply_with(conninfo, repository_name)
    queue = onceq.Queue("q", bytes, bytes)
    with onceq.open(conninfo, repository=repository_name) as qm:
        qm.declare(queue)
        with qm.clerk("ann", queue) as clerk:
            clerk.send("1", b"x")
            clerk.cancel_last_request()
            reply = clerk.receive(timeout_s=60)
            assert isinstance(clerk.recover(), onceq.Done)
            assert clerk.rereceive() == reply
        with qm.clerk("ann", queue) as clerk:
            assert isinstance(clerk.recover(), onceq.ReplyWaiting)
