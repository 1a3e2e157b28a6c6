"""What the doctor finds: one value for each check. For the doctor and its judges."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Finding:
    """One check: ok, warn or fail; what was found; what to do about it."""

    check: str
    verdict: str
    found: str
    advice: str | None = None


def when(check: str, found: str, advice: str, *, bad: bool, verdict: str = "warn") -> Finding:
    """Returns a finding that is ok unless something is bad; only then it has advice."""
    return Finding(check, verdict if bad else "ok", found, advice if bad else None)
