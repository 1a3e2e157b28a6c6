"""What was released stays: repositories have it."""

from __future__ import annotations

import hashlib

from onceq.engine.schema import scripts
from tests.tidy.source_tree import ROOT

RELEASED = {
    "0001_baseline": "475d100be9527785b475d5140e619f93248302bf4b43b10de64268a491417ff9",
    "0002_old_requests": "bcf22f07257a52006416067f30c45fe5d8c295efb9c25f0d036a6c4bdf2298aa",
}
"""The digest of each migration that a release brought. A line is added by a release, and kept."""


def test_released_migrations_are_never_changed() -> None:
    folder = ROOT / "src/onceq/engine/sql/migrations"
    found = {p.stem: hashlib.sha256(p.read_bytes()).hexdigest() for p in folder.glob("*.sql")}
    assert {name: found.get(name) for name in RELEASED} == RELEASED, (
        "a migration that was released was changed: change the tables by another one"
    )


def test_the_list_of_migrations_is_that_of_the_files() -> None:
    folder = ROOT / "src/onceq/engine/sql/migrations"
    assert list(scripts.MIGRATIONS) == sorted(p.stem for p in folder.glob("*.sql"))
    numbers = [int(name[:4]) for name in scripts.MIGRATIONS]
    assert numbers == sorted(set(numbers)), "each has a number of its own, and they are in order"
