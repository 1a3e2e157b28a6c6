"""The directory where Spark notes how far a query has come: whose it is, and what is in it.

Used by `onceq.spark.serve.server`. Spark itself writes it. One file in it is ours, and names the
server that it belongs to: two servers in one directory would stop each other, or delete its notes.
"""

from __future__ import annotations

import contextlib
import re
from pathlib import Path
from typing import Final

import msgspec

from onceq.errors import EnvironmentFault, InvalidValue

_SCHEME: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:")
_OWNER: Final = "onceq-server"


def check_checkpoint(checkpoint: str | Path) -> Path:
    """Returns the checkpoint's directory. Raises InvalidValue: it is not on this machine."""
    if _SCHEME.match(str(checkpoint)):
        raise InvalidValue(
            f"checkpoint={str(checkpoint)!r} is a URL: give a directory of this machine; for a "
            "stateful server on a cluster one that all machines share"
        )
    found = Path(checkpoint).absolute()
    if found.exists() and not found.is_dir():
        raise InvalidValue(f"checkpoint={str(checkpoint)!r} is a file: give a directory")
    return found


def own_checkpoint(checkpoint: Path, name: str, repository: str) -> None:
    """Notes a checkpoint's owner in it. Raises InvalidValue: another server's; EnvironmentFault.

    name: the server's.
    """
    mine = msgspec.json.encode({"server": name, "repository": repository}).decode()
    try:
        checkpoint.mkdir(parents=True, exist_ok=True)
        with contextlib.suppress(FileExistsError), (checkpoint / _OWNER).open("x") as file:
            file.write(mine)
        theirs = (checkpoint / _OWNER).read_text(errors="replace")
    except OSError as error:
        raise EnvironmentFault(f"cannot write checkpoint {checkpoint}: {error.strerror}") from error
    if theirs not in {mine, ""}:  # empty: there was no space to write it
        raise InvalidValue(
            f"checkpoint {checkpoint} is of another Spark server, {theirs}: give each server a "
            "directory of its own"
        )


def has_finished_nothing(checkpoint: Path, query_id: str | None) -> bool:
    """Returns whether no batch was completed with this checkpoint, so that it holds no state.

    query_id: the query that committed the last batch, according to the registration.
    """
    return query_id is None or (
        not any((checkpoint / "commits").glob("[0-9]*")) and _query_id(checkpoint) != query_id
    )


def _query_id(checkpoint: Path) -> str | None:
    """Returns which query a checkpoint belongs to; None: its file is missing, or not complete."""
    try:
        found = msgspec.json.decode((checkpoint / "metadata").read_bytes(), type=dict[str, str])
    except (OSError, msgspec.MsgspecError):
        return None
    return found.get("id")
