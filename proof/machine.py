"""What the proof ran on, without the name of the machine or of any place on it."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import subprocess
from pathlib import Path

from onceq.engine.embedded.binaries import find_binaries
from onceq.version import __version__

ROOT = Path(__file__).resolve().parents[1]
WRITTEN = (":!proof/recorded*.json", ":!docs/maintainers/proof*.md", ":!README.md")


def _said(*command: str) -> str:
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    return done.stdout.strip() if done.returncode == 0 else ""


def _memory() -> str:
    size = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return f"{size / 2**30:.0f} GiB"


def _changes() -> list[str]:
    """Return uncommitted changes, except those that a run makes: its own record does not count."""
    return _said("git", "status", "--porcelain", "--", ".", *WRITTEN).splitlines()


def _onceq() -> str:
    revision = _said("git", "describe", "--always")
    changed = ", changed" if _changes() else ""
    return f"{__version__} ({revision}{changed})" if revision else __version__


def why_not_recorded() -> str | None:
    """Return why figures of this tree may not be recorded; None: they may be."""
    if not _said("git", "rev-parse", "HEAD"):
        return "no revision is known here: record from a clone"
    changed = _changes()
    return f"the tree is changed ({len(changed)} files): commit first" if changed else None


def described() -> dict[str, str]:
    """Return what the figures depend on, by name."""
    postgres = find_binaries().program("postgres")
    return {
        "onceq": _onceq(),
        "cores": str(os.cpu_count()),
        "memory": _memory(),
        "system": f"{platform.system()} {platform.release()}",
        "PostgreSQL": _said(str(postgres), "--version").removeprefix("postgres (PostgreSQL) "),
        "Python": platform.python_version(),
        "Spark": importlib.metadata.version("pyspark"),
    }
