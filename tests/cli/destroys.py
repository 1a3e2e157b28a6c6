"""A repository that a test destroys, or begins to destroy."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

import onceq
from onceq.engine.schema import destroying
from tests.parts import plain, scalar

if TYPE_CHECKING:
    from tests.cli.parts import Cli

RAW = onceq.Queue("raw", bytes, bytes, abort_limit=1)
OTHERS = "select nspname::text from pg_namespace where nspname = %s"


def opened(cli: Cli) -> onceq.QueueManager:
    return onceq.open(cli.url, repository=cli.repository)


def destroy(cli: Cli, *words: str, code: int = 0) -> str:
    answer = cli("repository", "destroy", cli.repository, "--yes", *words, code=code)
    return answer.err if code else answer.out


def is_there(cli: Cli) -> bool:
    return scalar(cli.url, OTHERS, cli.repository) is not None


def state(cli: Cli) -> str | None:
    found = cli.json("repository", "list").lines
    return next((one["state"] for one in found if one["name"] == cli.repository), None)


class Stopped(Exception):
    """Where a test stops it."""


def stop_after(monkeypatch: pytest.MonkeyPatch, cli: Cli, slices: int) -> None:
    """Begins to destroy a repository, and stops after some slices."""
    told: list[int] = []

    def only_begin(*_: object) -> int:
        return 0

    def tell(number: int) -> None:
        told.append(number)
        if len(told) == slices:
            raise Stopped

    with monkeypatch.context() as patched, plain(cli.url) as connection:
        patched.setattr(destroying, "SLICE", 40)
        if slices == 0:
            patched.setattr(destroying, "_drop_some", only_begin)
            destroying.destroy(connection, cli.repository)
            return
        with pytest.raises(Stopped):
            destroying.destroy(connection, cli.repository, told=tell)
