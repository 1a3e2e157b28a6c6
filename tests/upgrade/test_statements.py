"""A repository understands the code of each level that it serves (ADR 32)."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from onceq import version
from tests.parts import plain
from tests.upgrade.next_onceq import COLUMN, FUNCTIONS
from tests.upgrade.statements import HERE, asked, understood

if TYPE_CHECKING:
    from tests.upgrade.statements import Understood


def test_the_code_of_each_level_that_is_served_is_understood(
    conninfo: str, repository: str
) -> None:
    for level in range(version.SERVES, version.LEVEL):
        kept = json.loads((HERE / f"level-{level}.json").read_text("utf-8"))
        found = understood(conninfo, repository, {name: one["text"] for name, one in kept.items()})
        assert found == {name: one["meant"] for name, one in kept.items()}, f"level {level}"


def test_what_this_code_asks_is_understood(conninfo: str, repository: str) -> None:
    meant = understood(conninfo, repository, asked())
    assert [name for name, found in meant.items() if found[0][:1] == ["error"]] == []
    assert len(meant) > 100


def test_a_former_signature_that_is_gone_is_found(conninfo: str, repository: str) -> None:
    """Also another order of columns; but a function more, and a column more, are not."""
    before = understood(conninfo, repository, asked())
    assert _after(conninfo, repository, COLUMN + FUNCTIONS) == before
    gone = _after(conninfo, repository, "drop function onceq.peek; drop view onceq.servers;")
    assert _differing(gone, before) == {"ListServers", "Peek"}
    other = "alter table onceq.repository alter repository_id type text;"
    assert _differing(_after(conninfo, repository, other), gone) == {"Identify"}


def _after(conninfo: str, repository: str, text: str) -> Understood:
    with plain(conninfo) as connection:
        connection.execute(text.replace("onceq.", f"{repository}.").encode())
    return understood(conninfo, repository, asked())


def _differing(one: Understood, other: Understood) -> set[str]:
    return {name for name, found in one.items() if found != other[name]}
