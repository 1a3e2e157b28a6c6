"""Scenes in which what fails keeps a request from running: its own aborts, or the environment."""

from __future__ import annotations

import contextlib

from onceq.model import ops
from onceq.model.element import Charge
from tests.cli.playing import STRICT, Asked, Played
from tests.cli.stage import Stage


@contextlib.contextmanager
def held(stage: Stage) -> Played:
    eid = stage.put()
    with stage.served() as life:
        life.abort(life.claim_one("raw"), Charge.REJECT)
    yield Asked(eid=eid, reasons=("held",))


@contextlib.contextmanager
def on_hold(stage: Stage) -> Played:
    stage.qm.alter(ops.AlterQueue(queue="raw", on_failure="hold", abort_limit=1))
    eid = stage.put()
    with stage.served() as life:
        life.abort(life.claim_one("raw"), Charge.CHARGE)
    yield Asked(eid=eid, reasons=("on_hold",))


@contextlib.contextmanager
def behind_what_is_held(stage: Stage) -> Played:
    """The head of the line reached its abort limit, and its queue holds it."""
    change = ops.AlterQueue(queue=STRICT.name, on_failure="hold", abort_limit=1)
    stage.qm.alter(change)
    stage.put(STRICT)
    eid = stage.put(STRICT)
    with stage.served(STRICT.name) as life:
        life.abort(life.claim_one(STRICT.name), Charge.CHARGE)
        yield Asked(eid=eid, reasons=("head",))


@contextlib.contextmanager
def paused(stage: Stage) -> Played:
    """The environment fails ten times, with nothing done between."""
    stage.qm.alter(ops.AlterQueue(queue="raw", backoff_ms=0, backoff_max_ms=0))
    eid = stage.put()
    with stage.served() as life:
        for _ in range(10):
            life.abort(life.claim_one("raw"), Charge.ENVIRONMENT)
        later = "update {0}.queue set paused_until = now() + interval '1 hour' where name = 'raw'"
        stage.execute(later)
        yield Asked(eid=eid, reasons=("paused",))
