"""The verdict on one input: it worked, or it was refused in words, and nothing has changed."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from onceq.errors import InvalidName, InvalidValue, OnceqError, Outcome, TooLarge

if TYPE_CHECKING:
    from collections.abc import Callable

    from proof.fuzz.rubbish import Rubbish

WORDS_MIN = 3
SHOWN_MAX = 40
INVALID = (InvalidName, InvalidValue, TooLarge)
"""How illegal input is refused; other refusals say that something is not there, or not now."""


@dataclass(slots=True)
class Verdicts:
    """What became of inputs. inputs, accepted: by layer; refused: by error; broken: with its seed.

    illegal, legal: how many were known to be, by what the fuzz itself knows of the limits.
    """

    inputs: Counter[str] = field(default_factory=Counter[str])
    refused: Counter[str] = field(default_factory=Counter[str])
    accepted: Counter[str] = field(default_factory=Counter[str])
    legal: int = 0
    illegal: int = 0
    broken: list[str] = field(default_factory=list[str])
    kinds: set[str] = field(default_factory=set[str])

    def add(self, other: Verdicts) -> None:
        """Adds what became of others."""
        self.inputs.update(other.inputs)
        self.refused.update(other.refused)
        self.accepted.update(other.accepted)
        self.legal += other.legal
        self.illegal += other.illegal
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
        r: Rubbish,
        call: Callable[[], Any],
        *,
        state: Callable[[], Any] = lambda: None,
    ) -> None:
        """Makes a call and judges the result. state: what a refusal must leave unchanged.

        The input is counted after the call; what it says of itself (`r.legal`), it
        says before it calls the product.
        """
        before = state()
        wrong: str | None
        try:
            call()
        except OnceqError as error:
            self.refused[type(error).__name__] += 1
            wrong = _wrong(error, before, state) or _wrongly_refused(error, r)
        except Exception as error:  # noqa: BLE001 # the very thing that must not be
            wrong = f"raised {type(error).__name__}: {str(error)[:200]!r}"
        else:
            self.accepted[layer] += 1
            wrong = "accepted what is not legal" if r.legal is False else None
        self.count(layer, r)
        if wrong:
            kind = f"{layer}: {name}: {wrong}"
            self.note(kind.partition(":")[0] + name + wrong[:24], f"{kind} [seed {r.seed}]")

    def count(self, layer: str, r: Rubbish) -> None:
        """Counts an input that was given."""
        self.inputs[layer] += 1
        self.legal += r.legal is True
        self.illegal += r.legal is False


def _wrongly_refused(error: OnceqError, r: Rubbish) -> str | None:
    if r.legal is True and isinstance(error, INVALID):
        return f"{type(error).__name__}, and it is legal: {str(error)[:100]!r}"
    return None


def _wrong(error: OnceqError, before: Any, state: Callable[[], Any]) -> str | None:
    if error.outcome is not Outcome.NOTHING_HAPPENED:
        return f"{type(error).__name__} says that its outcome is unknown"
    if len(str(error).split()) < WORDS_MIN:
        return f"{type(error).__name__} says only {str(error)!r}"
    if state() != before:
        return f"{type(error).__name__}, and the repository was changed"
    return None
