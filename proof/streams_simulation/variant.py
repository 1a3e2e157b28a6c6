"""A mistake in what ships, which the simulation must notice, and how it is made for a while."""

from __future__ import annotations

import contextlib
from collections.abc import Generator
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Variant:
    """A mistake. of, name, by: what it replaces, and what with; also: more of that.

    within: so many schedules, one of which notices; 0: none has been found yet. shown_by: the seed
    of one that does, or soon after. on_disks: it is hunted where stores have disks.
    """

    of: Any
    name: str
    by: Any
    within: int
    text: str
    also: tuple[tuple[Any, str, Any], ...] = ()
    shown_by: int = 0
    on_disks: bool = False

    def make(self) -> None:
        """Make the mistake, for as long as the process lives."""
        for of, name, by in ((self.of, self.name, self.by), *self.also):
            setattr(of, name, by)

    @contextlib.contextmanager
    def made(self) -> Generator[None]:
        """Make the mistake within a block."""
        with contextlib.ExitStack() as stack:
            for of, name, _ in ((self.of, self.name, self.by), *self.also):
                stack.callback(setattr, of, name, of.__dict__[name])
            self.make()
            yield
