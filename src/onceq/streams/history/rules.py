"""The table of rules: what G11 promises, and what a history can show of it.

Each thing that is found names the rule that it breaks. I1 to I7 are the invariants of the model of
recovery. Source: spec G11, M9 to M34.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class Rule:
    """A rule. text: what holds; of: the invariants and rows of the specification that say it."""

    name: str
    text: str
    of: str


RULES: Final = {
    one.name: one
    for one in (
        Rule("one-life", "An epoch is of one life of the source.", "I3, M34"),
        Rule("one-content", "A number of a life has one content, for whoever sees it.", "I3, M34"),
        Rule("no-phantom", "Nobody is shown, and no store has, what no life sent.", "I3, M40"),
        Rule("stable-sent", "A life is told to be stable what it sent, and nothing else.", "M12"),
        Rule("stable-survives", "A later life begins behind all that is stable.", "I4, M32, M34"),
        Rule("stable-unchanged", "What is stable is of one life for ever.", "I1, M34"),
        Rule("stable-kept", "Enough stores have what is stable, as it was sent.", "I2, M28, M30"),
        Rule(
            "stable-only", "Who wants what is stable is shown that, and nothing in vain.", "I5, M9"
        ),
        Rule("not-given-up", "A life is not told that it gave up what is stable.", "M15"),
        Rule("fence", "What a life sends once another has taken over is shown to nobody.", "M34"),
        Rule("in-order", "A life is shown numbers and epochs ascending, each number once.", "M40"),
        Rule("no-gap", "No number is left out, within a life or between two, untold.", "M27, M40"),
        Rule("rolled-back", "In vain is only what a life was shown, and is not stable.", "I5"),
        Rule("not-lost", "What is stable is not told as lost, or for a reason.", "I6, M27"),
        Rule(
            "marked-again", "What an earlier life was shown is marked when it comes again.", "M23"
        ),
        Rule("acknowledged-grows", "What is acknowledged only grows.", "M21, M22"),
        Rule("acknowledged-shown", "What is acknowledged was shown before.", "M20, M24"),
        Rule("acknowledged-stable", "Stores note as acknowledged only what is stable.", "M9, M24"),
        Rule("confirmed-shown", "A source is told of confirmations of what was shown.", "M17"),
        Rule("whole-log", "The log of a store has no hole.", "M13, M28"),
        Rule("store-remembers", "A store with its disk forgets no epoch.", "M34"),
        Rule("all-delivered", "When faults have ended, all is stable, and shown to all.", "I7"),
    )
}
"""By their names."""


@dataclass(frozen=True, slots=True)
class Broken:
    """A rule that was broken. rule: its name. who: saw it; "": nobody alone."""

    rule: str
    stream: int
    who: str
    text: str

    def __post_init__(self) -> None:
        if self.rule not in RULES:
            raise KeyError(self.rule)

    def __str__(self) -> str:
        who = f"{self.who}: " if self.who else ""
        return f"G11 {self.rule} {self.stream:016x}: {who}{self.text}"


def span(first: int, last: int) -> str:
    """Return the words for numbers in a row."""
    return str(first) if first == last else f"{first} to {last}"
