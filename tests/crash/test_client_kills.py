"""Kill -9 of clients at random points of send, receive and process: everything exactly once."""

from __future__ import annotations

import os
import random
import signal
import time
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from onceq.model.client_state import Done
from proof.harness.fleet import Fleet, Settings, order_queue
from proof.harness.processes import start
from tests.crash.parts import Customer, assert_history, report, shop
from tests.parts import LIMIT_S, rows, wait_until

if TYPE_CHECKING:
    import onceq

SEED = int(os.environ.get("SEED", "1"))
KILLS = 30
CLIENTS = ("till-1", "till-2")
REQUESTS = 400


def run_killed(customer: Customer, chance: random.Random) -> bool:
    """Runs a client and kills it at work, at a random moment; True when it ended by itself."""
    client = start(shop, customer)
    own = customer.events(client.pid or 0)
    try:
        wait_until(lambda: client.exitcode is not None or (own.exists() and own.stat().st_size > 0))
        client.join(chance.uniform(0, 0.06))
    finally:
        client.kill()
        client.join(LIMIT_S)
    assert client.exitcode in {0, -signal.SIGKILL}
    return client.exitcode == 0


@pytest.mark.timeout(400)
def test_clients_killed_anywhere_process_everything_exactly_once(
    settings: Settings, conninfo: str, qm: onceq.QueueManager
) -> None:
    report(f"SEED={SEED}")
    chance = random.Random(SEED)
    queue = order_queue({})
    qm.declare(queue)
    began = time.monotonic()
    deaths = 0
    with Fleet(settings) as fleet:
        left = {
            name: Customer(
                url=settings.url,
                repository=settings.repository,
                files=Path(settings.files),
                name=name,
                requests=REQUESTS,
            )
            for name in CLIENTS
        }
        while deaths < KILLS and left:
            name = chance.choice(sorted(left))
            if run_killed(left[name], chance):
                del left[name]
            else:
                deaths += 1
        for one in left.values():
            client = start(shop, one)
            client.join(3 * LIMIT_S)
            assert client.exitcode == 0
        assert_history(fleet, conninfo)
    report(f"{deaths} kills of clients in {time.monotonic() - began:.1f} s")
    assert deaths >= KILLS // 2
    wanted = [str(number) for number in range(1, REQUESTS + 1)]
    for name in CLIENTS:
        lines = (Path(settings.files) / f"{name}.lines").read_text().splitlines()
        assert lines == wanted, "the device printed something twice, or not at all"
        with qm.clerk(name, queue) as clerk:
            assert clerk.was_disconnected
            assert isinstance(clerk.recover(), Done)
    booked = Counter(rid for (rid,) in rows(conninfo, f"select rid from {qm.repository}.effects"))
    assert booked == dict.fromkeys(wanted, len(CLIENTS))
