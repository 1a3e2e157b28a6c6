"""The parts for versions: what is here is tried, what is not is named, what fails is seen."""

from __future__ import annotations

import functools
import sys
from typing import TYPE_CHECKING

import pytest

from onceq.engine.embedded.binaries import all_binaries
from proof import goals, versions
from proof.part import Order, Size

if TYPE_CHECKING:
    from pathlib import Path


def order(place: Path) -> Order:
    return Order(size=Size.SMALL, seed=1, place=place, say=lambda *_: None)


@pytest.mark.timeout(400)
def test_the_oldest_postgresql_that_is_here_runs_the_suite(tmp_path: Path) -> None:
    major = min(one.major for one in all_binaries())
    outcome = versions.on_postgresql(major, order(tmp_path))
    assert (outcome.violations, outcome.skipped) == ([], None)
    reached = {measure.what: measure.reached for measure in outcome.measures}
    assert reached[goals.VERSIONS] == 1
    assert reached["conformance tests passed"] > 3


def test_a_version_that_is_not_here_is_named(tmp_path: Path) -> None:
    for tried in (
        functools.partial(versions.on_postgresql, 9),
        functools.partial(versions.on_python, (2, 0)),
    ):
        skipped = tried(order(tmp_path)).skipped
        assert skipped is not None
        assert skipped.startswith("there is no")


@pytest.mark.timeout(400)
def test_a_suite_that_fails_is_a_violation(tmp_path: Path) -> None:
    nowhere = f"postgresql:///?host={tmp_path}"
    outcome = versions.conformance(sys.executable, order(tmp_path), ONCEQ_TEST_URL=nowhere)
    assert len(outcome.violations) == 1
    assert outcome.measures[0].reached == 0


def test_this_python_is_found() -> None:
    assert versions.interpreter((sys.version_info.major, sys.version_info.minor)) is not None


def test_the_pins_have_no_hashes() -> None:
    text = (
        "a==1 \\\n    --hash=sha256:0 \\\n    --hash=sha256:1\nb-c==2.0 ; sys_platform == 'x' \\\n"
    )
    assert versions.constraints(text) == "a==1\nb-c==2.0 ; sys_platform == 'x'\n"
