"""The verdict on one input: it worked, or it was refused in words, and nothing has changed."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from onceq.errors import OnceqError, Outcome

if TYPE_CHECKING:
    from collections.abc import Callable

WORDS_MIN = 3
SHOWN_MAX = 40


@dataclass(slots=True)
class Verdicts:
    """What became of inputs. inputs: by layer; refused: by error; broken: each with its seed."""

    inputs: Counter[str] = field(default_factory=Counter[str])
    refused: Counter[str] = field(default_factory=Counter[str])
    broken: list[str] = field(default_factory=list[str])
    kinds: set[str] = field(default_factory=set[str])

    def add(self, other: Verdicts) -> None:
        """Adds what became of others."""
        self.inputs.update(other.inputs)
        self.refused.update(other.refused)
        for text in other.broken:
            self.note(text[:60], text)

    def note(self, kind: str, text: str) -> None:
        """Notes what is broken, once of each kind."""
        if kind not in self.kinds and len(self.broken) < SHOWN_MAX:
            self.kinds.add(kind)
            self.broken.append(text)

    def judge(
        self,
        layer: str,
        name: str,
        seed: int,
        call: Callable[[], Any],
        *,
        state: Callable[[], Any] = lambda: None,
    ) -> None:
        """Makes a call and judges what comes of it. state: what a refusal must leave as it is."""
        self.inputs[layer] += 1
        before = state()
        try:
            call()
        except OnceqError as error:
            self.refused[type(error).__name__] += 1
            wrong = _wrong(error, before, state)
        except Exception as error:  # noqa: BLE001 # the very thing that must not be
            wrong = f"raised {type(error).__name__}: {str(error)[:200]!r}"
        else:
            return
        if wrong:
            kind = f"{layer}: {name}: {wrong}"
            self.note(kind.partition(":")[0] + name + wrong[:24], f"{kind} [seed {seed}]")


def _wrong(error: OnceqError, before: Any, state: Callable[[], Any]) -> str | None:
    if error.outcome is not Outcome.NOTHING_HAPPENED:
        return f"{type(error).__name__} says that its outcome is unknown"
    if len(str(error).split()) < WORDS_MIN:
        return f"{type(error).__name__} says only {str(error)!r}"
    if state() != before:
        return f"{type(error).__name__}, and the repository was changed"
    return None
