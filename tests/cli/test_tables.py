"""Tables keep ids, names and paths whole, however narrow the terminal is, and in a pipe."""

from __future__ import annotations

import ast
import io
import sys
from typing import TYPE_CHECKING

import pytest

from onceq.cli import (
    clients,
    doctor,
    held,
    periodics,
    queues,
    repositories,
    requests,
    storing,
    streaming,
)
from onceq.cli.output import PROSE, Output
from tests.cli.parts import ROOT

if TYPE_CHECKING:
    from collections.abc import Sequence

EID = "019ab1c2-3d4e-7f5a-8b6c-0123456789ab"
PATH = "/srv/archive/a-directory-with-a-long-name/run=019ab1c2/day=2026-11-22/part-0.parquet"
TABLES = {
    "repository list": repositories.COLUMNS,
    "queue list": queues.COLUMNS,
    "queue scan": queues.SCAN_COLUMNS,
    "request find": requests.OLD_COLUMNS,
    "error list": held.ERROR_COLUMNS,
    "error list --group": held.GROUP_COLUMNS,
    "redrive": held.REDRIVEN_COLUMNS,
    "redrive --dry-run": held.DRY_COLUMNS,
    "error retry": held.RELEASED_COLUMNS,
    "client list": clients.COLUMNS,
    "periodic list": periodics.COLUMNS,
    "client forget": ("name", *clients.FORGOTTEN),
    "doctor": doctor.COLUMNS,
    "store show": storing.STREAM_COLUMNS,
    "store verify": storing.SEGMENT_COLUMNS,
    "stream list": streaming.LIST_COLUMNS,
    "stream show": streaming.RECEIVER_COLUMNS,
    "stream stores": streaming.STORE_COLUMNS,
    "stream deregister": streaming.DEREGISTERED_COLUMNS,
}


class Terminal(io.StringIO):
    """Standard output that says it is a terminal."""

    def isatty(self) -> bool:
        return True


def shown(columns: Sequence[str], row: dict[str, str]) -> str:
    Output(as_json=False).rows(columns, [row, dict.fromkeys(columns, "x")])
    assert isinstance(sys.stdout, io.StringIO)
    return sys.stdout.getvalue()


@pytest.mark.parametrize("width", [40, 80, 200])
@pytest.mark.parametrize("is_terminal", [True, False], ids=["terminal", "pipe"])
@pytest.mark.parametrize("table", TABLES)
def test_no_table_cuts_or_folds_what_is_copied(
    monkeypatch: pytest.MonkeyPatch, table: str, width: int, *, is_terminal: bool
) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    monkeypatch.setattr(sys, "stdout", Terminal() if is_terminal else io.StringIO())
    sentence = f"nothing of it is in {PATH}, which was looked at just now;\n\t{EID} neither"
    columns = TABLES[table]
    row = {name: sentence if name in PROSE else f"{name[:3]}-{EID}" for name in columns}
    text = shown(columns, row)
    assert "…" not in text
    copied = [f"{name[:3]}-{EID}" for name in columns if name not in PROSE]
    if PROSE & set(columns):
        copied += [PATH, EID]
    assert [one for one in copied if one not in text] == []
    if not is_terminal:
        assert len(text.splitlines()) == 3


def test_no_table_is_missing_here() -> None:
    calls = [
        node
        for path in (ROOT / "src/onceq/cli").glob("*.py")
        for node in ast.walk(ast.parse(path.read_text("utf-8")))
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr == "rows"
    ]
    assert len(calls) == len(TABLES) + 1  # `redrive` has two, of the same columns
