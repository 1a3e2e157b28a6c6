"""Arguments, environment, file: which repository is meant."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from onceq.cli.config import Target, choose, chosen_repository, read_file
from onceq.errors import InvalidName, InvalidValue
from tests.cli.parts import run_here

if TYPE_CHECKING:
    from pathlib import Path

DEEP = "[" * 3000 + "]" * 3000


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    for name in ("ONCEQ_URL", "ONCEQ_REPOSITORY", "DATABASE_URL", "PGHOST", "PGSERVICE"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path


def test_arguments_win_over_environment_over_file(here: Path) -> None:
    (here / "onceq.toml").write_text('url = "service=file"\nrepository = "filed"\n')
    environment = {"ONCEQ_URL": "service=env", "ONCEQ_REPOSITORY": "enved"}
    assert choose("service=arg", "arged", environment) == Target(
        url="service=arg", repository="arged"
    )
    assert choose(None, None, environment) == Target(url="service=env", repository="enved")
    assert choose(None, None, {}) == Target(url="service=file", repository="filed")
    assert choose("service=arg", None, {}) == Target(url="service=arg", repository="filed")


def test_pyproject_serves_too_from_below(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (here / "pyproject.toml").write_text('[tool.onceq]\nurl = "embedded:./data"\n')
    below = here / "src" / "deep"
    below.mkdir(parents=True)
    monkeypatch.chdir(below)
    assert choose(None, None, {}) == Target(url=f"embedded:{here / 'data'}", repository="onceq")


def test_a_project_file_of_others_is_passed_over(here: Path) -> None:
    (here / "pyproject.toml").write_text("[tool.other]\nx = 1\n")
    assert read_file(here) == {}
    for text in ("not = [toml", "tool = 1", f"x = {DEEP}"):
        (here / "pyproject.toml").write_text(text)
        assert read_file(here) == {}


@pytest.mark.parametrize("text", ["[tool]\nonceq = 1", "[[tool.onceq]]\nurl = 'service=x'"])
def test_what_is_no_table_is_named(here: Path, text: str) -> None:
    (here / "pyproject.toml").write_text(text)
    with pytest.raises(InvalidValue, match=r"pyproject\.toml.*\[tool\.onceq\]"):
        read_file(here)


@pytest.mark.parametrize(
    "text",
    [
        "url = 1",
        'host = "x"',
        "not = [toml",
        f"url = {DEEP}",
        'url = "embedded:~nobody-here/x"',
        r'url = "embedded:~\u0000"',
    ],
    ids=["a number", "an unknown key", "no TOML", "too deep", "nobody's home", "a NUL"],
)
def test_a_wrong_file_is_named(here: Path, text: str) -> None:
    (here / "onceq.toml").write_text(text)
    with pytest.raises(InvalidValue, match=r"onceq\.toml"):
        read_file(here)


def test_nothing_named_says_how_to_name_it() -> None:
    answer = run_here("queue", "list")
    assert answer.code == 2
    assert "--url" in answer.err
    assert "onceq.toml" in answer.err


def test_the_repository_must_be_a_name() -> None:
    with pytest.raises(InvalidName):
        chosen_repository("Not A Name")
    assert chosen_repository(None) == "onceq"
