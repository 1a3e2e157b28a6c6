"""The low-water marks: whatever sessions do around a sweep, nothing is ever hidden from claims.

Each broken variant of the SQL is found by the same property.
"""

from __future__ import annotations

import contextlib
import os
import re
import uuid
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from hypothesis.errors import FlakyFailure

from tests.conformance.drivers import unsynced
from tests.engine.cursor_steps import HOLDERS, VALUE, Field, Step, with_pauses
from tests.parts import install_variant, plain

if TYPE_CHECKING:
    from collections.abc import Callable, Generator


EXAMPLES = int(os.environ.get("CURSOR_EXAMPLES", "60"))
EXAMPLES_MAX = 1500
"""In which a broken variant must be found."""

KINDS = (
    *["insert"] * 3,
    *["stop_insert"] * 2,
    *["go_on"] * 2,
    *["finish"] * 4,
    *["claim"] * 4,
    *["conclude"] * 2,
    "kill",
    *["sweep"] * 7,
)
HELD = "holders && p_holders"

STEPS = st.lists(
    st.builds(Step, st.sampled_from(KINDS), st.integers(0, 3), st.integers(0, 11), st.booleans()),
    min_size=10,
    max_size=60,
)


@contextlib.contextmanager
def field(conninfo: str, change: Callable[[str, str], None] = with_pauses) -> Generator[Field]:
    """A repository of its own with the test's functions in it."""
    repository = f"t_{uuid.uuid4().hex[:16]}"
    with unsynced(conninfo):
        made = Field(conninfo, repository)
        change(conninfo, repository)
        try:
            yield made
        finally:
            made.close()
            with plain(conninfo) as connection:
                connection.execute(f"drop schema {repository} cascade".encode())


def follow(ground: Field, steps: list[Step], *, commits: bool) -> None:
    """Takes the steps; what they leave open is ended in any case."""
    ground.renew()
    try:
        for step in steps:
            ground.run(step)
    finally:
        ground.end_all(commits=commits)
    ground.check()
    ground.drain()


def hold(ground: Field, examples: int) -> None:
    """Tries the property on so many lists of steps."""

    @settings(
        max_examples=examples,
        deadline=None,
        derandomize=True,
        database=None,
        phases=[Phase.generate],
        report_multiple_bugs=False,
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
    )
    @given(steps=STEPS, commits=st.booleans())
    def nothing_is_hidden(steps: list[Step], *, commits: bool) -> None:
        follow(ground, steps, commits=commits)

    nothing_is_hidden()


@pytest.mark.timeout(3600 if EXAMPLES > 100 else 300)
def test_no_mark_hides_an_element(conninfo: str) -> None:
    with field(conninfo) as ground:
        hold(ground, EXAMPLES)
        assert ground.stopped_before_an_xid > 0


def holders_before_the_value(conninfo: str, repository: str) -> None:
    pause = "    perform onceq.pause(-2);\n"
    with_pauses(conninfo, repository, (f"{VALUE}{pause}{HOLDERS}", f"{HOLDERS}{pause}{VALUE}"))


def the_xmin_rule(conninfo: str, repository: str) -> None:
    """Whatever has a number has an xid, it says; but the number comes first."""
    xmin = "pg_snapshot_xmin(pg_current_snapshot())::text::bigint"
    with_pauses(
        conninfo,
        repository,
        (HELD, f"{xmin} < p_holders[1]::bigint"),
        (HOLDERS, "    holders := array[pg_snapshot_xmax(pg_current_snapshot())::text];\n"),
    )


def no_wait_at_all(conninfo: str, repository: str) -> None:
    with_pauses(conninfo, repository, (HELD, "false"))


def past_what_is_unclaimed(conninfo: str, repository: str) -> None:
    with_pauses(conninfo, repository)
    least = "least(coalesce(first, p_value + 1), p_value + 1)"
    install_variant(conninfo, repository, "advance", (least, "p_value + 1"))


def past_what_is_locked(conninfo: str, repository: str) -> None:
    with_pauses(conninfo, repository)
    plain_read = "order by e.turn limit 1;"
    skipping = "order by e.turn limit 1 for update skip locked;"
    install_variant(conninfo, repository, "advance", (plain_read, skipping))


@pytest.mark.parametrize(
    "variant",
    [
        holders_before_the_value,
        the_xmin_rule,
        no_wait_at_all,
        past_what_is_unclaimed,
        past_what_is_locked,
    ],
    ids=lambda variant: variant.__name__,
)
def test_a_broken_sweep_is_found(conninfo: str, variant: Callable[[str, str], None]) -> None:
    with field(conninfo, variant) as ground, pytest.raises((AssertionError, FlakyFailure)) as found:
        hold(ground, EXAMPLES_MAX)
    error = found.value
    while isinstance(error, FlakyFailure):  # found, and not again when it was tried once more
        error = error.exceptions[0]
    assert isinstance(error, AssertionError)
    assert re.search("mark|hidden", str(error))
