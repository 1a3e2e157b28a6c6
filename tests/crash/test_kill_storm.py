"""Kills (G8) of requests while servers run them and are themselves killed with -9."""

from __future__ import annotations

import os
import random
import threading
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

import onceq
from onceq.history.events import KillAnswered, KillBegun, Recorder
from proof.harness.fleet import Fleet, Settings, order_queue
from proof.harness.ledger import Order
from proof.harness.orders import recorded
from tests.crash.parts import assert_history, kill_at_work, report
from tests.parts import Background

if TYPE_CHECKING:
    from uuid import UUID

KILLS = 5
EACH = 3
"""So many requests are made for each kill of a server, which nobody kills, beside the first."""
REQUESTS = 60
WORK_MS = 20
SEED = int(os.environ.get("SEED", "1"))


def kill_requests(
    settings: Settings, eids: dict[str, UUID], chance: random.Random, stop: threading.Event
) -> Counter[str]:
    """Kills requests at random, some of them twice, until the servers have done all.

    The first one, which is held, is killed first; whoever runs it learns it and goes on.
    """
    answers: Counter[str] = Counter()
    path = Path(settings.files) / "killer.events"
    with (
        Recorder(path, "killer") as recorder,
        onceq.open(settings.url, repository=settings.repository) as qm,
    ):
        for rid in ["held", *chance.choices(sorted(eids), k=REQUESTS // 2)]:
            eid = str(eids[rid])
            recorder.record(KillBegun(rid=rid, eid=eid))
            answer = qm.kill(eids[rid], timeout_s=60).value
            recorder.record(KillAnswered(rid=rid, eid=eid, answer=answer))
            answers[answer] += 1
            (Path(settings.files) / "release").touch()
            if stop.wait(chance.uniform(0, 3 * WORK_MS / 1000)):
                break
    return answers


def test_every_kill_tells_the_truth(
    settings: Settings, conninfo: str, qm: onceq.QueueManager
) -> None:
    report(f"SEED={SEED}")
    chance = random.Random(SEED)
    queue = order_queue({})
    qm.declare(queue)
    stop = threading.Event()
    orders = [(f"r{n}", Order(ms=WORK_MS)) for n in range(1, REQUESTS)]
    first, later = [("held", Order("hold")), *orders[: -EACH * KILLS]], orders[-EACH * KILLS :]
    with (
        recorded(qm, "till", queue, Path(settings.files), window=REQUESTS) as clerk,
        Fleet(settings, size=2) as fleet,
    ):

        def send() -> None:
            clerk.send_many([later.pop(0) for _ in range(EACH)])

        clerk.send_many(first[:1], expects=None)
        fleet.wait_executions(1, "held")
        clerk.send_many(first[1:], expects=None)
        eids = {rid: qm.lookup(rid)[0].eid for rid, _ in first}
        own = random.Random(chance.random())
        killing = Background(lambda: kill_requests(settings, eids, own, stop))
        fleet.wait((Path(settings.files) / "release").exists)
        kill_at_work(fleet, KILLS, WORK_MS, chance, send)
        fleet.wait(lambda: qm.show("orders").depth == 0)
        stop.set()
        answers = killing.result()
        replies = Counter(clerk.receive().outcome.value for _ in range(REQUESTS))
        clerk.satisfied()
        assert_history(fleet, conninfo)
    report(f"{dict(answers)} of the kills; {dict(replies)} of the requests")
    for rid, eid in eids.items():  # asked again, each answers as before
        cancelled = {one.outcome for one in qm.lookup(rid)} == {"cancelled"}
        assert (qm.kill(eid) is onceq.KillAnswer.KILLED) is cancelled
    assert set(answers) <= {"KILLED", "TOO_LATE"}
    assert answers["KILLED"] >= replies["cancelled"] > 0
    assert replies["done"] + replies["cancelled"] == REQUESTS
