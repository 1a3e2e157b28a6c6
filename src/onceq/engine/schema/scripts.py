"""The SQL files of a repository: its tables as a list of migrations, and its functions.

Read by `migrate`, which applies them. A released migration is never changed, because repositories
have it; another one, at the end of the list, changes the tables. The functions
are replaced as a whole. In the files, the repository's schema is written `onceq.`.
"""

from __future__ import annotations

import hashlib
import importlib.resources
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from onceq.model.names import check_repository

if TYPE_CHECKING:
    from importlib.resources.abc import Traversable

MIGRATIONS = (
    "0001_baseline",
    "0002_old_requests",
    "0003_archive",
    "0004_spark",
    "0005_spark_number",
    "0006_mend",
    "0007_verdicts",
    "0008_connected",
    "0009_traceback",
    "0010_retry_limit",
    "0011_dequeuers",
    "0012_spark_traceback",
    "0013_together",
    "0014_streams",
    "0015_levels",
    "0016_order",
    "0017_spent",
    "0018_closed",
    "0019_limits",
    "0020_tags",
    "0021_load",
    "0022_periodic",
    "0024_failures",
    "0026_retention",
)
FUNCTION_FILES = (
    "base",
    "bell",
    "report",
    "conclude",
    "cursor",
    "order",
    "spent",
    "limits",
    "terms",
    "hold",
    "breaker",
    "queue",
    "request",
    "outstanding",
    "element",
    "periodic",
    "reply",
    "server",
    "takeover",
    "survey",
    "plain",
    "desk",
    "registration",
    "client",
    "spark",
    "spark_commit",
    "views",
    "scan",
    "load",
    "explain",
    "metrics",
    "old_requests",
    "archive",
    "retention",
    "restore",
    "bulk",
    "stream",
    "relay",
)
_SCHEMA = re.compile(r"\bonceq\.(?=[a-z_%])")


def _files() -> Traversable:
    return importlib.resources.files("onceq.engine") / "sql"


def function_sources() -> Iterator[tuple[str, str]]:
    """Yields (file name, text) of the function files, in the order in which they are applied."""
    for name in FUNCTION_FILES:
        yield f"{name}.sql", (_files() / "functions" / f"{name}.sql").read_text("utf-8")


def newest() -> int:
    """Returns the version of the schema that these files make: the number of its migrations."""
    return len(MIGRATIONS)


def tables(since: int, until: int) -> str:
    """Returns the SQL that brings the tables of a repository from one version to another."""
    names = MIGRATIONS[since:until]
    return "\n".join((_files() / "migrations" / f"{name}.sql").read_text("utf-8") for name in names)


def tables_sha256(version: int) -> str:
    """Returns the digest that says which tables a repository of this version has."""
    return hashlib.sha256(tables(0, version).encode()).hexdigest()


def functions_sha256() -> str:
    """Returns the digest that says which functions a repository has."""
    digest = hashlib.sha256()
    for name, text in function_sources():
        digest.update(f"{name}\0{text}\0".encode())
    return digest.hexdigest()


def in_schema(text: str, repository: str) -> str:
    """Returns SQL text for the repository's schema, in place of the one it is written for."""
    return _SCHEMA.sub(f"{repository}.", text)


def render(repository: str) -> str:
    """Returns the whole schema of a repository as one SQL script, for reading or for psql."""
    check_repository(repository)
    parts = [f"create schema if not exists {repository};"]
    parts.append(tables(0, newest()))
    parts.extend(text for _, text in function_sources())
    return in_schema("\n".join(parts), repository)
