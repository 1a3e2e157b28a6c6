"""Random sequences of Ops: PostgreSQL and the oracle give the same answer to every one."""

from __future__ import annotations

import os
import uuid
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, settings
from hypothesis.stateful import run_state_machine_as_test

from tests.conformance.drivers import PostgresRepository, unsynced
from tests.conformance.processing_machine import ProcessingMachine

if TYPE_CHECKING:
    from collections.abc import Iterator


EXAMPLES = int(os.environ.get("ORACLE_EXAMPLES", "30"))
STEPS = int(os.environ.get("ORACLE_STEPS", "30"))


@pytest.fixture(scope="module")
def place(conninfo: str) -> Iterator[PostgresRepository]:
    made = PostgresRepository(conninfo, f"c_{uuid.uuid4().hex[:16]}")
    with unsynced(conninfo):
        yield made
    made.end()


@pytest.mark.timeout(3600 if EXAMPLES > 100 else 300)
def test_postgresql_and_the_oracle_agree(place: PostgresRepository) -> None:
    machine = type("Machine", (ProcessingMachine,), {"place": place})
    run_state_machine_as_test(
        machine,
        settings=settings(
            max_examples=EXAMPLES,
            stateful_step_count=STEPS,
            deadline=None,
            derandomize=True,
            database=None,
            suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
        ),
    )
