"""What the log of a client with many requests must say, whenever it was killed."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import msgspec

from proof.windows.client import Line

if TYPE_CHECKING:
    from pathlib import Path


@dataclass(slots=True)
class Verdict:
    """What a log came to. replies: how many hands there were, those that came again included."""

    violations: list[str] = field(default_factory=list[str])
    lives: int = 0
    replies: int = 0
    received: set[str] = field(default_factory=set[str])
    ended: bool = False


def read(path: Path) -> list[Line]:
    """Return the lines of a log; a torn last one of a life is left out."""
    lines: list[Line] = []
    for text in path.read_bytes().split(b"\n"):
        try:
            lines.append(msgspec.json.decode(text, type=Line))
        except msgspec.DecodeError:
            continue
    return lines


def judge(lines: list[Line]) -> Verdict:
    """Compare what each life was shown and handed with what those before it knew."""
    found = Verdict()
    sent: set[str] = set()
    doubtful: set[str] = set()
    freed: set[str] = set()
    digests: dict[str, str] = {}
    for line in lines:
        rids = set(line.rids)
        match line.what:
            case "connected":
                found.lives += 1
                found.violations += _shown(rids, sent - doubtful, freed)
                sent |= rids
                freed |= sent - rids
                doubtful = set(freed)
            case "sent":
                sent |= rids
            case "acknowledges":
                doubtful |= rids
            case "acknowledged":
                freed |= rids
            case "ended":
                found.ended = True
            case _:
                found.replies += 1
                found.violations += _handed(line, sent, freed, digests)
                found.received |= rids
    return found


def _shown(rids: set[str], owed: set[str], freed: set[str]) -> list[str]:
    missing, back = owed - rids, rids & freed
    texts = {"a connect does not show": missing, "a connect shows what was acknowledged:": back}
    return [f"{text} {sorted(which)[:5]}" for text, which in texts.items() if which]


def _handed(line: Line, sent: set[str], freed: set[str], digests: dict[str, str]) -> list[str]:
    (rid,) = line.rids
    broken: list[str] = []
    if digests.setdefault(rid, line.digest) != line.digest:
        broken.append(f"the reply to {rid} is another than before")
    if line.what == "received" and rid in freed:
        broken.append(f"the reply to {rid} is received after it was acknowledged")
    if rid not in sent:
        broken.append(f"the reply to {rid}, which was not outstanding")
    return broken
