"""Finds a table of parts by its name, as the runner and the processes of its parts both do."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from proof.part import Part

TABLE = "proof.parts:PARTS"


def parts_of(table: str = TABLE) -> tuple[Part, ...]:
    """Return the parts of a table, MODULE:ATTRIBUTE. What its import raises is raised."""
    module, _, attribute = table.partition(":")
    parts: tuple[Part, ...] = getattr(importlib.import_module(module), attribute)
    return parts
