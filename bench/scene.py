"""What every question is given: where to work, at what pace, and whom to tell."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from bench.listening import Loopback, listening_ground
from bench.systems import Ground, prepared_ground

if TYPE_CHECKING:
    from contextlib import AbstractContextManager
    from pathlib import Path

    from bench.pairs import Pace
    from bench.results import Told


@dataclass(frozen=True, slots=True, kw_only=True)
class Scene:
    """A run. directory: goes away in the end. logs: stays. scale: of flatness, 1.0 in full."""

    directory: Path
    logs: Path
    pace: Pace
    scale: float
    told: Told
    commit_delay_us: int = 0

    def ground(self, name: str) -> AbstractContextManager[Ground]:
        """Return an embedded PostgreSQL of that name, to be entered."""
        directory = self.directory / name
        directory.mkdir()
        return prepared_ground(directory, self.commit_delay_us)

    def listening(self, name: str) -> AbstractContextManager[tuple[Ground, Loopback]]:
        """Return a PostgreSQL of that name that listens on loopback too, to be entered."""
        directory = self.directory / name
        directory.mkdir()
        return listening_ground(directory)
