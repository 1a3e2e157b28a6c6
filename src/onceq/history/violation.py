"""What the checker finds: a guarantee that was broken, for which request, and how."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Violation:
    """A guarantee that was broken: its id (G1 to G12), the rid if any, and how."""

    guarantee: str
    rid: str | None
    text: str

    def __str__(self) -> str:
        return f"{self.guarantee} {self.rid or '-'}: {self.text}"
