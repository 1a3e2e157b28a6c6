"""Exit codes, and how errors are said."""

from __future__ import annotations

import os
import subprocess
import sys

import msgspec
import pytest

from onceq import errors
from onceq.cli import exits
from onceq.cli.exits import exit_code
from tests.cli.parts import ROOT, Cli, run_here


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (errors.FileMismatch("x"), 1),
        (errors.SettingsDiffer("x"), 1),
        (errors.RidReused("x"), 1),
        (errors.QueueNotEmpty("x"), 1),
        (errors.IllegalState("x"), 1),
        (errors.QueueStopped("x"), 1),
        (errors.SchemaMismatch("x"), 1),
        (errors.Fenced("x"), 1),
        (errors.DeadlineExceeded("x"), 1),
        (errors.InvalidName("x"), 2),
        (errors.MissingExtra("x"), 2),
        (errors.QueueNotFound("x"), 3),
        (errors.SchemaMissing("x"), 3),
        (FileNotFoundError("x"), 3),
        (errors.CannotConnect("x"), 4),
        (errors.PoolerDetected("x"), 4),
        (errors.ConnectionLost("x"), 4),
        (errors.EmbeddedStartFailed("x"), 4),
        (errors.InDoubt("x"), 5),
        (KeyboardInterrupt(), 130),
        (ZeroDivisionError("x"), 1),
    ],
)
def test_every_kind_of_error_has_its_code(error: BaseException, code: int) -> None:
    assert exit_code(error) == code


def test_every_row_of_the_table_can_be_reached() -> None:
    kinds = [kind for kind, _ in exits.EXIT_CODES]
    for number, kind in enumerate(kinds):
        assert not any(issubclass(kind, before) for before in kinds[:number]), kind


def test_usage(cli: Cli) -> None:
    assert "No such option" in cli("queue", "list", "--nope", code=2).err
    assert "Missing" in cli("queue", "show", code=2).err
    assert "not valid" in cli("queue", "create", "bad name", code=2).err


def test_not_found_says_what_and_what_next(cli: Cli) -> None:
    answer = cli("queue", "show", "nope", code=3)
    assert answer.out == ""
    assert answer.err.startswith("onceq: queue 'nope' does not exist")
    assert "Traceback" not in answer.err


def test_cannot_connect() -> None:
    answer = run_here("queue", "list", "--url", "postgresql://127.0.0.1:1/nope")
    assert answer.code == 4
    assert "cannot connect" in answer.err


def test_a_missing_schema_names_the_command(conninfo: str, repository_name: str) -> None:
    answer = run_here("queue", "list", "--url", conninfo, "--repository", repository_name)
    assert answer.code == 3
    assert "onceq init" in answer.err


def test_an_error_in_json(cli: Cli) -> None:
    answer = cli("queue", "show", "nope", "--json", code=3)
    error = msgspec.json.decode(answer.err)
    assert list(error) == ["v", "error", "text", "outcome", "exit_code"]
    assert (error["error"], error["exit_code"]) == ("QueueNotFound", 3)
    assert error["outcome"] == "nothing happened"


@pytest.mark.parametrize(
    ("raised", "code", "said"),
    [
        (KeyboardInterrupt(), 130, "interrupted"),
        (errors.InDoubt("lost"), 5, "unknown"),
        (ZeroDivisionError("by zero"), 1, "a defect of onceq"),
    ],
)
def test_what_a_command_raises(
    monkeypatch: pytest.MonkeyPatch, raised: BaseException, code: int, said: str
) -> None:
    def fail() -> str:
        raise raised

    monkeypatch.setattr("platform.python_version", fail)
    answer = run_here("version")
    assert answer.code == code
    assert said in answer.err
    assert "Traceback" not in answer.err


def test_a_reader_that_has_gone_is_no_error_to_talk_about() -> None:
    reader, writer = os.pipe()
    os.close(reader)
    with os.fdopen(writer, "wb") as gone:
        done = subprocess.run(
            [sys.executable, "-m", "onceq.cli.main", "version", "--json"],
            env={**os.environ, "PYTHONPATH": str(ROOT / "src")},
            stdout=gone,
            stderr=subprocess.PIPE,
            check=False,
        )
    assert (done.returncode, done.stderr) == (1, b"")
