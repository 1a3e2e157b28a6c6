"""Spark."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from bench.scene import Scene

NAMES: tuple[str, ...] = ()


def run(_: Scene) -> None:
    """Nothing yet."""
