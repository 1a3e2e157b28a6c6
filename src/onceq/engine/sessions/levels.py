"""What a repository says of itself, and whether code of this level may work with it.

A session of ours reads it once, with its first question (`session.who_text`). Code works with
repositories of its own level, and with later ones as long as they serve it. Never changes anything.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from onceq import version
from onceq.errors import SchemaMismatch, SchemaMissing, SchemaTooNew

APPLICATION: Final = re.compile(r"onceq level ([0-9]{1,9})")
"""How a session of ours calls itself, if its user gave it no `application_name`."""


GOING: Final = 2**31 - 1
"""The level of a repository that is being destroyed, and the oldest that it serves: code that does
not know of this refuses it, too."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stamp:
    """The row of the table `repository`: what made its tables and functions.

    version: how many migrations its tables have. tables_sha256, functions_sha256: the digests of
    its SQL; None: from before they were noted. level, serves: see `onceq.version`; 0: from before
    there were levels.
    """

    version: int
    tables_sha256: str | None
    functions_sha256: str | None
    level: int
    serves: int

    @property
    def is_going(self) -> bool:
        """Whether it is being destroyed: what is left of it can be used no more."""
        return self.serves == GOING


def stamp_of(row: Mapping[str, Any]) -> Stamp:
    """Returns the stamp that a row, as an object of JSON, says; also one with fewer columns."""
    return Stamp(
        version=row.get("schema_version") or 0,
        tables_sha256=row.get("tables_sha256"),
        functions_sha256=row.get("functions_sha256"),
        level=row.get("level") or 0,
        serves=row.get("serves") or 0,
    )


def check_level(stamp: Stamp | None, repository: str, database: str) -> Stamp:
    """Returns the stamp of a repository with which code of this level may work.

    Raises SchemaMissing, SchemaMismatch (its level is older, or it is being destroyed),
    SchemaTooNew (it serves this level no longer); nothing happened.
    """
    if stamp is None:
        raise SchemaMissing(
            f"database {database!r} has no repository {repository!r}: "
            f"run `onceq init --repository {repository}` with the same --url, "
            "or ask the owner of the database to run it"
        )
    if stamp.level < version.LEVEL:
        has = f"is of level {stamp.level}" if stamp.level else "has no level (onceq 0.1.0 made it)"
        raise SchemaMismatch(
            f"repository {repository!r} {has}, and this onceq needs level {version.LEVEL}: "
            f"run `onceq init --repository {repository}` with the same --url; docs/operations.md"
            "#upgrades has the order"
        )
    check_served(stamp, repository)
    return stamp


def check_served(stamp: Stamp, repository: str) -> None:
    """Refuses a repository that serves code of this level no longer.

    Raises SchemaTooNew; SchemaMismatch: it is being destroyed.
    """
    if stamp.is_going:
        raise SchemaMismatch(
            f"repository {repository!r} is being destroyed: "
            f"`onceq repository destroy {repository}`, with the same --url, goes on with it"
        )
    if stamp.serves > version.LEVEL:
        raise SchemaTooNew(
            f"repository {repository!r} is of level {stamp.level} and serves code from level "
            f"{stamp.serves} on; this onceq is of level {version.LEVEL}: upgrade onceq"
        )


def application_level(name: str) -> int | None:
    """Returns the level of the code that calls its session so; None: the name says nothing."""
    found = APPLICATION.fullmatch(name)
    return None if found is None else int(found[1])
