"""A plugin for pytest: writes how each test ended, for the code that judges a mutant.

Loaded in the process of the tests, from the mutant's tree (`-p proof.mutants.witness`). It writes a
line of JSON for each phase of a test, and for each file that could not be read, to the file that
ONCEQ_WITNESS names. A mutant is caught by the first example that fails, which is not made smaller:
that takes minutes, and the time limit would fall into it.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest
from hypothesis import Phase, settings

if TYPE_CHECKING:
    from collections.abc import Generator

TEXT_CHARS_MAX = 300
PHASES: Final = (Phase.explicit, Phase.generate, Phase.target)


def _write(**line: object) -> None:
    with Path(os.environ["ONCEQ_WITNESS"]).open("a", encoding="utf-8") as file:
        file.write(json.dumps(line) + "\n")


def pytest_configure() -> None:
    """Lets examples be found, and left as they are."""
    settings.register_profile("mutants", phases=PHASES)
    settings.load_profile("mutants")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Writes a line for a phase of a test."""
    report = yield
    error = None if call.excinfo is None else call.excinfo.value
    _write(
        test=item.nodeid,
        phase=report.when,
        outcome=report.outcome,
        kind="" if error is None else type(error).__name__,
        text="" if error is None else str(error)[:TEXT_CHARS_MAX],
    )
    return report


def pytest_collectreport(report: pytest.CollectReport) -> None:
    """Writes a line for what could not be collected."""
    if report.failed:
        text = str(report.longrepr)[-TEXT_CHARS_MAX:]
        _write(test=report.nodeid, phase="collect", outcome="failed", kind="Collection", text=text)
