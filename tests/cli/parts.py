"""The command line as the tests run it: in this process, or in one of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
from typer.testing import CliRunner

from onceq.cli.main import make_app

if TYPE_CHECKING:
    from collections.abc import Mapping

ROOT = Path(__file__).resolve().parents[2]


@dataclass(frozen=True)
class Answer:
    """What a command came to."""

    code: int
    out: str
    err: str

    @property
    def lines(self) -> list[dict[str, Any]]:
        """The lines of JSON; each begins with the version."""
        found = [msgspec.json.decode(line, type=dict[str, Any]) for line in self.out.splitlines()]
        assert all(next(iter(one)) == "v" and one["v"] == 1 for one in found)
        return found

    @property
    def item(self) -> dict[str, Any]:
        """The one object."""
        (found,) = self.lines
        return found


@dataclass(frozen=True)
class Cli:
    """The command line on one repository."""

    url: str
    repository: str

    def __call__(self, *words: str, code: int = 0) -> Answer:
        """Runs a command in this process; its exit code must be `code`."""
        where = ["--url", self.url, "--repository", self.repository]
        answer = run_here(*where, *words)
        assert answer.code == code, answer
        return answer

    def json(self, *words: str, code: int = 0) -> Answer:
        """Runs a command with --json."""
        return self(*words, "--json", code=code)

    def start(self, *words: str, **options: Any) -> subprocess.Popen[str]:
        """Starts a command in a process of its own."""
        return subprocess.Popen(
            [sys.executable, "-m", "onceq.cli.main", *words],
            env=self.environment(),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            **options,
        )

    def environment(self) -> Mapping[str, str]:
        """The environment of a process that is to use this repository."""
        return {
            **os.environ,
            "PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT}",
            "ONCEQ_URL": self.url,
            "ONCEQ_REPOSITORY": self.repository,
        }


def run_here(*words: str) -> Answer:
    """Runs the command line in this process, wherever its repository is."""
    result = CliRunner().invoke(make_app(), list(words))
    return Answer(result.exit_code, result.stdout, result.stderr)
