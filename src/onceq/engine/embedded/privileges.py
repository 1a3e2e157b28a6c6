"""Runs PostgreSQL's programs as somebody that PostgreSQL accepts: never as root.

For this package only. Three ways, decided once for each start:

- plain: this process is not root.
- namespace: root, and user namespaces are allowed. Outside the process is root without
    any capability, so it can use root's own files in a 0700 home and nothing else; to
    itself it is an ordinary user, which is what PostgreSQL checks. Nothing is copied.
- unprivileged: root without namespaces, as in most containers. The process becomes an
    ordinary user, who owns the cluster, and keeps one capability, DAC_OVERRIDE, to traverse
    root's directories on the way to the binaries and the data. With it, PostgreSQL could also
    read and write other files.

No way makes any file of root's readable by others.
"""

from __future__ import annotations

import enum
import json
import os
import pwd
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from onceq.engine.embedded import launch
from onceq.engine.embedded.binaries import Binaries
from onceq.errors import EmbeddedError

_CANDIDATES = ("daemon", "nobody")
# What PostgreSQL or its locale code must not take from the environment.
_DROPPED = ("PG", "LC_", "LANG")


class Mode(enum.Enum):
    """How root is shed."""

    PLAIN = "plain"
    NAMESPACE = "namespace"
    UNPRIVILEGED = "unprivileged"


@dataclass(frozen=True, slots=True, kw_only=True)
class Identity:
    """Who PostgreSQL's processes are to be."""

    mode: Mode
    uid: int
    gid: int

    @property
    def owner(self) -> tuple[int, int]:
        """The user and group that own the cluster's files, as seen from here."""
        if self.mode is Mode.UNPRIVILEGED:
            return self.uid, self.gid
        return os.geteuid(), os.getegid()


def choose_identity(binaries: Binaries, modes: Sequence[Mode] | None = None) -> Identity:
    """The first way that works here; `modes` limits and orders the ways for root.

    Raises EmbeddedError, saying why each failed.
    """
    if os.geteuid() != 0:
        return Identity(mode=Mode.PLAIN, uid=os.geteuid(), gid=os.getegid())
    uid, gid = _unprivileged_user()
    faults: list[str] = []
    for mode in modes or (Mode.NAMESPACE, Mode.UNPRIVILEGED):
        identity = Identity(mode=mode, uid=uid, gid=gid)
        fault = _try(identity, binaries)
        if fault is None:
            return identity
        faults.append(f"{mode.value}: {fault}")
    raise EmbeddedError(
        f"PostgreSQL refuses to run as root, and no way to shed root works here "
        f"({'; '.join(faults)}). Run as an ordinary user, or allow user namespaces or "
        "the capabilities SETUID, SETGID and DAC_OVERRIDE."
    )


def launch_command(
    identity: Identity, argv: Sequence[str], *, run_fd: int = -1, detach: bool = False
) -> list[str]:
    """The command that runs `argv` under the identity, detached if asked.

    Run it with `launch_environment()`, which is not in the command: others can read commands.
    """
    spec = {
        "argv": list(argv),
        "mode": identity.mode.value,
        "uid": identity.uid,
        "gid": identity.gid,
        "detach": detach,
        "run_fd": run_fd,
    }
    return [_python(), "-I", "-S", "-X", "utf8", launch.__file__, json.dumps(spec)]


def launch_environment() -> dict[str, str]:
    """This process's environment without variables that would change PostgreSQL's settings."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith(_DROPPED)}
    return {**kept, "LC_ALL": "C"}


def _python() -> str:
    """An interpreter: under some hosts sys.executable is the host's program."""
    if sys.executable and "py" in Path(sys.executable).name:
        return sys.executable
    found = shutil.which("python3")
    if found is None:
        raise EmbeddedError(
            "No python3 on PATH to start PostgreSQL with, and this process is not one "
            f"(sys.executable is {sys.executable!r}). Put python3 on PATH."
        )
    return found


def _unprivileged_user() -> tuple[int, int]:
    """A user with an entry in the password file, which initdb looks up."""
    for name in _CANDIDATES:
        try:
            entry = pwd.getpwnam(name)
        except KeyError:
            continue
        return entry.pw_uid, entry.pw_gid
    raise EmbeddedError(
        f"PostgreSQL refuses to run as root, and none of the users {', '.join(_CANDIDATES)} "
        "exists. Run as an ordinary user."
    )


def _try(identity: Identity, binaries: Binaries) -> str | None:
    """None if PostgreSQL's program can be run like this, else the reason."""
    command = launch_command(identity, [str(binaries.program("postgres")), "--version"])
    try:
        answer = subprocess.run(
            command,
            env=launch_environment(),
            capture_output=True,
            encoding="utf-8",
            errors="replace",
            timeout=30,
            check=False,
        )
    except (OSError, subprocess.SubprocessError) as error:
        return str(error)
    if answer.returncode == 0:
        return None
    return (answer.stderr.strip().splitlines() or ["no reason given"])[-1]
