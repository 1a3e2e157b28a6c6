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

REQUESTS = 60
KILLS = 5
WORK_MS = 20
SEED = int(os.environ.get("SEED", "1"))


def kill_requests(
    settings: Settings, eids: dict[str, UUID], chance: random.Random, stop: threading.Event
) -> Counter[str]:
    """Kills requests at random, some of them twice, until the servers have done all."""
    answers: Counter[str] = Counter()
    path = Path(settings.files) / "killer.events"
    with (
        Recorder(path, "killer") as recorder,
        onceq.open(settings.url, repository=settings.repository) as qm,
    ):
        for rid in chance.choices(sorted(eids), k=REQUESTS // 2):
            eid = str(eids[rid])
            recorder.record(KillBegun(rid=rid, eid=eid))
            answer = qm.kill(eids[rid], timeout_s=30).value
            recorder.record(KillAnswered(rid=rid, eid=eid, answer=answer))
            answers[answer] += 1
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
    with (
        recorded(qm, "till", queue, Path(settings.files), window=REQUESTS) as clerk,
        Fleet(settings, size=2) as fleet,
    ):
        requests = [(f"r{n}", Order(ms=WORK_MS)) for n in range(REQUESTS)]
        clerk.send_many(requests, expects=None)
        eids = {rid: qm.lookup(rid)[0].eid for rid, _ in requests}
        own = random.Random(chance.random())
        fleet.wait_executions(1)
        killing = Background(lambda: kill_requests(settings, eids, own, stop))
        kill_at_work(fleet, KILLS, WORK_MS, chance)
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
