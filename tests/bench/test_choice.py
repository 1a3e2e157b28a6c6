"""What one names is what is measured: whole cases, or single results of theirs."""

from __future__ import annotations

import pytest

from bench.__main__ import chosen, parsed
from bench.cases import CASES
from bench.rows import expected


def asked(*names: str) -> list[str]:
    return chosen(parsed(names))[0]


def test_every_result_of_a_case_can_be_named_alone() -> None:
    for name in expected(CASES):
        assert asked(name) == [name]


def test_a_case_is_all_of_its_results() -> None:
    of_send = [name for name in expected(CASES) if name.startswith("send-1/")]
    assert asked("send-1") == asked("send-1", of_send[0]) == of_send


def test_an_unknown_name_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        asked("send-1", "send-1/nobody")
    assert "no such case: send-1/nobody" in capsys.readouterr().err
